"""How a table's definition differs from before, and whether capture can carry on with it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.capture.postgres.catalog import CatalogColumn, PostgresTable


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """How a table's columns differ from before: what can be carried on, and what cannot, in words."""

    added: tuple[CatalogColumn, ...]
    filled: tuple[str, ...]
    """Those of them that rows from before may have values in, which no change tells: the table is to be read whole."""
    others: tuple[str, ...]

    @property
    def harmless(self) -> bool:
        return not self.others

    @property
    def why_reread(self) -> str | None:
        """Why the table is to be read whole, if it is."""
        listed = f"the column {self.filled[0]} was" if len(self.filled) == 1 else f"{', '.join(self.filled)} were"
        return f"{listed} added with a default or NOT NULL" if self.harmless and self.filled else None


def changed_columns(old: PostgresTable, new: PostgresTable) -> ColumnChanges:
    """Added columns can be carried on, once their values in the rows so far are known; anything else cannot."""
    before = {column.number: column for column in old.columns}
    after = {column.number: column for column in new.columns}
    added: list[CatalogColumn] = []
    others: list[str] = []
    for number, column in after.items():
        past = before.get(number)
        if past is None:
            added.append(column)
        elif past.name != column.name:
            others.append(f"the column {past.name} was renamed to {column.name}")
        elif (past.type_oid, past.typmod, past.type) != (column.type_oid, column.typmod, column.type):
            others.append(f"the column {column.name} was changed from {past.type_name} to {column.type_name}")
    others += [f"the column {column.name} was dropped" for number, column in before.items() if number not in after]
    if old.key != new.key:
        others.append(f"the key was changed from ({', '.join(old.key)}) to ({', '.join(new.key)})")
    if old.oid != new.oid:
        others.append("the table was dropped and created again")
    filled = tuple(column.name for column in added if column.has_default or not column.nullable)
    return ColumnChanges(tuple(added), filled, tuple(others))
