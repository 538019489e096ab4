"""What headgate has of a source's log, and what it told the server: kept so that nothing is lost or taken twice.

The slot, the publication and a file beside the stream log belong together. A table is captured from its load on:

    main slot      ──────────────────── changes ── C ── changes of the table, too ──►
    a slot at C, for a while            all rows of its snapshot, as one transaction just before C

First contact is the load of all tables. A load that was interrupted starts over; the file tells which was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import psycopg

from headgate.capture.postgres.catalog import PostgresTable, column_names
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.history import CaptureHistory
from headgate.capture.postgres.load import load_tables
from headgate.capture.postgres.log_server import LogServer
from headgate.capture.postgres.log_state import EVER, LoggedTable, LogState, given_up, known_table
from headgate.capture.postgres.log_tables import LogTables, TableDefinition, with_columns
from headgate.capture.postgres.new_slot import identify, new_slot
from headgate.capture.postgres.opening import Opening
from headgate.capture.postgres.pgoutput import show_lsn
from headgate.capture.postgres.problems import SourceBusy, SourceHistoryLost, SourceSetup
from headgate.capture.postgres.slot import (
    SlotStatus,
    drop_publication,
    drop_slot,
    memberships,
    publish_tables,
    read_slot,
    require_logged,
    require_server,
)
from headgate.capture.postgres.snapshot import cut_ranges
from headgate.capture.source import TableProblem
from headgate.errors import DefiniteError


class LogHistory(CaptureHistory[TableDefinition, LogState]):
    """One source's slot and what is known of its tables; used by one thread at a time."""

    tables: LogTables
    """The loaded tables."""

    def __init__(self, opening: Opening, definitions: Sequence[TableDefinition]) -> None:
        """At first contact, or afresh, all tables are missing."""
        self.name = opening.name
        self.sizes: dict[str, int] = {}
        """Of tables without rows, about how many bytes the source has."""
        self.lost_upto: int | None = None
        """The stream log lost what lies before this position in the WAL, and the server still has it."""
        super().__init__(opening, definitions, LogState)

    def _open(self, before: LogState | None, present: Mapping[str, PostgresTable]) -> None:
        self.server = LogServer(self.sessions, self._opening.clock)
        if before is None or self._opening.afresh:
            self._begin(present, {} if before is None else before.tables)
        else:
            self._state = before
            self._fetch_again()
        self._forget_removed(present)
        self.tables = self._known(present)
        if by_range := {name: table for name, table in self.tables.tables.items() if self.is_waiting(name)}:
            with self.sessions.borrow("measuring the tables") as connection:
                self._measure(connection, by_range)

    @property
    def offset(self) -> int:
        """A position in the stream log minus the one in the WAL."""
        return self.state.offset

    @property
    def told(self) -> int:
        """Everything before this position in the WAL is durable here, and the server may have heard so."""
        return max(self.state.told, self.log.durable - self.state.offset)

    @property
    def missing(self) -> tuple[str, ...]:
        """Tables that the project names, that the source has, and that are not loaded yet."""
        there = {*self.tables.tables, *self._absent}
        return tuple(name for name in self._definitions if name not in there)

    def tell(self, lsn: int) -> None:
        """Remembers that the server will hear of this position."""
        if lsn > self.told:
            self._save(replace(self.state, told=lsn))

    def verify(self, position: int) -> None:
        """Makes sure that the server, which stands at `position`, goes on from where we are."""
        with connect(self._opening.dsn, application=f"headgate {self.name}", replication=True) as connection:
            self.require_same(connection, position)
        self.inspect(position)

    def require_same(self, connection: psycopg.Connection, position: int) -> None:
        """Refuses a server with another history than ours; the connection is one for replication."""
        system, timeline = identify(connection)
        if (system, timeline) != (self.state.system, self.state.timeline):
            other = system != self.state.system
            what = "another server" if other else f"on timeline {timeline}: a restored or promoted copy"
            raise SourceHistoryLost(f"the server behind the dsn is {what}")
        if position < self.told:
            raise SourceHistoryLost(
                f"the server's log ends at {show_lsn(position)}, before what headgate has of it ({show_lsn(self.told)}):"
                " it was restored from a backup"
            )

    def inspect(self, position: int) -> SlotStatus:
        """Looks at the slot and the publication while the server stands at `position`."""
        with self.sessions.borrow("looking at the replication slot") as connection:
            status = read_slot(connection, self.name)
            entries = memberships(connection, self.name)
            columns = column_names(connection, [table.oid for table in self.tables.tables.values()])
        if status.confirmed > self.told:
            raise SourceHistoryLost(
                f"the replication slot {self.name} stands at {show_lsn(status.confirmed)}, but headgate has changes up to"
                f" {show_lsn(self.told)} only: someone else read from it, or this warehouse was restored from a backup"
            )
        for name in self.tables.tables:
            known = self.state.tables[name]
            if known.problem is None and entries.get(known.oid) != known.entry:
                error = SourceSetup(f"{name} was dropped at the source, or taken out of the publication {self.name}")
                self.tables.stop(name, position + self.offset, error)
        for name, table in list(self.tables.tables.items()):
            more = columns.get(table.oid, frozenset()) - {column.name for column in table.columns}
            if more and name not in self.tables.problems:
                self.tables.notice(name, position + self.offset)
        return status

    def drop(self) -> None:
        """Gives up the slot, so that the source's disk does not fill."""
        with self.sessions.borrow("dropping the replication slot") as connection:
            drop_slot(connection, self.name)

    def remove(self) -> None:
        """Leaves nothing of ours at the source."""
        with self.sessions.borrow("dropping the replication slot") as connection:
            drop_slot(connection, self.name)
            drop_publication(connection, self.name)

    def load(self, names: Iterable[str], drain: Callable[[int], None]) -> None:
        """Reads tables whole at a point of the stream; `drain` captures what the others committed before that point."""
        with self.sessions.borrow("publishing the tables") as connection:
            present = {name: self._read(self._definitions[name], connection) for name in names}
            self._absent = {name: error for name, error in self._absent.items() if name not in present}
            publish_tables(connection, self.name, {**self.tables.tables, **present}.values())
            entries = memberships(connection, self.name)
        again = {name for name in present if self.has_rows(name)}
        for some in (present.keys() - again, again):
            if some:
                tables = {name: present[name] for name in some}
                self._load(tables, entries, drain, replacing=some is again)

    def await_rows(self, names: Collection[str]) -> dict[str, PostgresTable]:
        """Has the log take changes of tables from now on whose first rows are to be read; gives the tables as they are."""
        if not names:
            return {}
        with self.sessions.borrow("publishing the tables") as connection:
            present = {name: self._read(self._definitions[name], connection) for name in names}
            publish_tables(connection, self.name, {**self.tables.tables, **present}.values())
            entries = memberships(connection, self.name)
            self._measure(connection, present)
        known = {
            name: known_table(table, entries[table.oid], load=EVER, again=False) for name, table in present.items()
        }
        self._save(replace(self.state, tables={**self.state.tables, **known}))
        for name, table in present.items():
            self.tables.begin(name, table)
        return present

    def _measure(self, connection: psycopg.Connection, tables: Mapping[str, PostgresTable]) -> None:
        ranges = cut_ranges(connection, tables.values())
        self.sizes |= {
            name: sum(each.bytes for each in ranges if each.table is table) for name, table in tables.items()
        }

    def begin_ranges(self, name: str) -> PostgresTable:
        """A table whose first rows are read range by range, as its changes are taken: one shape for all of its ranges.

        Columns that were added since the first ranges were read are noticed; where that makes what was read wrong, the table
        has a problem and is to be read whole.
        """
        if not self.state.tables[name].is_read_by_range:
            self.await_rows([name])
            # From now on the shape is that of rows that were read, also for the next process.
            known = replace(self.state.tables[name], read_at=self.log.end + 1)
            self._save(replace(self.state, tables={**self.state.tables, name: known}))
        else:
            self.inspect(self.server.standing().lsn)
        if (problem := self.tables.problems.get(name)) is not None:
            raise SourceBusy(problem.what, hint=problem.hint or "it is read whole by itself")
        return self.tables.tables[name]

    def ranges_read(self, name: str) -> None:
        """All ranges of a table are durable where they belong; the log has nothing of its first rows."""
        at = self.log.end
        known = replace(self.state.tables[name], load=at, read_at=at, entered_at=at)
        self._save(replace(self.state, tables={**self.state.tables, name: known}))

    def entered(self, tables: Mapping[str, PostgresTable], read_at: int, position: int) -> None:
        """The first rows of tables, as they were at `read_at`, are in the log at a position."""
        known = {
            name: replace(self.state.tables[name], load=position, read_at=read_at, entered_at=position, problem=None)
            for name in tables
        }
        self._save(replace(self.state, tables={**self.state.tables, **known}))

    def is_waiting(self, name: str) -> bool:
        """Whether a table's first rows are still to be read beside the stream."""
        known = self.state.tables.get(name)
        return known is not None and known.is_waiting and name in self.tables.tables

    def is_as(self, name: str, table: PostgresTable) -> bool:
        """Whether the table can be followed and has the shape that it had."""
        return name not in self.tables.problems and self.tables.tables[name] == table

    def begin_anew(self) -> None:
        """Gives up the slot for another one; all tables are missing until they are loaded again."""
        present = self._present(self.state.tables)
        self._begin(present, self.state.tables)
        self.tables = self._known(present)

    def _begin(self, present: Mapping[str, PostgresTable], before: Mapping[str, LoggedTable]) -> None:
        """Makes a slot; tables that the stream log may have rows of are to be loaded once more."""
        again = {name: given_up(known) for name, known in before.items()}
        if self.log.end:
            again |= {
                name: known_table(table, 0, load=EVER, again=True, first=_first_of(again.get(name)))
                for name, table in present.items()
            }
        self._state = self._new_slot(present, again)

    def _fetch_again(self) -> None:
        """Lets go of all behind a loss when the server still has it: it is sent once more, as it was."""
        loss = self.log.loss
        if loss is None:
            return
        after = loss.after - self.state.offset
        with self.sessions.borrow("looking at the replication slot") as connection:
            confirmed = read_slot(connection, self.name).confirmed
        # Commit records are aligned: none begins directly behind another.
        if confirmed <= after + 1:
            self._save(replace(self.state, told=after))
            self.log.forget_after_loss()
            self.lost_upto = loss.upto - self.state.offset

    def _check(self, connection: psycopg.Connection) -> None:
        require_server(connection, self.name)

    def _read(self, wanted: TableDefinition, connection: psycopg.Connection) -> PostgresTable:
        """The table without generated columns, which are not in the log."""
        table = wanted.read(connection, generated=False)
        require_logged([table])
        return table

    def _new_slot(self, present: Mapping[str, PostgresTable], tables: Mapping[str, LoggedTable]) -> LogState:
        """A slot in place of whatever a crash may have left, and what is to be remembered of it."""
        with self.sessions.borrow("making the replication slot") as connection:
            drop_slot(connection, self.name)
            # The log is decoded with the catalog as it was then, so the publication comes first.
            publish_tables(connection, self.name, present.values())
        with new_slot(self._opening.dsn, self.name) as slot:
            # Positions grow even when the source's history begins anew.
            offset = max(0, self.log.end + 1 - slot.load_at)
            state = LogState(slot.system, slot.timeline, offset, slot.consistent, tables)
            self._save(state)
        return state

    def _forget_removed(self, present: Mapping[str, PostgresTable]) -> None:
        """Takes tables that the project no longer names out of the publication; should they come back, they are loaded."""
        removed = {
            name: known
            for name, known in self.state.tables.items()
            if name not in self._definitions and (known.load < EVER or known.is_waiting)
        }
        if removed:
            with self.sessions.borrow("publishing the tables") as connection:
                publish_tables(connection, self.name, present.values())
            gone = {name: given_up(known) for name, known in removed.items()}
            self._save(replace(self.state, tables={**self.state.tables, **gone}))

    def _known(self, present: Mapping[str, PostgresTable], *, waiting: bool = False) -> LogTables:
        """The loaded tables as the stream log has them; what changed meanwhile and cannot be carried on stops a table.

        With `waiting` also those whose changes are taken before their first rows are there: an opening has to begin them anew.
        """
        tables: dict[str, PostgresTable] = {}
        problems: dict[str, TableProblem] = {}
        for name, known in self.state.tables.items():
            if name in self._absent:
                error = self._absent[name]
                problems[name] = known.problem or TableProblem(self.log.end + 1, error.what, error.advice)
                self._save_problem(name, problems[name])
                continue
            is_followed = known.load <= self.log.end or known.is_read_by_range or (waiting and known.is_waiting)
            if name not in present or not is_followed:
                continue
            tables[name] = present[name]
            if known.problem is not None:
                problems[name] = known.problem
                continue
            try:
                tables[name] = with_columns(present[name], known.oid, known.columns)
            except DefiniteError as error:
                problems[name] = TableProblem(self.log.end + 1, error.what, error.advice)
                self._save_problem(name, problems[name])
        return LogTables(tables, problems, catalog=self._catalog, changed=self._changed)

    def _load(
        self,
        tables: Mapping[str, PostgresTable],
        entries: Mapping[int, int],
        drain: Callable[[int], None],
        *,
        replacing: bool,
    ) -> None:
        at = self._opening.clock.now()
        with new_slot(self._opening.dsn, f"{self.name[:58]}_load", temporary=True) as slot:
            drain(slot.consistent)
            position = slot.load_at + self.offset
            before = {name: each for name, each in self.state.tables.items() if name in tables}
            known = {
                name: known_table(
                    table,
                    entries[table.oid],
                    load=position,
                    again=replacing,
                    first=_first_of(before.get(name), position),
                )
                for name, table in tables.items()
            }
            self._save(replace(self.state, tables={**self.state.tables, **known}))
            try:
                load_tables(
                    self._opening,
                    slot.snapshot,
                    list(tables.values()),
                    position=position,
                    at=at,
                    replacing=replacing,
                )
            except Exception:
                # Others go on, and their changes must not make it look as if this load were in the log. What ends the
                # process leaves the load to be begun again when the source is opened.
                self._save(replace(self.state, tables={**self.state.tables, **before}))
                raise
        self.tables = self._known({**self.tables.tables, **tables}, waiting=True)

    def has_rows(self, name: str) -> bool:
        """Whether the stream log has rows of a table from before the load that it is to get now."""
        known = self.state.tables.get(name)
        return known is not None and (known.again or known.load <= self.log.end or known.is_read_by_range)

    def _catalog(self, name: str) -> PostgresTable:
        with self.sessions.borrow(f"reading the definition of {name}") as connection:
            return self._definitions[name].read(connection, generated=False)

    def _changed(self, name: str) -> None:
        known = self.state.tables[name]
        table, problem = self.tables.tables[name], self.tables.problems.get(name)
        changed = known_table(
            table, known.entry, load=known.load, again=known.again, problem=problem, first=_first_of(known)
        )
        self._save(replace(self.state, tables={**self.state.tables, name: changed}))

    def _save_problem(self, name: str, problem: TableProblem) -> None:
        known = self.state.tables[name]
        if known.problem != problem:
            self._save(replace(self.state, tables={**self.state.tables, name: replace(known, problem=problem)}))


def _first_of(known: LoggedTable | None, loaded: int | None = None) -> tuple[int | None, int | None]:
    """Where a table's first rows are; those that are loaded now, if it had none."""
    if known is None or (loaded is not None and known.entered_at is None and known.load == EVER):
        return loaded, loaded
    return known.read_at, known.entered_at
