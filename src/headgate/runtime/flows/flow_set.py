"""The flows of a warehouse: those of its project files and those that programs declared.

Each flow's fingerprint is in the ledger. One that is new or has changed is built from its inputs at the newest job while
the old one still answers; one that is gone is archived. History that cannot be made again is never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from headgate.config.durations import parse_duration
from headgate.config.live import LiveProject
from headgate.dataflow.demands import Demand
from headgate.dataflow.flow import Flow, MaterializedView
from headgate.dataflow.graph import Scan
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse, DefiniteError, FlowError, FlowFailed, Problems, raise_all
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.building import Builder, BuiltFlow, Declared, Definitions
from headgate.runtime.flows.definitions import each_flow, read_statements, view_statement
from headgate.runtime.flows.flows import FlowPlan, Planner, RunningFlow, table_path
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.procedures import Procedure, ProcedureStage, check_zones
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, zone_of
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog
from headgate.runtime.tables.journal import Entries, Journal
from headgate.runtime.tables.records import ARRANGEMENT, FLOW, FLOW_ARCHIVED, PROCEDURE, PROCEDURE_ARCHIVED
from headgate.runtime.tables.tables import Tables
from headgate.sql.statements import TARGET_LAG
from headgate.warehouse.spec import TableSpec

_LOGGER = logging.getLogger(__name__)

Bring = Callable[[Collection[str], JobId, Collection[str]], Sequence[BaseException]]
"""Brings tables to a job, as far as that is possible, and leaves some stages where they are; gives what failed."""
_OPENING_THREADS = 4


class FlowSet:
    """Which flows there are. They change in one thread at a time, and only while no executor runs stages."""

    def __init__(
        self,
        settings: LiveProject,
        analyses: Analyses,
        tables: Tables,
        catalog: WarehouseCatalog,
        journal: Journal,
        batches: BatchFactory,
        materializer: Materializer,
        replicas: Replicas,
        bring: Bring,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Inside `paused` no stage runs."""
        self._settings = settings
        self.analyses = analyses
        self._tables = tables
        self._catalog = catalog
        self._journal = journal
        self._records = journal.records
        self._batches = batches
        self._materializer = materializer
        self._replicas = replicas
        self._bring = bring
        self._paused = paused
        self._builder = Builder(tables, journal, batches, materializer, replicas)
        self._flows: dict[str, RunningFlow] = {}
        self._declared: Declared = {}
        self._planner: Planner | None = None
        """Who planned the flows."""
        self._procedures: dict[str, ProcedureStage] = {}
        self._late: list[Procedure] = []
        """Procedures over flows that are not open yet."""
        self._aside: dict[str, FlowPlan] = {}
        self._unbuilt: dict[str, int] = {}
        """Procedures that have not been called yet, with the generation of their tables."""

    # what there is

    @property
    def aside(self) -> list[FlowPlan]:
        """Flows that are not open because they, or what they read, are damaged."""
        return list(self._aside.values())

    @property
    def held(self) -> Mapping[str, JobId]:
        """Tables that flows which are being built read, with the job at which they read them."""
        return self._builder.held

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
        early = [stage for stage in self._procedures.values() if stage.procedure.on in self._replicas.stages]
        late = [stage for stage in self._procedures.values() if stage not in early]
        flows = [stage for flow in self._flows.values() for stage in flow.stages]
        return [*self._replicas.stages.values(), *early, *flows, *late]

    def needed(self, tables: Iterable[str]) -> list[Stage]:
        """The stages that keep the tables and all that these derive from, in order."""
        stages = {stage.name: stage for stage in self.stages()}
        wanted: set[str] = set()
        waiting = [name for table in tables for name in self._stored(table)]
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

    def _stored(self, table: str) -> list[str]:
        """The stored tables that a table's rows come from: itself, or what its fragment reads."""
        flow = self.find(table)
        if flow is None or flow.plan.fragment is None:
            return [table if flow is None else flow.plan.name]
        found = []
        for name, node in flow.plan.fragment.inputs:
            found += self._stored(node.table) if isinstance(node, Scan) else [f"{flow.plan.name}.{name}"]
        return found

    def demands(self) -> list[Demand]:
        """What flows look up, one demand per table and columns."""
        merged: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}
        for flow in self._flows.values():
            for demand in flow.demands:
                place = (demand.table, demand.by)
                merged[place] = merged.get(place, frozenset()) | demand.columns
        return [Demand(table, by, columns) for (table, by), columns in merged.items()]

    # defining

    def open(self, procedures: Sequence[Procedure], approve: Callable[[Definitions], None]) -> None:
        """Opens the procedures, the flows of the project's files and those that programs declared before.

        `approve` raises where flows are not to be taken as they are.
        """
        check_zones(procedures)
        self._archive_procedures({procedure.name for procedure in procedures})
        self._late = [each for each in procedures if each.on not in self._replicas.stages]
        for procedure in procedures:
            if procedure not in self._late:
                self._open_procedure(procedure)
        declared = {
            record.name.casefold(): (record.name, record.text)
            for record in self._records.flows.values()
            if record.text is not None and not record.is_archived
        }
        definitions = self.plan(declared)
        approve(definitions)
        self.take(definitions)

    def read_again(self) -> None:
        """Takes the project's files as they are now, new ones too and without those that went."""
        self._define(self._declared)

    def build_again(self, name: str) -> None:
        """Builds a flow again from its inputs, and then the flows that read it."""
        if name in self._procedures:
            raise DefiniteError(
                f"{name} holds what a procedure gave, which is not called again with the same changes",
                hint="give the procedure another name: it is then called with all rows",
            )
        flow = self.get(name).plan
        if flow.entry.is_versioned:
            raise DefiniteError(
                f"{name} keeps history, which cannot be made again from current rows",
                where=flow.flow.where,
                hint=f"if its source was not followed: `headgate refresh --table {flow.tables_read[0]}`; if its files are"
                " damaged, restore a backup, or declare the dimension under another name",
            )
        again = {flow.name}
        for running in self._flows.values():
            if not again.isdisjoint(running.plan.tables_read):
                again.add(running.plan.name)
        self._define(self._declared, again)

    def declare(self, name: str, sql: str) -> None:
        """Adds a program's view, or replaces it."""
        self._define({**self._declared, name.casefold(): (name, sql)})

    def drop(self, name: str) -> None:
        """Archives a program's flow."""
        if name.casefold() not in self._declared:
            raise DefiniteError(f"no program declared a flow {name}", hint="remove a project file's flow from its file")
        self._define({place: found for place, found in self._declared.items() if place != name.casefold()})

    def _define(self, declared: Declared, again: Collection[str] = ()) -> None:
        self.take(self.plan(declared), again)

    def plan(self, declared: Declared | None = None, files: Sequence[Path] | None = None) -> Definitions:
        """The flows of the files as they are now and these of programs, planned; nothing is changed. Raises all mistakes."""
        declared = self._declared if declared is None else declared
        problems = Problems()
        statements = read_statements(self._settings.current.flow_files if files is None else files, problems)
        for name, sql in declared.values():
            with problems.collected():
                statements.append(view_statement(name, sql))
        catalog = self._catalog.sources_only()
        for damaged in self._replicas.damaged:
            catalog.add(damaged)
        for stage in self._procedures.values():
            if stage.procedure.on in self._replicas.stages:
                entry = self._catalog.find(stage.name)
                assert entry is not None
                catalog.add(entry)
        planner = Planner(self.analyses, catalog, self._recorded_columns, self._planner)
        fingerprints: dict[str, str] = {}

        def make(definition: Flow) -> FlowPlan:
            plan = planner.plan(definition, fingerprints)
            self._refuse_changed_history(plan)
            fingerprints[plan.name] = plan.fingerprint
            catalog.add(plan.entry)
            return plan

        plans = [each.made for each in each_flow(statements, planner, make, problems) if each.made is not None]
        raise_all(problems)
        self._planner = planner
        return Definitions(dict(declared), tuple(plans), planner, fingerprints)

    def take(self, definitions: Definitions, again: Collection[str] = ()) -> None:
        """Makes these flows the warehouse's: opens, builds, replaces and archives as needed.

        What is replaced answers until everything that takes its place is built; then all of it changes at once. Stages go on
        meanwhile, unless there are procedures, whose zones must not be ahead of each other.
        """
        with self._paused() if self._procedures or self._late else nullcontext():
            self._take(definitions, again)

    def _take(self, definitions: Definitions, again: Collection[str]) -> None:
        plans = definitions.plans
        # Flows that were damaged, or over something damaged, are tried again.
        for name in self._aside:
            self._tables.damaged.pop(name, None)
        self._aside.clear()
        stale = {plan.name for plan in plans if plan.name in again or self.is_stale(plan)}
        renewed = set(again)
        """Flows whose definition is as it was: what fails when such a flow is built says nothing against the definition."""
        opened = self._open_all([plan for plan in plans if plan.name not in stale and self.find(plan.name) is None])
        with self._paused():
            for plan in plans:
                if self._is_over_damaged(plan):
                    stale.discard(plan.name)
                elif plan.name not in stale and not self._keep_whole(plan, definitions, renewed, opened):
                    stale.add(plan.name)
                    renewed.add(plan.name)
            self._open_late_procedures()
        over_replaced = [stage.name for stage in self._procedures.values() if stage.procedure.on in stale]
        try:
            if stale or self._unbuilt:
                job, failures = self._bring_inputs(plans, stale, over_replaced)
                self._build_procedures(job, failures)
                self._build_all(definitions, stale, renewed - set(again), job, failures)
                for name in over_replaced:
                    self._open_procedure(self._procedures[name].procedure, anew=True)
                self._open_late_procedures()
                self._build_procedures(job, failures)
        finally:
            self._builder.end()
        self._late = [each for each in self._late if self._tables.find_damaged(each.on) is None]
        if self._late:
            raise _no_table_for(self._late[0], self._catalog.names())
        live = {plan.name for plan in plans}
        gone = self.gone(live)
        if gone:
            self._journal.record([(FLOW_ARCHIVED, {"name": name}) for name in gone])
        with self._paused():
            for name in gone:
                self._forget(name)
            self._flows = {
                plan.name.casefold(): self._flows[plan.name.casefold()]
                for plan in plans
                if plan.name not in self._tables.damaged
            }
        self._declared = dict(definitions.declared)
        self.analyses.keep_used()

    def gone(self, live: Collection[str]) -> list[str]:
        """The flows of the ledger that are not among the live ones."""
        return [name for name, record in self._records.flows.items() if not record.is_archived and name not in live]

    def _bring_inputs(
        self, plans: Iterable[FlowPlan], stale: Collection[str], leave: Collection[str]
    ) -> tuple[JobId, Sequence[BaseException]]:
        """Brings what stale flows and new procedures read to the newest job; what is to be replaced stays where it is."""
        read = {name for plan in plans if plan.name in stale for name in plan.tables_read if name not in stale}
        read |= {self._procedures[name].procedure.on for name in self._unbuilt}
        replaced = [stage.name for name in stale if (old := self.find(name)) is not None for stage in old.stages]
        known = [name for name in read if self._tables.find_damaged(name) is None]
        with self._journal.lock:
            job = self._journal.chain.newest
            self._builder.held = dict.fromkeys([stored for name in known for stored in self._stored(name)], job)
        return job, self._bring(known, job, [*replaced, *leave, *self._unbuilt])

    def _build_all(
        self,
        definitions: Definitions,
        stale: Collection[str],
        renewed: Collection[str],
        job: JobId,
        failures: Sequence[BaseException],
    ) -> None:
        """Builds the stale flows. One that replaces none, and reads none that is replaced, counts at once; all others count
        together: a flow without the changes that its readers lack must not be theirs."""
        replacing: list[BuiltFlow] = []
        records = self._records.flows
        for plan in definitions.plans:
            if plan.name not in stale or self._is_over_damaged(plan):
                continue
            try:
                built = self._builder.build_or_defer(plan, definitions, job, failures, self.find(plan.name) is not None)
            except FlowFailed as failure:
                if plan.name not in renewed:
                    raise
                self._set_aside(plan, CorruptWarehouse(failure.what, where=failure.where, hint=failure.advice))
                continue
            waits = {each.flow.plan.name for each in replacing}
            is_new = plan.name not in records or records[plan.name].is_archived
            if is_new and waits.isdisjoint(plan.tables_read):
                self._count([built], job)
            else:
                replacing.append(built)
        # What they read may begin anew: they are built when they can be.
        failed = [replace(records[name], fingerprint="") for name in renewed if name in self._aside]
        self._count(replacing, job, [(FLOW, record.body()) for record in failed])

    def _count(self, built: Sequence[BuiltFlow], job: JobId, more: Entries = ()) -> None:
        """Makes flows durable in one step; from then on they answer."""
        if built or more:
            tables = [(found, job) for each in built for table in each.flow.tables() for found in table.physical()]
            entries = [entry for each in built for entry in self._entries(each)]
            self._materializer.checkpoint(tables, [*entries, *more])
            with self._paused():
                for each in built:
                    self._add(each.flow)

    def _entries(self, built: BuiltFlow) -> list[tuple[str, dict[str, Any]]]:
        """The flow's record; arrangements of the tables that its new ones replace are let go of."""
        names = {table.name for table in built.flow.tables()}
        stale = [record for record in self._records.arrangements.values() if record.table in names]
        forgotten = [(ARRANGEMENT, replace(record, columns=frozenset()).body()) for record in stale]
        return [(FLOW, built.record.body()), *forgotten]

    def _archive_procedures(self, kept: set[str]) -> None:
        gone = [name for name in self._records.procedures if name not in kept]
        if gone:
            self._journal.record([(PROCEDURE_ARCHIVED, {"name": name}) for name in gone])

    def _open_late_procedures(self) -> None:
        """Opens the procedures whose tables are there by now."""
        ready = [each for each in self._late if self._catalog.find(each.on) is not None]
        self._late = [each for each in self._late if each not in ready]
        for procedure in ready:
            self._open_procedure(procedure)

    def _open_procedure(self, procedure: Procedure, *, anew: bool = False) -> None:
        """Opens a procedure's table as the ledger has it; one that is new, or declared in another way, is to be built."""
        spec = procedure.spec()
        source = self._catalog.find(procedure.on)
        if source is None or source.is_fragment:
            raise _no_table_for(procedure, self._catalog.names())
        if not anew and self._catalog.find(procedure.name) is not None:
            raise DefiniteError(f"there is a table {procedure.name} already", hint="give the procedure another name")
        record = self._records.procedures.get(procedure.name)
        is_new = (
            anew or record is None or any(record[name] != value for name, value in _described(source, spec).items())
        )
        before = self._records.archived_procedures.get(procedure.name, 0) if record is None else record["generation"]
        generation = before + is_new
        path = table_path(procedure.name, generation)
        through = JobId(max(self._journal.chain.newest - 1, NO_JOB))
        table = self._tables.open(path, spec, self._records.checkpoints.get(path), through)
        with self._journal.lock:
            self._tables.add(table)
            self._catalog.add(TableEntry(procedure.name, spec.schema, StructType(), spec.key))
            self._procedures[procedure.name] = ProcedureStage(
                replace(procedure, on=source.name), table, self._tables.by_name
            )
        if is_new:
            self._unbuilt[procedure.name] = generation

    def _build_procedures(self, job: JobId, failures: Sequence[BaseException]) -> None:
        """Calls new procedures with all that their tables have at the job, and makes what they gave durable."""
        for name, generation in list(self._unbuilt.items()):
            stage = self._procedures[name]
            source = self._tables.get(stage.procedure.on)
            if source.through < job:
                raise FlowFailed(
                    f"procedure {name} cannot begin while {source.name} lags behind",
                    hint=str(next(iter(failures), "run its jobs first")),
                )
            if job > NO_JOB:
                with self._batches.open() as batch:
                    stage.build(job, batch)
            entry = self._catalog.find(source.name)
            assert entry is not None
            body = {"name": name, "generation": generation, **_described(entry, stage.target.spec)}
            tables = [(found, stage.target.through) for found in stage.target.physical()]
            self._materializer.checkpoint(tables, [(PROCEDURE, body)])
            del self._unbuilt[name]

    def is_stale(self, plan: FlowPlan) -> bool:
        """Whether a flow has to be built: it is new, or computes in another way than the ledger's."""
        record = self._records.flows.get(plan.name)
        return record is None or record.is_archived or record.fingerprint != plan.fingerprint

    def _recorded_columns(self, flow: str) -> StructType | None:
        record = self._records.flows.get(flow)
        if record is None or record.is_archived or record.columns is None:
            return None
        return StructType.fromJson(dict(record.columns))

    def _refuse_changed_history(self, plan: FlowPlan) -> None:
        record = self._records.flows.get(plan.name)
        if record is None or record.is_archived or not record.is_versioned or record.fingerprint == plan.fingerprint:
            return
        raise FlowError(
            f"the definition of {plan.name} has changed, but its history cannot be made again from current rows",
            where=plan.flow.where,
            hint="give the new definition another name, or remove the flow and open the warehouse once to archive the table",
        )

    def _is_over_damaged(self, plan: FlowPlan) -> bool:
        """Whether a flow reads a table that could not be opened: then it is not opened either."""
        damaged = self._tables.damaged
        below = next((name for name in plan.tables_read if name in damaged), None)
        if below is None:
            return False
        self._set_aside(
            plan, CorruptWarehouse(f"{plan.name} reads {below}: {damaged[below].what}", hint=damaged[below].advice)
        )
        return True

    def _open_all(self, plans: Sequence[FlowPlan]) -> dict[str, RunningFlow | CorruptWarehouse]:
        """Opens the tables of flows as the ledger has them, several at a time; gives the damage of those that have one."""

        def opened(plan: FlowPlan) -> RunningFlow | CorruptWarehouse:
            try:
                return self._builder.open(plan, self._records.flows[plan.name].generation, NO_JOB)
            except CorruptWarehouse as damage:
                return damage

        with ThreadPoolExecutor(_OPENING_THREADS, "opening") as pool:
            return dict(zip([plan.name for plan in plans], pool.map(opened, plans), strict=True))

    def _keep_whole(
        self,
        plan: FlowPlan,
        definitions: Definitions,
        renewed: Collection[str],
        opened: Mapping[str, RunningFlow | CorruptWarehouse],
    ) -> bool:
        """Goes on with a flow that computes as before; False when it has to be built again, because it or what it reads is
        damaged."""
        if not set(renewed).isdisjoint(plan.tables_read):
            return False
        found = opened.get(plan.name)
        if isinstance(found, CorruptWarehouse):
            if plan.entry.is_versioned:
                self._set_aside(plan, found)
                return True
            _LOGGER.warning("a table is damaged and is built again: table=%s: %s", plan.name, found)
            return False
        if found is not None:
            self._add(found)
        else:
            self.get(plan.name).plan = plan
        record, text = self._records.flows[plan.name], definitions.text_of(plan)
        if record.text != text:
            self._journal.record([(FLOW, replace(record, text=text).body())])
        return True

    def _set_aside(self, plan: FlowPlan, damage: CorruptWarehouse) -> None:
        with self._paused():
            self._forget(plan.name)
        self._aside[plan.name] = plan
        self._tables.damaged[plan.name] = damage

    def _add(self, flow: RunningFlow) -> None:
        tables, records = self._tables, self._records
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

    def _forget(self, name: str) -> None:
        with self._journal.lock:
            old = self.find(name)
            if old is not None:
                self._flows = {place: flow for place, flow in self._flows.items() if flow is not old}
                self._catalog.remove(name)
                for table in old.tables():
                    self._tables.remove(table.name)


def _described(source: TableEntry, spec: TableSpec) -> dict[str, object]:
    """What must stay the same for a procedure's table to go on."""
    return {"on": source.name, "schema": spec.schema.jsonValue(), "key": list(spec.key)}


def _no_table_for(procedure: Procedure, names: Sequence[str]) -> DefiniteError:
    return DefiniteError(
        f"procedure {procedure.name} is on {procedure.on}, which is not a stored table",
        hint=f"there are {', '.join(names)}",
    )
