"""The flows of a warehouse: which are open, what they derive from, and which stages keep a table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta

from headgate.config.durations import parse_duration
from headgate.dataflow.demands import Demand
from headgate.dataflow.flow import Flow, MaterializedView
from headgate.dataflow.graph import Scan
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse, DefiniteError
from headgate.runtime.flows.flows import FlowPlan, RunningFlow
from headgate.runtime.flows.procedure_set import ProcedureSet
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, zone_of
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.tables import Tables
from headgate.sql.statements import TARGET_LAG

_LOGGER = logging.getLogger(__name__)


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
    held: Mapping[str, JobId] = field(default_factory=dict, init=False)
    """Tables that flows which are being built read, with the job at which they read them: changes since then stay readable."""

    def __iter__(self) -> Iterator[RunningFlow]:
        return iter(self._flows.values())

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

    def flow_of(self, stage: Stage) -> Flow | None:
        for flow in self._flows.values():
            if stage in flow.stages:
                return flow.plan.flow
        return None

    def stages(self) -> list[Stage]:
        """All stages; each comes after those that it reads."""
        flows = [stage for flow in self._flows.values() for stage in flow.stages]
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

    def sources_of(self, tables: Iterable[str]) -> frozenset[str]:
        """The sources that the tables derive from."""
        return frozenset(stage.source.name for stage in self.needed(tables) if isinstance(stage, ReplicaStage))

    def target_lag(self, table: str) -> timedelta | None:
        """How far behind its sources the table should be at most without being asked for, if its flow says so."""
        flow = self.find(table)
        if flow is None or not isinstance(flow.plan.flow, MaterializedView):
            return None
        said = flow.plan.flow.properties.get(TARGET_LAG)
        return None if said is None else parse_duration(said)

    def stored(self, table: str) -> list[str]:
        """The stored tables that a table's rows come from: itself, or what its fragment reads."""
        flow = self.find(table)
        if flow is None or flow.plan.fragment is None:
            return [table if flow is None else flow.plan.name]
        found = []
        for name, node in flow.plan.fragment.inputs:
            found += self.stored(node.table) if isinstance(node, Scan) else [f"{flow.plan.name}.{name}"]
        return found

    def demands(self) -> list[Demand]:
        """What flows look up, one demand per table and columns."""
        merged: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}
        for flow in self._flows.values():
            for demand in flow.demands:
                place = (demand.table, demand.by)
                merged[place] = merged.get(place, frozenset()) | demand.columns
        return [Demand(table, by, columns) for (table, by), columns in merged.items()]

    def add(self, flow: RunningFlow) -> None:
        """Makes the flow the one of its name, and opens the arrangements that it looks rows up in."""
        tables, records = self._tables, self._journal.records
        place = flow.plan.name.casefold()
        with self._journal.lock:
            old = self._flows.get(place)
            # Queries look at the flows meanwhile: they find the old one or the new one.
            self._flows = {**{name: each for name, each in self._flows.items() if name != place}, place: flow}
            self._catalog.add(flow.plan.entry)
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
            if checkpoint.through == table.through:
                try:
                    tables.open_arrangement(Demand(demand.table, demand.by, record.columns), checkpoint, NO_JOB)
                except CorruptWarehouse as damage:
                    _LOGGER.warning(
                        "a copy of a table is damaged and is made again: table=%s: %s", demand.table, damage
                    )
                    tables.folder(record.path).delete_folder()

    def remove(self, name: str) -> None:
        with self._journal.lock:
            old = self.find(name)
            if old is not None:
                self._flows = {place: flow for place, flow in self._flows.items() if flow is not old}
                self._catalog.remove(name)
                for table in old.tables():
                    self._tables.remove(table.name)

    def order(self, names: Iterable[str]) -> None:
        """Takes the flows in this order, in which each stands before those that read it."""
        places = [name.casefold() for name in names]
        self._flows = {place: self._flows[place] for place in places if place in self._flows}

    def set_aside(self, plan: FlowPlan, damage: CorruptWarehouse) -> None:
        """Takes a flow out of use that is damaged, or reads something damaged."""
        self.remove(plan.name)
        self._aside[plan.name] = plan
        self._tables.damaged[plan.name] = damage

    def take_back(self) -> None:
        """Flows that were set aside are to be tried again."""
        for name in self._aside:
            self._tables.damaged.pop(name, None)
        self._aside.clear()
