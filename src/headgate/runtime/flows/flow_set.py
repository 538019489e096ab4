"""The flows of a warehouse: which are open, what they derive from, and which stages keep a table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Lock
from types import MappingProxyType

from headgate.config.durations import parse_duration
from headgate.dataflow.demands import Demand
from headgate.dataflow.flow import Flow, MaterializedView
from headgate.dataflow.graph import Aggregate, Scan
from headgate.dataflow.sharing import SharedPart, shared_parts
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse, DefiniteError, SnapshotGone
from headgate.ranges.key_set import ALL, KeySet
from headgate.ranges.range_map import Ranges
from headgate.runtime.flows.alignments import inherited
from headgate.runtime.flows.flows import FlowPlan, RunningFlow
from headgate.runtime.flows.procedure_set import ProcedureSet
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, aligned_of, runs_whole, zone_of
from headgate.runtime.stages.state_stage import state_stages
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.gaps import Gap, Gaps
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import FLOW
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables
from headgate.sql.statements import RANGE_COLUMN, RANGES, TARGET_LAG

_LOGGER = logging.getLogger(__name__)
NO_KEYS: Mapping[str, KeySet] = MappingProxyType({})
"""Nothing is known of the keys that are read: all."""


@dataclass(frozen=True, slots=True)
class FormerFlow:
    """A flow of the same rows whose results were stored elsewhere: jobs before the later one's first are read from it."""

    flow: RunningFlow
    before: JobId

    @property
    def is_pinned(self) -> bool:
        return any(found.is_pinned for table in self.flow.tables() for found in table.physical())


@dataclass(eq=False)
class FlowSet:
    """The open flows, beside the replicas and procedures. A flow is replaced whole: stages and queries find the old one or the new one."""

    _tables: Tables
    _catalog: WarehouseCatalog
    _journal: Journal
    _replicas: Replicas
    _procedures: ProcedureSet
    _flows: dict[str, RunningFlow] = field(default_factory=dict, init=False)
    _aside: dict[str, FlowPlan] = field(default_factory=dict, init=False)
    _building: Mapping[str, JobId] = field(default_factory=dict, init=False)
    """Tables that flows which are being built read, with the job at which they read them."""
    unbuilt: Mapping[str, str] = field(default_factory=dict, init=False)
    """Flows that opening has left to be built, by the name in lower case: queries over them wait."""
    _shipped: Callable[[], Mapping[str, JobId]] = field(default=dict, init=False)
    """Tables that are placed at other platforms, with the job that those are at."""
    _former: dict[str, tuple[FormerFlow, ...]] = field(default_factory=dict, init=False)
    """By flow, the latest last."""
    changes: int = field(default=0, init=False)
    """Grows whenever a flow is another one than before."""
    _sharing: Lock = field(default_factory=Lock, init=False)
    _shared: tuple[int, dict[str, list[SharedPart]]] = field(default=(-1, {}), init=False)
    """By view the parts that others have as well, and for which flows that holds."""

    def __iter__(self) -> Iterator[RunningFlow]:
        return iter(self._flows.values())

    @property
    def held(self) -> dict[str, JobId]:
        """Tables that somebody besides stages takes changes of, with the job up to which it has them: later ones stay readable."""
        held = dict(self._shipped())
        for name, job in self._building.items():
            held[name] = min(job, held.get(name, job))
        return held

    def hold_shipped(self, shipped: Callable[[], Mapping[str, JobId]]) -> None:
        """Keeps changes readable that platforms lack; `shipped` gives placed tables with the job that their platform is at."""
        self._shipped = shipped

    def begin_building(self, tables: Iterable[str], job: JobId) -> None:
        """Keeps tables readable at a job, until `end_building`: flows are built from them."""
        self._building = {stored: job for name in tables for stored in self.stored(name)}

    def end_building(self) -> None:
        self._building = {}

    def leave_unbuilt(self, names: Iterable[str]) -> None:
        """Has queries over these flows wait until each is added or set aside."""
        self.unbuilt = {name.casefold(): name for name in names}

    @property
    def aside(self) -> list[FlowPlan]:
        """Flows that are not open because they, or what they read, are damaged."""
        return list(self._aside.values())

    def find(self, name: str) -> RunningFlow | None:
        return self._flows.get(name.casefold())

    def get(self, name: str) -> RunningFlow:
        found = self.find(name)
        if found is None:
            known = ", ".join(running.plan.name for running in self._flows.values())
            raise DefiniteError(f"there is no flow {name}", hint=f"there are {known or 'none'}")
        return found

    def plan_of(self, table: str) -> FlowPlan | None:
        found = self.find(table)
        return found.plan if found is not None else None

    def at(self, name: str, job: JobId) -> RunningFlow | None:
        """The flow that has a job: the one in use, or one from before its cut moved; None for a table that is no flow."""
        found = self.find(name)
        if found is None or job >= found.since:
            return found
        earlier = [each for each in self._former.get(name.casefold(), ()) if job < each.before]
        if not earlier or job < earlier[0].flow.since:
            raise SnapshotGone(
                f"{found.plan.name} does not hold job {job}: it was built at job {found.since}",
                hint=f"read job {found.since} or a later one",
            )
        return earlier[0].flow

    def first(self, name: str) -> RunningFlow | None:
        """The flow that has the oldest of the jobs that can be read."""
        found, former = self.find(name), self._former.get(name.casefold())
        return former[0].flow if former and found is not None and found.since else found

    def delete_former(self, retained: JobId) -> None:
        """Deletes the tables of former flows that no retained job and no reader asks for."""
        for place in list(self._former):
            with self._journal.lock:
                former = self._former[place]
                kept = tuple(each for each in former if each.before > retained or each.is_pinned)
                if kept == former:
                    continue
                if kept:
                    self._former[place] = kept
                else:
                    del self._former[place]
            gone = [path for each in former if each not in kept for path in self.paths(each.flow)]
            for path in gone:
                self._tables.folder(path).delete_folder()
            record = next(each for name, each in self._journal.records.flows.items() if name.casefold() == place)
            left = tuple(path for path in record.former if path not in gone)
            self._journal.record([(FLOW, replace(record, former=left).body())])

    def paths(self, flow: RunningFlow) -> list[str]:
        """Where a flow's tables lie."""
        return [self._tables.path(table.versioned) for table in flow.tables()]

    def flow_of(self, stage: Stage) -> Flow | None:
        for flow in self._flows.values():
            if stage in flow.all_stages:
                return flow.plan.flow
        return None

    def stages(self) -> list[Stage]:
        """All stages; each comes after those that it reads."""
        flows = [stage for flow in self._flows.values() for stage in flow.all_stages]
        procedures = self._procedures
        return [*self._replicas.stages.values(), *procedures.over_replicas(), *flows, *procedures.over_flows()]

    def needed(self, tables: Iterable[str]) -> list[Stage]:
        """The stages that keep the tables and all that these derive from, in order."""
        stages = {stage.name: stage for stage in self.stages()}
        wanted: set[str] = set()
        waiting = [name for table in tables for name in self.stored(table)]
        while waiting:
            name = waiting.pop()
            if name not in stages and (damage := self._tables.find_damaged(name)) is not None:
                raise copy(damage)
            if name not in wanted:
                wanted.add(name)
                waiting.extend(stages[name].inputs)
                zone = zone_of(stages[name])
                if zone is not None:
                    waiting.extend(other.name for other in stages.values() if zone_of(other) == zone)
        return [stage for name, stage in stages.items() if name in wanted]

    def needed_ranges(self, tables: Iterable[str], keys: Mapping[str, KeySet] = NO_KEYS) -> list[tuple[Stage, Ranges]]:
        """The stages that keep the tables and all that these derive from, in order, with the ranges that are needed.

        `keys` restricts stored tables to keys that are read of them; of aligned tables below, the same ranges are needed.
        """
        tables = list(tables)
        stages = self.needed(tables)
        named = {name for table in tables for name in self.stored(table)}
        wanted: dict[str, Ranges] = {
            name: self._tables.get(name).holding(keys.get(name, ALL)) for name in named if name in self._tables.by_name
        }
        for stage in reversed(stages):
            ranges = wanted.setdefault(stage.name, stage.target.ranges)
            if runs_whole(stage):
                ranges = wanted[stage.name] = stage.target.ranges
            for name in stage.inputs:
                of_input = ranges if name in aligned_of(stage) else self._tables.get(name).ranges
                wanted[name] = wanted.get(name, frozenset()) | of_input
        return [(stage, wanted[stage.name]) for stage in stages]

    def sources_of(self, tables: Iterable[str]) -> frozenset[str]:
        """The sources that the tables derive from."""
        return frozenset(stage.source.name for stage in self.needed(tables) if isinstance(stage, ReplicaStage))

    def waiting_for_rows(self) -> set[str]:
        """Stages that cannot go on because source tables that they derive from do not have their first rows yet."""
        found: set[str] = set()
        for stage in self.stages():
            is_unloaded = isinstance(stage, ReplicaStage) and stage.is_unloaded
            if is_unloaded or not found.isdisjoint(stage.inputs):
                found.add(stage.name)
        return found

    def mark_unloaded(self) -> None:
        """Tells tables that are opened from which job on they can be read, where first rows of source tables are not in them."""
        for stage in self.stages():
            target = stage.target
            if not isinstance(stage, ReplicaStage):
                skipped = max(
                    (self._tables.get(name).skipped_to(target.through) for name in stage.inputs), default=NO_JOB
                )
                target.skip_to(skipped)
            elif (begins := stage.begins_at(self._journal.chain)) is not None:
                target.skip_to(begins)

    def with_history(self) -> set[str]:
        """Source tables whose history a dimension keeps."""
        return {
            name
            for flow in self._flows.values()
            if flow.plan.entry.is_versioned
            for stage in flow.stages
            for name in stage.inputs
        }

    def target_lag(self, table: str) -> timedelta | None:
        """How far behind its sources the table should be at most without being asked for, if its flow says so."""
        flow = self.find(table)
        if flow is None or not isinstance(flow.plan.flow, MaterializedView):
            return None
        said = flow.plan.flow.properties.get(TARGET_LAG)
        return None if said is None else parse_duration(said)

    def table(self, name: str) -> StoredTable:
        """A stored table."""
        return self._tables.get(name)

    def stored(self, table: str) -> list[str]:
        """The stored tables that a table's rows come from: itself, or what its fragment reads."""
        flow = self.find(table)
        if flow is None or flow.plan.fragment is None:
            return [table if flow is None else flow.plan.name]
        found = []
        for name, node in flow.plan.fragment.inputs:
            found += self.stored(node.table) if isinstance(node, Scan) else [f"{flow.plan.name}.{name}"]
        return found

    def parts_of(self, view: str) -> list[SharedPart]:
        """The parts of a view's stage that those of other views have as well."""
        with self._sharing:
            changes = self.changes
            if self._shared[0] != changes:
                views = [
                    stage for flow in self._flows.values() for stage in flow.stages if isinstance(stage, ViewStage)
                ]
                graphs = {stage.name: stage.graph.root for stage in views}
                found: dict[str, list[SharedPart]] = {}
                for part in shared_parts(graphs):
                    for name in part.uses:
                        found.setdefault(name, []).append(part)
                self._shared = (changes, found)
            return self._shared[1].get(view, [])

    def demands(self) -> list[Demand]:
        """What flows look up, one demand per table and columns."""
        merged: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}
        for flow in self._flows.values():
            for demand in flow.demands:
                place = (demand.table, demand.by)
                # A copy of a table has the table's ranges.
                division = self._tables.get(demand.table).division if demand.table in self._tables.by_name else None
                cut_by = frozenset[str]() if division is None else frozenset({division.column})
                merged[place] = merged.get(place, frozenset()) | demand.columns | cut_by
        return [Demand(table, by, columns) for (table, by), columns in merged.items()]

    def add(self, flow: RunningFlow) -> None:
        """Makes the flow the one of its name, and opens the arrangements that it looks rows up in."""
        tables, records = self._tables, self._journal.records
        place = flow.plan.name.casefold()
        with self._journal.lock:
            old = self._flows.get(place)
            former = self._former.pop(place, ())
            if old is not None and self.has_earlier_jobs(old, flow):
                self._former[place] = (*former, FormerFlow(old, flow.built_at))
            self._divide(flow)
            # Queries look at the flows meanwhile: they find the old one or the new one.
            self._flows = {**{name: each for name, each in self._flows.items() if name != place}, place: flow}
            self._settle(place)
            self._catalog.add(flow.plan.entry)
            self.changes += 1
            for table in flow.tables():
                tables.add(table)
            for table in old.tables() if old is not None else ():
                if tables.by_name.get(table.name) is table:
                    tables.remove(table.name)
        for demand in self.demands():
            record = records.arrangements.get((demand.table, demand.by))
            table = tables.get(demand.table)
            if record is None or not record.columns or demand.by in table.arrangements:
                continue
            if not demand.columns <= record.columns:
                continue
            checkpoint = records.checkpoints[record.path]
            # One that nobody kept for a while is made anew, and so is one that is damaged.
            if checkpoint.through == table.level:
                try:
                    tables.open_arrangement(Demand(demand.table, demand.by, record.columns), checkpoint, NO_JOB)
                except CorruptWarehouse as damage:
                    _LOGGER.warning(
                        "a copy of a table is damaged and is made again: table=%s: %s", demand.table, damage
                    )
                    tables.folder(record.path).delete_folder()

    def has_earlier_jobs(self, old: RunningFlow, flow: RunningFlow) -> bool:
        """Whether the old flow gives the same rows as the one that takes its place, up to that one's first job."""
        return (
            old.plan.definition == flow.plan.definition
            and old.plan.cut != flow.plan.cut
            and all(table.through >= flow.built_at for table in old.tables())
        )

    def _divide(self, flow: RunningFlow) -> None:
        """Gives the flow's tables the ranges of the tables that they are aligned with, or those that the flow names."""
        for stage in flow.stages:
            if isinstance(stage, ViewStage):
                is_flow = stage.target.name == flow.plan.name and isinstance(flow.plan.flow, MaterializedView)
                said = flow.plan.flow.properties if is_flow else {}  # type: ignore[union-attr]
                column, count = said.get(RANGE_COLUMN), int(said.get(RANGES, 1))
                found = inherited(stage, {name: self._tables.get(name).division for name in stage.inputs}, column)
                stage.one_range = found if isinstance(found, str) else None
                whole = frozenset[Aggregate]() if isinstance(found, str) else found.restriction.whole
                flow.state_stages += state_stages(stage, whole)
                if not isinstance(found, str):
                    stage.alignment = found.restriction
                    stage.aligned = found.restriction.tables
                    stage.target.divide(found.division)
                    for node, state in stage.states.items():
                        state.divide(replace(found.division, column=found.restriction.states[node]))
                elif column is not None and count > 1:
                    stage.target.divide(self._replicas.range_maps.of_view(stage.target.spec, column, count))
        for stage in flow.all_stages:
            if isinstance(stage, ViewStage):
                self._restore_gaps(stage)

    def _restore_gaps(self, stage: ViewStage) -> None:
        """What was missing of the stage's tables when they were last folded, if they were just opened."""
        known = self._journal.records.gaps.get(self._tables.path(stage.target.versioned))
        if known and not stage.target.gaps.open and stage.target.level == stage.target.main.base_through:
            gaps = Gaps(tuple(Gap.from_body(body) for body in known))
            for table in (*stage.states.values(), stage.target):
                table.restore(gaps)

    def remove(self, name: str) -> None:
        with self._journal.lock:
            old = self.find(name)
            if old is not None:
                self._flows = {place: flow for place, flow in self._flows.items() if flow is not old}
                self._former.pop(name.casefold(), None)
                self._catalog.remove(name)
                self.changes += 1
                for table in old.tables():
                    self._tables.remove(table.name)

    def order(self, names: Iterable[str]) -> None:
        """Takes the flows in this order, in which each stands before those that read it."""
        places = [name.casefold() for name in names]
        self._flows = {place: self._flows[place] for place in places if place in self._flows}
        self.changes += 1

    def set_aside(self, plan: FlowPlan, damage: DefiniteError) -> None:
        """Takes a flow out of use that is damaged or cannot be built, or reads such a one."""
        self.remove(plan.name)
        self._aside[plan.name] = plan
        self._tables.damaged[plan.name] = damage
        self._settle(plan.name.casefold())

    def _settle(self, place: str) -> None:
        """The flow is there, or it is known why not: queries that waited for it go on."""
        self.unbuilt = {each: name for each, name in self.unbuilt.items() if each != place}

    def take_back(self) -> None:
        """Flows that were set aside are to be tried again."""
        for name in self._aside:
            self._tables.damaged.pop(name, None)
        self._aside.clear()
