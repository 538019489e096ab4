"""The captured tables as the log shows them: which rows belong to which, and what to do when a table's shape changes.

Each layout that the log announces is compared with what headgate knows of the table. Added columns that hold NULL in all
rows so far are carried on; with others the table is read whole by itself. Anything else, and a value that its column cannot
hold, stops the table: from that transaction on its changes are kept raw, and the problem is there for those who read it.
Other tables go on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import psycopg
import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.capture.postgres.catalog import CatalogColumn, PostgresTable, read_table
from headgate.capture.postgres.column_changes import changed_columns
from headgate.capture.postgres.pgoutput import RelationLayout
from headgate.capture.postgres.pgoutput_raw import raw_name, raw_rows
from headgate.capture.postgres.pgoutput_rows import RowBlock, RowDecoder
from headgate.capture.postgres.problems import SourceSetup
from headgate.capture.postgres.slot import require_key
from headgate.capture.source import TableProblem
from headgate.errors import DefiniteError


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table as the project names it."""

    table: str
    """At the source: table or schema.table."""
    called: str
    key: tuple[str, ...] | None = None
    types: Mapping[str, str] = field(default_factory=dict)

    def read(self, connection: psycopg.Connection, *, generated: bool = True) -> PostgresTable:
        """What the source's catalog says, with or without the columns that the source computes from others."""
        return read_table(connection, self.table, self.key, called=self.called, types=self.types, generated=generated)


class DecodedTransaction(NamedTuple):
    """A transaction in the stream; its rows are those from the number `first` on."""

    position: int
    commit_at: int
    """Microseconds since 1970, on headgate's clock."""
    first: int


class _RowsChangedUnseen(Exception):
    """Rows from before have values that no change tells: the table is to be read whole."""


class ColumnIdentity(Protocol):
    """What tells one column from another in the log."""

    @property
    def name(self) -> str: ...

    @property
    def type_oid(self) -> int: ...

    @property
    def typmod(self) -> int: ...


class LogTables:
    """What is known of the captured tables, by the name that headgate has for them."""

    def __init__(
        self,
        tables: Mapping[str, PostgresTable],
        problems: Mapping[str, TableProblem],
        *,
        catalog: Callable[[str], PostgresTable],
        changed: Callable[[str], None],
    ) -> None:
        """`catalog` reads a table's present definition; `changed` hears of a change before rows that it concerns go out."""
        self.tables = dict(tables)
        self.problems = dict(problems)
        self._catalog = catalog
        self._changed = changed
        self._rows: dict[RelationLayout, RowDecoder] = {}

    def begin(self, name: str, table: PostgresTable) -> None:
        """Takes the changes of a table, as it is now, whatever was known of it."""
        self.problems.pop(name, None)
        self.tables[name] = table
        self._rows = {layout: rows for layout, rows in self._rows.items() if layout.relation != table.oid}

    def adopt(self, layout: RelationLayout, position: int, *, begun: bool) -> bool:
        """Takes note of a layout; whether it is one of a captured table. `begun`: rows of the transaction are out."""
        name = self._name(layout)
        if name is None:
            return False
        if layout not in self._rows and (name not in self.problems or _fits(self.tables[name], layout)):
            try:
                table = self._laid_out(name, layout, begun)
                require_key(table, [column.name for column in layout.columns if column.identity])
                self._rows[layout] = RowDecoder(table, layout)
            except DefiniteError as error:
                self.stop(name, position, error)
            except _RowsChangedUnseen as why:
                self._note(name, TableProblem(position, str(why), None, reread=True))
        return True

    def decode(self, block: RowBlock, transactions: Sequence[DecodedTransaction]) -> list[tuple[str, pa.RecordBatch]]:
        """The block's rows under the names that they have in the stream log."""
        name = self._name(block.layout)
        if name is None or not block.messages:
            return []
        rows = self._rows.get(block.layout)
        whole = 0 if rows is None else self._whole(name, block, transactions)
        batches = []
        if rows is not None and whole:
            try:
                batches.append((name, rows.decode(block.part(0, whole))))
            except DefiniteError as error:
                bad = _first_bad(rows, block, whole)
                position = next(each for each in reversed(transactions) if each.first <= block.numbers[bad]).position
                self.stop(name, position, error)
                return self.decode(block, transactions)
        if whole < len(block.messages):
            batches.append((raw_name(name), raw_rows(block.part(whole, len(block.messages)))))
        return batches

    def _name(self, layout: RelationLayout) -> str | None:
        return next((name for name, table in self.tables.items() if table.oid == layout.relation), None)

    def _whole(self, name: str, block: RowBlock, transactions: Sequence[DecodedTransaction]) -> int:
        """How many of the block's rows come before the table's problem."""
        problem = self.problems.get(name)
        if problem is None:
            return len(block.messages)
        stopped = [each.first for each in transactions if each.position >= problem.position]
        return bisect_left(block.numbers, stopped[0]) if stopped else len(block.messages)

    def _laid_out(self, name: str, layout: RelationLayout, begun: bool) -> PostgresTable:
        """The table with the columns of a layout, which may be older or newer than what is known."""
        known = self.tables[name]
        if _fits(known, layout):
            return known
        present = self._catalog(name)
        changes = changed_columns(known, present)
        if not changes.harmless:
            raise SourceSetup(f"{known.qualified} changed its shape: {'; '.join(changes.others)}")
        if changes.why_reread is not None:
            raise _RowsChangedUnseen(f"{known.qualified}: {changes.why_reread}")
        laid_out = with_columns(present, layout.relation, layout.columns)
        if len(laid_out.columns) > len(known.columns):
            if begun:
                raise SourceSetup(f"{known.qualified} got new columns inside a transaction larger than memory")
            self.tables[name] = laid_out
            self._changed(name)
        return laid_out

    def stop(self, name: str, position: int, error: DefiniteError) -> None:
        """Keeps the table's changes raw from this position on."""
        self._note(name, TableProblem(position, error.what, error.advice))

    def give_up(self, name: str, error: DefiniteError) -> None:
        """Stops a table that was to be read whole, and cannot be."""
        self.stop(name, self.problems[name].position, error)

    def _note(self, name: str, problem: TableProblem) -> None:
        self.problems[name] = problem
        self._changed(name)

    def notice(self, name: str, position: int) -> None:
        """Takes note of columns that the source has more by now, although no row in the log has them yet."""
        known, present = self.tables[name], self._catalog(name)
        changes = changed_columns(known, present)
        if not changes.harmless or not changes.added:
            # What else has changed matters once there are rows.
            return
        if changes.why_reread is not None:
            self._note(name, TableProblem(position, f"{known.qualified}: {changes.why_reread}", None, reread=True))
        else:
            self.tables[name] = present
            self._changed(name)


def _fits(table: PostgresTable, layout: RelationLayout) -> bool:
    known = [(column.name, column.type_oid, column.typmod) for column in table.columns]
    return known == [(column.name, column.type_oid, column.typmod) for column in layout.columns]


def with_columns(table: PostgresTable, oid: int, wanted: Sequence[ColumnIdentity]) -> PostgresTable:
    """The table with these columns only: the catalog may be ahead of the log."""
    if table.oid != oid:
        raise SourceSetup(f"{table.qualified} was dropped and created again")
    there = {(column.name, column.type_oid, column.typmod): column for column in table.columns}
    columns: list[CatalogColumn] = []
    for column in wanted:
        found = there.get((column.name, column.type_oid, column.typmod))
        if found is None:
            raise SourceSetup(f"the column {column.name} of {table.qualified} was changed or dropped")
        columns.append(found)
    names = {column.name for column in columns}
    fields = [field for field in table.source_table.schema.fields if field.name in names]
    source_table = replace(table.source_table, schema=StructType(fields))
    return replace(table, columns=tuple(columns), source_table=source_table)


def _first_bad(rows: RowDecoder, block: RowBlock, count: int) -> int:
    """The first message that cannot be decoded, by halving."""
    first, last = 0, count
    while last - first > 1:
        middle = (first + last) // 2
        try:
            rows.decode(block.part(first, middle))
            first = middle
        except DefiniteError:
            last = middle
    return first
