"""A table of the warehouse that is placed at a platform, as the platform sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.types import StructType

from headgate.errors import FlowError, Location
from headgate.serving.columns import postgres_type
from headgate.sql.names import folded

LONGEST_NAME = 63
"""PostgreSQL cuts longer ones short, in bytes."""
_LONGEST_TABLE = LONGEST_NAME - len("__next_")
"""A table has a longer name while it is filled."""


@dataclass(frozen=True)
class PlacedTable:
    name: str
    schema: StructType
    """All its columns, those that headgate adds too."""
    shown: tuple[str, ...]
    """The columns that `*` stands for."""
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...]
    origin: str
    """Tells apart what was built anew under the same name."""

    @cached_property
    def definition(self) -> str:
        """Equal for tables whose rows can follow each other at the platform; indexes are no part of it."""
        content = repr((self.name, self.schema.simpleString(), self.key, self.origin))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def type_of(self, column: str) -> str:
        found = postgres_type(self.schema[column].dataType)
        assert found is not None
        return found


def placed_table(
    name: str,
    schema: StructType,
    shown: Sequence[str],
    key: Sequence[str],
    declared: str,
    origin: str,
    where: Location | None = None,
) -> PlacedTable:
    """The table with the indexes that its flow declares; a FlowError says why it cannot be placed."""
    for field in schema.fields:
        if postgres_type(field.dataType) is None:
            raise FlowError(
                f"{name} cannot be placed: PostgreSQL has no type for its column {field.name},"
                f" {field.dataType.simpleString()}",
                where=where,
                hint="leave the column out, cast it to a plain type, or remove 'place'",
            )
    for each, most in [(name, _LONGEST_TABLE), *((column, LONGEST_NAME) for column in schema.names)]:
        if len(each.encode()) > most:
            raise FlowError(
                f"{name} cannot be placed: its name may have {_LONGEST_TABLE} bytes there, a column's {LONGEST_NAME};"
                f" {each} has more",
                where=where,
                hint="give it a shorter name, or remove 'place'",
            )
    known = {folded(column): column for column in schema.names}
    indexes = []
    for part in filter(None, (part.strip() for part in declared.split(","))):
        columns = []
        for column in part.split():
            if folded(column) not in known:
                raise FlowError(
                    f"{name} has no column {column} to index",
                    where=where,
                    hint=f"its columns are {', '.join(shown)}; write 'indexes' = 'a, b c' for one on a and one on b and c",
                )
            columns.append(known[folded(column)])
        indexes.append(tuple(columns))
    return PlacedTable(name, schema, tuple(shown), tuple(key), tuple(dict.fromkeys(indexes)), origin)
