"""What a table is: its columns, its key, the order of its files.

The key is unique in every snapshot and may contain NULLs: keys are always compared null-safely. `sort` is the order
of rows within files and the order in which files divide the table: the key, unless the table is looked up by other
columns (then those come first and the key follows).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType, TimestampNTZType, TimestampType

from headgate.delta.changes import JOB, WEIGHT
from headgate.errors import ConfigError


@dataclass(frozen=True)
class TableSpec:
    """Name, columns, key and sort order of a table."""

    name: str
    schema: StructType
    key: tuple[str, ...]
    sort: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.sort:
            object.__setattr__(self, "sort", self.key)
        known = set(self.schema.names)
        for column in self.key + self.sort:
            if column not in known:
                raise ConfigError(
                    f"table {self.name} has no column {column}", hint=f"its columns are {', '.join(self.schema.names)}"
                )
        if not self.key:
            raise ConfigError(f"table {self.name} has no key", hint="declare the columns that make a row unique")

    @property
    def lead(self) -> str:
        """The column whose ranges divide the table into files."""
        return self.sort[0]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns as Arrow types: timestamps in microseconds, UTC."""
        return arrow_columns(self.schema)

    @cached_property
    def change_schema(self) -> StructType:
        """The columns, `__job` and `__weight`."""
        return StructType([*self.schema.fields]).add(JOB, LongType()).add(WEIGHT, LongType())

    @cached_property
    def change_arrow_schema(self) -> pa.Schema:
        return self.arrow_schema.append(pa.field(JOB, pa.int64())).append(pa.field(WEIGHT, pa.int64()))

    @cached_property
    def has_timestamps(self) -> bool:
        text = self.schema.simpleString()
        return TimestampType().simpleString() in text or TimestampNTZType().simpleString() in text


def arrow_columns(columns: StructType) -> pa.Schema:
    """As Arrow types, every field nullable and without metadata: what data files of several writers have in common."""
    schema = cast("pa.Schema", to_arrow_schema(columns, timezone="UTC"))
    return pa.schema([pa.field(field.name, field.type) for field in schema])
