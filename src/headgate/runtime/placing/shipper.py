"""The shipper of a platform: brings its tables to the job that all placed tables are at, as soon as they are there.

    waits ─▶ job = what all placed tables have reached, in the ledger ─▶ changes since the platform's job ─▶ one transaction
                                                       └─ tables that it lacks, or has of another definition: filled beside

A platform that does not answer is tried again, less and less often. Meanwhile changes are held back for it, up to a limit; beyond
that its tables are filled anew. A table that others have changed is left alone until someone has it repaired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.config.live import LiveProject
from headgate.delta.changes import NO_JOB, WEIGHT, JobId
from headgate.errors import Fenced, HeadgateError, SnapshotGone, TransientError
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.placing.placement import Placed
from headgate.runtime.signal import Signal
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.tables.journal import Journal
from headgate.serving.executors import copy_frame
from headgate.serving.layout import NEXT
from headgate.serving.lookups import with_wanted
from headgate.serving.placed import PlacedTable
from headgate.serving.target import Delta, ForeignChange, Shipment, Target, TargetState, foreign_change
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.codes import code
from headgate.warehouse.images import images_frame, images_of
from headgate.warehouse.spark_errors import reason_of
from headgate.warehouse.table_ranges import Pin, TableRanges

_LOGGER = logging.getLogger(__name__)
_FEW_ROWS = 10_000
"""A table of no more rows is filled from the driver."""
_LOOK_SECONDS = 30.0
"""How often the platform is asked whether its tables are as they were shipped."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


@dataclass(frozen=True)
class ShipperStatus:
    """What a platform has, for people."""

    job: JobId | None
    """None while it was not reached."""
    trouble: HeadgateError | None
    tables: Mapping[str, str]
    """Per placed table what is to be said about it: ok, waiting, or what others did to it."""


class Shipper:
    """Ships in a thread of its own."""

    def __init__(
        self,
        target: Target,
        placed: Mapping[str, Placed],
        settings: LiveProject,
        journal: Journal,
        flows: FlowSet,
        sessions: SparkSessions,
        signal: Signal,
    ) -> None:
        self.target = target
        self._placed = placed
        self._settings = settings
        self._journal = journal
        self._flows = flows
        self._sessions = sessions
        self._signal = signal
        self._state: TargetState | None = None
        self._looked = 0.0
        self.shipped: JobId | None = None
        """The job that the platform is at; None while that is unknown, or its job is not one of this warehouse."""
        self.rows = 0
        """Rows that were sent."""
        self.trouble: HeadgateError | None = None
        self._held = {place: each.stored.main.base_through for place, each in placed.items()}
        self._repairs: set[str] = set()
        self._wanted: dict[str, tuple[tuple[str, ...], ...]] = {}
        """By table the indexes that its queries would use."""
        self._asked = 0
        self._done = 0
        self._pause = 0.0
        self._not_before = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name=f"shipping {target.name}", daemon=True)
        self._thread.start()

    # told by others

    @property
    def placed(self) -> Mapping[str, Placed]:
        return self._placed

    def place(self, placed: Mapping[str, Placed]) -> None:
        """From now on these tables are placed here."""
        self._placed = placed
        self._held = {place: self._held.get(place, each.stored.main.base_through) for place, each in placed.items()}
        self.ask()

    def ask(self) -> None:
        """Has the shipper look at the platform again, now."""
        self._asked += 1
        self._not_before = self._looked = 0.0
        self._signal.notify()

    def want_index(self, table: str, columns: tuple[str, ...]) -> None:
        """Has a table, by its folded name, get an index that its queries would use."""
        self._wanted[table] = (*self._wanted.get(table, ()), columns)
        self.ask()

    def repair(self, tables: frozenset[str]) -> None:
        """Has tables, by their folded names, filled anew."""
        self._repairs |= tables
        self.ask()

    def wait_asked(self, until: float) -> bool:
        """Waits until what was asked for so far is done, or has failed."""
        asked = self._asked
        return self._signal.wait_until(lambda: self._done >= asked or self._closed, until)

    def held(self) -> dict[str, JobId]:
        """Tables whose changes the platform still lacks, with the job up to which it has them."""
        placed = self._placed
        if self.trouble is not None:
            tables = [each.stored.versioned for each in placed.values()]
            most = self._settings.current.limits.overlay_bytes // 2
            # Large changes, which lie in files, are to be folded: filling anew takes hardly longer than shipping them.
            if sum(table.overlay_bytes for table in tables) > most or any(table.has_files for table in tables):
                return {}
        return {
            each.table.name: self._held[place] if self.shipped is None else self.shipped
            for place, each in placed.items()
            if place in self._held
        }

    def status(self) -> ShipperStatus:
        state = self._state
        words = {}
        for place, each in self._placed.items():
            known = None if state is None else state.tables.get(each.table.name)
            if known is not None and known.problem is not None:
                words[each.table.name] = known.problem
            elif known is None or known.definition != each.table.definition or place in self._repairs:
                words[each.table.name] = "waits to be filled"
            else:
                words[each.table.name] = "ok"
        return ShipperStatus(self.shipped, self.trouble, words)

    def close(self) -> None:
        self._closed = True
        self._signal.notify()
        self._thread.join()
        self.target.close()

    # in its thread

    def _loop(self) -> None:
        while True:
            wait = max(self._not_before, min(self._looked + _LOOK_SECONDS, time.monotonic() + _LOOK_SECONDS))
            self._signal.wait_until(lambda: self._closed or self._is_due(), wait)
            if self._closed:
                return
            if time.monotonic() < self._not_before:
                continue
            asked = self._asked
            try:
                self._work()
                self.trouble, self._pause = None, 0.0
            except Exception as error:
                self._fail(error)
            self._done = max(self._done, asked)
            self._signal.notify()

    def _fail(self, error: Exception) -> None:
        problem = error if isinstance(error, HeadgateError) else None
        if problem is None:
            _LOGGER.exception("shipping to %s failed and is tried again", self.target.name)
            problem = HeadgateError(f"shipping to {self.target.name} failed: {error}")
        elif self.trouble is None or self.trouble.what != problem.what:
            _LOGGER.warning("shipping to %s failed and is tried again: %s", self.target.name, problem)
        self.trouble = problem
        self._state, self._looked = None, 0.0
        longest = isinstance(problem, Fenced)
        self._pause = _LONGEST_PAUSE if longest else min(_LONGEST_PAUSE, max(_FIRST_PAUSE, self._pause * 2))
        self._not_before = time.monotonic() + self._pause

    def _is_due(self) -> bool:
        if time.monotonic() < self._not_before:
            return False
        return self._state is None or self._asked > self._done or self._reached() > (self.shipped or NO_JOB)

    def _reached(self) -> JobId:
        """The newest job that all placed tables have reached and hold."""
        placed = self._placed
        job = min((each.stored.through for each in placed.values()), default=NO_JOB)
        return NO_JOB if any(each.stored.skipped_to(job) for each in placed.values()) else job

    def _work(self) -> None:
        state = self._state
        if state is None or self._asked > self._done or time.monotonic() > self._looked + _LOOK_SECONDS:
            state = self.target.state()
            self._looked = time.monotonic()
            self._name_problems(state)
            self._state = state
            self.shipped = state.job if self._is_known(state) else None
        placed = dict(self._placed)
        pins: dict[str, Pin] = {}
        with self._journal.lock:
            # Only jobs in the ledger ship.
            self._journal.settle()
            job = self._reached() if placed else self._journal.chain.newest
            if job == NO_JOB or (self.shipped is not None and job < self.shipped) or not (placed or state.tables):
                return
            for place, each in placed.items():
                pins[place] = each.stored.main.pin(job)
        try:
            self._ship(state, placed, pins, job)
        finally:
            for pin in pins.values():
                pin.release()

    def _is_known(self, state: TargetState) -> bool:
        """Whether the platform's job is one of this warehouse, and not one from before it was restored."""
        chain = self._journal.chain
        with self._journal.lock:
            if not chain.oldest <= state.job <= chain.newest:
                return False
            return chain.get(state.job).data_timestamp == state.closed_at

    def _name_problems(self, state: TargetState) -> None:
        before = {} if self._state is None else self._state.tables
        for name, table in state.tables.items():
            known = before.get(name)
            if table.problem is not None and (known is None or known.problem != table.problem):
                _LOGGER.warning("%s", foreign_change(name, self.target.name, table.problem))

    def _ship(self, state: TargetState, placed: Mapping[str, Placed], pins: Mapping[str, Pin], job: JobId) -> None:
        target, chain = self.target, self._journal.chain
        fills: list[tuple[str, Placed]] = []
        deltas: list[Delta] = []
        aside: list[str] = []
        repairs = set(self._repairs)
        for place, each in placed.items():
            known = state.tables.get(each.table.name)
            if known is not None and known.problem is not None and place not in repairs:
                aside.append(each.table.name)
                continue
            if known is None or known.definition != each.table.definition or self.shipped is None or place in repairs:
                fills.append((place, each))
                continue
            indexes = with_wanted(each.table, known.indexes, self._wanted.get(place, ()))
            if known.indexes != indexes:
                target.add_indexes(replace(each.table, indexes=indexes), known.indexes)
                self._looked = 0.0
            try:
                changes = each.stored.changes(self.shipped, job)
            except SnapshotGone:
                fills.append((place, each))
                continue
            if changes is not None and changes.rows:
                deltas.append(self._delta(each, changes))
        for place, each in fills:
            self._fill(self._indexed(place, each.table), each.stored.main, pins[place])
        gone = [name for name in state.tables if name not in {each.table.name for each in placed.values()}]
        if job == self.shipped and not fills and not gone:
            return
        with self._journal.lock:
            names = [each.table.name for each in placed.values()]
            if any(self._flows.find(name) is None for name in names):
                return  # A flow was just removed: what is placed is told anew.
            found = chain.get(job)
            as_of = min((chain.as_of(job, name) for name in self._flows.sources_of(names)), default=None)
        filled = [self._indexed(place, each.table) for place, each in fills]
        try:
            target.ship(Shipment(state.job, job, found.data_timestamp, as_of, deltas, filled, gone, aside))
        except ForeignChange as problem:
            # The others go on without this table.
            target.set_aside(problem.table)
            raise
        self.shipped = job
        self._repairs -= repairs
        if fills or gone:
            self._state = target.state()
        else:
            self._state = TargetState(job, found.data_timestamp, state.tables)

    def _indexed(self, place: str, table: PlacedTable) -> PlacedTable:
        """The table with the indexes that it is filled with."""
        return replace(table, indexes=with_wanted(table, (), self._wanted.get(place, ())))

    def _delta(self, placed: Placed, changes: ChangeSet) -> Delta:
        spec = placed.stored.spec
        if changes.in_memory:
            rows = changes.read(placed.stored.main.limits.driver_rows)
            images = images_of(rows, lambda: code(rows, spec.key))
            self.rows += images.dead.num_rows + images.rows.num_rows
            return Delta(placed.table, images.dead, images.rows, images.dead.num_rows)
        dead, staged = self.target.begin_staging(placed.table)
        found = images_frame(changes.frame(self._sessions.background), spec)
        count = self._copied(found.where(sf.col(WEIGHT) < 0).select(*spec.columns), dead)
        self.rows += count + self._copied(found.where(sf.col(WEIGHT) > 0).select(*spec.columns), staged)
        return Delta(placed.table, None, None, count)

    def _fill(self, table: PlacedTable, stored: TableRanges, pin: Pin) -> None:
        self.target.begin_fill(table)
        if stored.count(pin.job) <= _FEW_ROWS:
            rows = stored.collected(pin.job).select(list(table.columns))
            if rows.num_rows:
                self.target.fill(table, rows)
            self.rows += rows.num_rows
        else:
            self.rows += self._copied(pin.frame(self._sessions.background).select(*table.columns), NEXT + table.name)
        self.target.end_fill(table)

    def _copied(self, frame: DataFrame, relation: str) -> int:
        """Has executors copy rows into a table of the platform."""
        try:
            shipment, rows = copy_frame(frame, self.target.dsn, self.target.layout.schema, relation)
        except (PySparkException, Py4JError) as error:
            raise TransientError(
                f"executors could not copy rows to {self.target.name}: {reason_of(error).words}",
                hint="they need this package and have to reach the database",
            ) from error
        self.target.forget_parts(shipment)
        return rows
