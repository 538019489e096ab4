"""Snapshots: tables at one job, pinned while an answer lives, as views when asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession

from headgate.dataflow.graph import Scan
from headgate.dataflow.relation import column_list, quoted
from headgate.delta.changes import JobId
from headgate.errors import SnapshotGone
from headgate.ranges.key_set import ALL, KeySet
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.flows import FlowPlan, RunningFlow
from headgate.runtime.reading.evaluated import EvaluatedRows
from headgate.runtime.reading.query_work import Interruption, Turn
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.views import Views
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables
from headgate.sql.names import substituted
from headgate.warehouse.table_ranges import Pin


class Snapshots:
    """Pins tables at a job; may be used by many threads."""

    def __init__(self, catalog: WarehouseCatalog, tables: Tables, flows: FlowSet) -> None:
        self.catalog = catalog
        self.stored = tables.get
        self.flows = flows
        self.abandoned: deque[Views] = deque()
        """Views of snapshots that were let go without a call of Spark: closed with the next one that is released."""
        self._evaluating = Turn()
        self._evaluated: dict[tuple[str, str, JobId], EvaluatedRows] = {}

    def begin(self, session: SparkSession, scratch: Scratch) -> None:
        """Spark is there: from now on tables can be read."""
        self.session = session
        self._scratch = scratch

    def pin(self, names: Collection[str], job: JobId, keys: Mapping[str, KeySet]) -> Snapshot:
        """The tables at a job, kept until the snapshot is released; of tables with ranges those that hold the keys."""
        snapshot = Snapshot(self, job, keys)
        try:
            for name in names:
                snapshot.pin(name)
        except BaseException:
            snapshot.release()
            raise
        return snapshot

    def frame(self, snapshot: Snapshot, name: str, job: JobId) -> DataFrame:
        plan = snapshot.plan(name)
        if plan is None or plan.fragment is None:
            return snapshot.part(name).main.frame(self.session, job)
        with self._evaluating.taken(snapshot.interruption):
            return self._fragment_frame(snapshot, plan, job)

    def _fragment_frame(self, snapshot: Snapshot, plan: FlowPlan, job: JobId) -> DataFrame:
        """Runs what is not incremental; functions of context are evaluated once per job."""
        assert plan.fragment is not None
        snapshot.definitions.append(plan.fingerprint)
        place = (plan.name, plan.fingerprint, job)
        if place in self._evaluated:
            return snapshot.read(self._evaluated[place])
        mapping = {}
        for name, node in plan.fragment.inputs:
            if isinstance(node, Scan):
                below = snapshot.view(node.table, self.catalog.hidden(node.table))
                mapping[name] = f"(SELECT {node.select_list} FROM {below})"
            else:
                table = snapshot.part(f"{plan.name}.{name}")
                rows = snapshot.views.of_frame(table.main.frame(self.session, job))
                mapping[name] = f"(SELECT {column_list(node.columns)} FROM {rows})"
        frame = self.session.sql(substituted(plan.fragment.sql, mapping))
        if plan.fragment.context:
            self._evaluated[place] = EvaluatedRows(frame, plan.entry.schema, self._scratch)
            return snapshot.read(self._evaluated[place])
        return frame

    def forget_before(self, job: JobId) -> None:
        """Drops evaluated fragments of jobs that are no longer retained."""
        with self._evaluating.taken(Interruption()):
            self._evaluated = {place: rows for place, rows in self._evaluated.items() if place[2] >= job}


class Snapshot:
    """Tables at one job, pinned; as views when asked for."""

    def __init__(self, snapshots: Snapshots, job: JobId, keys: Mapping[str, KeySet]) -> None:
        self._snapshots = snapshots
        self.job = job
        self._keys = keys
        self._flows: dict[str, RunningFlow | None] = {}
        self._tables: dict[str, StoredTable] = {}
        self.views = Views(snapshots.session)
        self.interruption = Interruption()
        """That of the query which reads the snapshot."""
        self._pins: list[Pin] = []
        self._frames: dict[str, DataFrame] = {}
        self._named: dict[tuple[str, ...], str] = {}
        self.definitions: list[str] = []
        """Of what is not stored but run for the query."""
        self._evaluated: list[EvaluatedRows] = []
        self.stored: dict[str, StoredTable] = {}
        """By name the pinned tables whose rows are stored, or the ranges of them that are read."""

    def pin(self, name: str) -> None:
        """Pins what the table's rows come from, of the flow that has the job; later ones do not concern the snapshot."""
        if name in self._flows:
            return
        flow = self._flows[name] = self._snapshots.flows.at(name, self.job)
        if flow is None or flow.plan.fragment is None:
            self.stored[name] = self._pin(name, self._snapshots.stored(name) if flow is None else flow.stages[0].target)
            return
        for stage in flow.stages:
            self._pin(name, stage.target)
        for below in flow.plan.read_when_asked:
            self.pin(below)

    def _pin(self, name: str, table: StoredTable) -> StoredTable:
        keys = self._keys.get(table.name, ALL)
        part = self._tables[table.name] = table.within(table.holding(keys))
        for gap in table.gaps.at(self.job, keys):
            raise SnapshotGone(
                f"table {name} does not hold job {self.job}: {gap.reason}",
                hint=f"it holds jobs {part.readable_from()} to {part.through}",
            )
        self._pins.append(part.main.pin(self.job))
        return part

    def plan(self, name: str) -> FlowPlan | None:
        """The flow that the table's rows come from."""
        flow = self._flows[name]
        return None if flow is None else flow.plan

    def part(self, name: str) -> StoredTable:
        """A stored table that is pinned, or the ranges of it that are read."""
        return self._tables[name]

    def view(self, name: str, hidden: Collection[str]) -> str:
        """A view of the table with the columns that `*` stands for and these hidden ones."""
        place = (name, *hidden)
        if place in self._named:
            return self._named[place]
        if name not in self._frames:
            self._frames[name] = self._snapshots.frame(self, name, self.job)
        frame = self._frames[name]
        entry = self._snapshots.catalog.find(name)
        assert entry is not None
        shown = [column for column in frame.columns if column in entry.schema.names]
        shown += hidden
        self._named[place] = self.views.of_frame(frame.select(*[quoted(column) for column in shown]))
        return self._named[place]

    def read(self, rows: EvaluatedRows) -> DataFrame:
        """Rows of a fragment, which stay as long as the snapshot."""
        self._evaluated.append(rows)
        return rows.frame(self._snapshots.session)

    def same(self, text: str) -> Hashable:
        """Equal for queries that have the same rows: what is built anew has other bases, or another definition."""
        return text, self.job, tuple(pin.base for pin in self._pins), tuple(self.definitions)

    def release(self) -> None:
        self._unpin()
        self.views.close()
        abandoned = self._snapshots.abandoned
        with suppress(IndexError):  # another thread was quicker
            while abandoned:
                abandoned.popleft().close()

    def drop(self) -> None:
        """Releases the snapshot without a call of Spark."""
        self._unpin()
        self._snapshots.abandoned.append(self.views)

    def _unpin(self) -> None:
        for pin in self._pins:
            pin.release()
        self._pins.clear()
        self._evaluated.clear()
