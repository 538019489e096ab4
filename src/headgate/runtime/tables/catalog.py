"""What the tables of a warehouse are called and look like, for flows and queries."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import DataType, StructType

from headgate.capture.source import SourceTable
from headgate.delta.changes import COMMIT_AT, END_AT, ROW_NUMBER, START_AT, SURROGATE_KEY


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table that SQL can name."""

    name: str
    schema: StructType
    """Visible columns."""
    hidden: StructType
    """Columns that can be named but are not in `*`."""
    key: tuple[str, ...] | None
    is_versioned: bool = False
    is_fragment: bool = False

    @property
    def full_schema(self) -> StructType:
        return StructType([*self.schema.fields, *self.hidden.fields])


class WarehouseCatalog:
    """Implements `headgate.sql`'s catalog. Names are matched without regard to case."""

    def __init__(self) -> None:
        self._entries: dict[str, TableEntry] = {}

    def add(self, entry: TableEntry) -> None:
        self._entries[entry.name.casefold()] = entry

    def remove(self, table: str) -> None:
        self._entries.pop(table.casefold(), None)

    def sources_only(self) -> WarehouseCatalog:
        """A catalog with the source tables and no flow."""
        copy = WarehouseCatalog()
        copy._entries = {place: entry for place, entry in self._entries.items() if "." in entry.name}
        return copy

    def find(self, table: str) -> TableEntry | None:
        return self._entries.get(table.casefold())

    def entries(self) -> tuple[TableEntry, ...]:
        return tuple(self._entries.values())

    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries())

    def columns(self, table: str) -> tuple[str, ...] | None:
        entry = self.find(table)
        return tuple(entry.schema.names) if entry is not None else None

    def hidden(self, table: str) -> tuple[str, ...]:
        entry = self.find(table)
        return tuple(entry.hidden.names) if entry is not None else ()

    def key(self, table: str) -> tuple[str, ...] | None:
        entry = self.find(table)
        return entry.key if entry is not None else None

    def is_versioned(self, table: str) -> bool:
        entry = self.find(table)
        return entry is not None and entry.is_versioned

    def is_fragment(self, table: str) -> bool:
        entry = self.find(table)
        return entry is not None and entry.is_fragment


def source_entry(full: str, table: SourceTable) -> TableEntry:
    """A source table by its full name."""
    return TableEntry(full, table.schema, hidden_of(table), table.key or (ROW_NUMBER,))


def hidden_of(table: SourceTable) -> StructType:
    """What a source table's replica has besides its own columns."""
    hidden = StructType() if table.key else StructType().add(ROW_NUMBER, "long")
    return hidden.add(COMMIT_AT, "timestamp")


def versions_hidden(moment: DataType) -> StructType:
    """The columns that a type 2 dimension adds; `moment` is the type of what orders its versions."""
    return StructType().add(SURROGATE_KEY, "long").add(START_AT, moment).add(END_AT, moment)
