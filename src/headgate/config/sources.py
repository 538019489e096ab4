"""What a project file may say about a source; `type` tells the kinds apart."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from headgate.config.fields import Name, Settings, Size, SparkType, differ_without_case, refuse
from headgate.config.files import FilesSourceSettings
from headgate.config.gears import CaptureMethod, GearSettings
from headgate.config.ranges import RangeSettings
from headgate.config.streams import StreamSettings


class MemoryTable(Settings):
    """A table of an in-process source: its columns with their Spark SQL types, and its key."""

    columns: dict[Name, SparkType]
    key: tuple[Name, ...]
    ranges: RangeSettings | None = None

    @field_validator("columns")
    @classmethod
    def _has_columns(cls, columns: dict[str, str]) -> dict[str, str]:
        if not columns:
            raise refuse("the table has no columns", "give each column and its Spark SQL type: {id: bigint}")
        differ_without_case(dict(columns))
        return columns

    @field_validator("key")
    @classmethod
    def _key_is_of_columns(cls, key: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not key and not cls.model_fields["key"].is_required():
            return key
        if not key:
            raise refuse("the table has no key", "name the columns that tell its rows apart: key: [id]")
        for position, column in enumerate(key):
            if column in key[:position]:
                raise refuse(f"the key names the column {column} twice", "name each column once")
            columns = info.data.get("columns")
            if columns is not None and column not in columns:
                raise refuse(f"the key column {column} is not a column", f"the columns are {', '.join(columns)}")
        return key


class MemorySourceSettings(StreamSettings):
    """A source in this process: the program that opened the warehouse writes to it."""

    type: Literal["memory"]
    tables: dict[Name, MemoryTable]

    @field_validator("tables")
    @classmethod
    def _has_tables(cls, tables: dict[str, MemoryTable]) -> dict[str, MemoryTable]:
        if not tables:
            raise refuse("the source has no tables", "declare at least one table with columns and key")
        differ_without_case(dict(tables))
        return tables


class ProducerTableSettings(MemoryTable):
    """A table that a program fills: its columns with their Spark SQL types, and its key, if it has one."""

    key: tuple[Name, ...] = ()


class ProducerSourceSettings(StreamSettings):
    """Tables that programs fill through `headgate.connect`; further ones are made by CREATE TABLE."""

    type: Literal["producer"]
    tables: dict[Name, ProducerTableSettings] = Field(default_factory=dict)

    @field_validator("tables")
    @classmethod
    def _differ(cls, tables: dict[str, ProducerTableSettings]) -> dict[str, ProducerTableSettings]:
        differ_without_case(dict(tables))
        return tables


class PostgresTableSettings(Settings):
    """A table of a PostgreSQL source; its columns are read from the server."""

    key: tuple[str, ...] = ()
    """The columns that tell its rows apart; by default the primary key."""
    table: str | None = None
    """Its name at the source, as `table` or `schema.table`; by default as in the project."""
    types: dict[str, SparkType] = Field(default_factory=dict)
    """Spark SQL types for columns whose own would not do, such as string for an unbounded number."""
    updated: str | None = None
    """For capture by timestamp: the indexed column that every insert and update sets to the time."""
    deleted: str | None = None
    """For capture by timestamp: a column that says that the row is deleted, if there is one."""
    ranges: RangeSettings | None = None


class PostgresSourceSettings(StreamSettings):
    """Tables of a PostgreSQL database, captured by its log, by triggers, or by a timestamp column."""

    type: Literal["postgres"]
    dsn: Annotated[str, Field(repr=False)]
    capture: CaptureMethod = "log"
    tables: dict[Name, PostgresTableSettings]
    pace: GearSettings = GearSettings()
    """How often the source is asked for changes."""
    retained_wal: Size | None = None
    """For capture by log: the WAL that the server may keep for headgate; beyond it the slot is dropped."""

    @field_validator("tables", mode="before")
    @classmethod
    def _without_settings(cls, tables: object) -> object:
        """`orders:` alone is a table with nothing to say about."""
        if isinstance(tables, dict):
            return {name: {} if found is None else found for name, found in tables.items()}
        return tables

    @model_validator(mode="after")
    def _fits_the_method(self) -> PostgresSourceSettings:
        if not self.tables:
            raise refuse("the source has no tables", "name at least one table: tables: {orders: {key: [id]}}")
        differ_without_case(dict(self.tables))
        for name, table in self.tables.items():
            if self.capture == "timestamp" and table.updated is None:
                raise refuse(f"the table {name} has no timestamp column", "name it: updated: changed_at")
            if self.capture != "timestamp" and (table.updated or table.deleted):
                raise refuse(
                    f"the table {name} names columns for capture by timestamp, but the source is captured by {self.capture}",
                    "remove updated and deleted, or set capture: timestamp",
                )
        if self.capture != "log" and self.retained_wal is not None:
            raise refuse(
                "retained_wal is for capture by log", f"remove it, or set capture: log instead of {self.capture}"
            )
        return self


SOURCE_TYPES: Mapping[str, type[Settings]] = MappingProxyType(
    {
        "memory": MemorySourceSettings,
        "postgres": PostgresSourceSettings,
        "files": FilesSourceSettings,
        "producer": ProducerSourceSettings,
    }
)

SourceSettings = Annotated[
    MemorySourceSettings | PostgresSourceSettings | FilesSourceSettings | ProducerSourceSettings,
    Field(discriminator="type"),
]

PACED = (PostgresSourceSettings, FilesSourceSettings)
"""Those that are asked for changes, at a pace."""
