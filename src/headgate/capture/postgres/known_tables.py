"""The captured tables as headgate knows them, and what to do when a definition changes at the source.

Added columns that hold NULL in all rows so far are carried on; with others the table is read whole by itself. Anything else,
and a value that its column cannot hold, stops the table: the problem is there for those who read it, and other tables go on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType

import psycopg

from headgate.capture.postgres.catalog import PostgresTable, read_again
from headgate.capture.postgres.column_changes import changed_columns
from headgate.capture.postgres.rows import EventRows
from headgate.capture.source import TableProblem
from headgate.errors import DefiniteError


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column as it was when the table was last looked at."""

    number: int
    name: str
    type_oid: int
    typmod: int
    type_name: str


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A captured table as it was, and why it was stopped, if it was."""

    oid: int
    columns: tuple[KnownColumn, ...]
    problem: TableProblem | None = None
    fewest: int | None = None
    """Rows since its load may have as few columns; None is as many as it has."""


Shape = tuple[KnownColumn, ...]


def known_columns(table: PostgresTable) -> tuple[KnownColumn, ...]:
    return tuple(
        KnownColumn(each.number, each.name, each.type_oid, each.typmod, each.type_name) for each in table.columns
    )


_SHAPES = """
SELECT attrelid::int8, array_agg(attnum::int4 ORDER BY attnum), array_agg(attname::text ORDER BY attnum),
       array_agg(atttypid::int8 ORDER BY attnum), array_agg(atttypmod ORDER BY attnum),
       array_agg(format_type(atttypid, atttypmod) ORDER BY attnum)
FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 AND NOT attisdropped GROUP BY attrelid
"""


class KnownTables:
    """What is known of the captured tables, by the name that headgate has for them; safe to use from several threads."""

    def __init__(
        self,
        tables: Mapping[str, PostgresTable],
        known: Mapping[str, KnownTable],
        position: int,
        absent: Mapping[str, DefiniteError] = MappingProxyType({}),
    ) -> None:
        """`known` is how tables were when capture ended before this position; `absent` why some cannot be read now."""
        self.tables = dict(tables)
        self.rows = {name: EventRows(table) for name, table in tables.items()}
        self.fewest = {
            name: (known[name].fewest or len(known[name].columns)) if name in known else len(table.columns)
            for name, table in tables.items()
        }
        """Rows of the source may have as few columns, from before some were added; a batch may be read once more."""
        self.problems = {name: table.problem for name, table in known.items() if table.problem is not None}
        self._lock = threading.Lock()
        for name, error in absent.items():
            self._stop_locked(name, position, error.what, error.advice)
        self._absent = {
            name: replace(table, problem=self.problems.get(name)) for name, table in known.items() if name not in tables
        }
        for name, before in known.items():
            if name in tables and name not in self.problems:
                self._compare(name, _as_known(tables[name], before), tables[name], position)

    def known(self) -> dict[str, KnownTable]:
        with self._lock:
            return self._absent | {
                name: KnownTable(table.oid, known_columns(table), self.problems.get(name), self.fewest[name])
                for name, table in self.tables.items()
            }

    def look(
        self, connection: psycopg.Connection, relations: Mapping[int, str], position: int
    ) -> dict[int, tuple[str, ...]]:
        """The columns of relations (a captured table or a partition of one) in their order; notices changes."""
        rows = connection.execute(_SHAPES, [list(relations)]).fetchall()
        found: dict[int, Shape] = {row[0]: tuple(map(KnownColumn, *row[1:])) for row in rows}
        with self._lock:
            for name in dict.fromkeys(relations.values()):
                if name not in self.problems:
                    self._notice(
                        connection, name, {oid: found.get(oid) for oid in relations if relations[oid] == name}, position
                    )
            return {
                oid: tuple(column.name for column in found.get(oid) or known_columns(self.tables[name]))
                for oid, name in relations.items()
            }

    def _notice(
        self, connection: psycopg.Connection, name: str, shapes: Mapping[int, Shape | None], position: int
    ) -> None:
        table = self.tables[name]
        known = known_columns(table)
        if all(shape is not None and _same(shape, known, ordered=oid == table.oid) for oid, shape in shapes.items()):
            return
        try:
            now = read_again(connection, table)
        except DefiniteError as error:
            self._stop_locked(name, position, error.what, error.advice)
            return
        self._compare(name, table, now, position)
        partitions = [shape for oid, shape in shapes.items() if oid != table.oid and shape is not None]
        if name not in self.problems and not all(
            _same(shape, known_columns(now), ordered=False) for shape in partitions
        ):
            self._stop_locked(
                name, position, f"a partition of {table.qualified} has other columns than its table", None
            )

    def _compare(self, name: str, before: PostgresTable, now: PostgresTable, position: int) -> None:
        changes = changed_columns(before, now)
        if not changes.harmless:
            self._stop_locked(name, position, f"{now.qualified}: {'; '.join(changes.others)}", None)
        elif changes.why_reread is not None:
            why = f"{now.qualified}: {changes.why_reread}"
            self.problems.setdefault(name, TableProblem(position, why, None, reread=True))
        elif changes.added:
            self.tables[name], self.rows[name] = now, EventRows(now)

    def being_read(self, names: Iterable[str], before: KnownTables, position: int) -> KnownTables:
        """The same while tables are read whole, from where `before` says that they are not whole, or this position."""
        found = copy(self)
        reading = TableProblem(position, "it is not read whole yet", None, reread=True)
        unread = {name: problem for name, problem in before.problems.items() if problem.reread}
        found.problems = {**self.problems, **{name: unread.get(name, reading) for name in names}}
        return found

    def give_up(self, name: str, error: DefiniteError) -> None:
        """Stops a table that was to be read whole, and cannot be."""
        with self._lock:
            self.problems[name] = TableProblem(self.problems[name].position, error.what, error.advice)

    def stop(self, name: str, position: int, what: str, hint: str | None = None) -> None:
        """Keeps the table's changes raw from now on."""
        with self._lock:
            self._stop_locked(name, position, what, hint)

    def _stop_locked(self, name: str, position: int, what: str, hint: str | None) -> None:
        self.problems.setdefault(name, TableProblem(position, what, hint))


def _same(shape: Iterable[KnownColumn], known: Iterable[KnownColumn], *, ordered: bool) -> bool:
    """Whether a relation has the known columns; a partition may number and order them in its own way."""
    if ordered:
        return tuple(shape) == tuple(known)
    return {(each.name, each.type_oid, each.typmod) for each in shape} == {
        (each.name, each.type_oid, each.typmod) for each in known
    }


def _as_known(table: PostgresTable, before: KnownTable) -> PostgresTable:
    """The table as it was when capture went on last."""
    by_number = {column.number: column for column in table.columns}
    template = table.columns[0]
    columns = tuple(
        replace(
            by_number.get(each.number, template),
            number=each.number,
            name=each.name,
            type_oid=each.type_oid,
            typmod=each.typmod,
            type_name=each.type_name,
        )
        for each in before.columns
    )
    return replace(table, oid=before.oid, columns=columns)
