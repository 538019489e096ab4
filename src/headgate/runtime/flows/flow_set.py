"""The flows of a warehouse: those of its project files and those that programs declared.

Each flow's fingerprint is in the ledger. One that is new or has changed is built from its inputs at the newest job while
the old one still answers; one that is gone is archived. History that cannot be made again is never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate.config.durations import parse_duration
from headgate.config.live import LiveProject
from headgate.dataflow.demands import Demand
from headgate.dataflow.flow import Flow, MaterializedView
from headgate.dataflow.graph import Scan
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse, DefiniteError, FlowError, FlowFailed, Problems, raise_all
from headgate.runtime.flows.definitions import each_flow, read_statements, view_statement
from headgate.runtime.flows.flows import FlowPlan, Planner, RunningFlow, open_flow, table_path
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.spark.problems import flow_problem
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.procedures import Procedure, ProcedureStage, check_zones
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, zone_of
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import ARRANGEMENT, FLOW, FLOW_ARCHIVED, PROCEDURE, PROCEDURE_ARCHIVED, FlowRecord
from headgate.runtime.tables.tables import Tables
from headgate.sql.statements import TARGET_LAG
from headgate.warehouse.spark_errors import condition_of
from headgate.warehouse.spec import TableSpec

_LOGGER = logging.getLogger(__name__)

CatchUp = Callable[[Collection[str]], tuple[JobId, Sequence[BaseException]]]
"""Brings all stages to the newest job but those that are named; gives that job and what failed."""


class FlowSet:
    """Which flows there are. They change only while no executor runs stages."""

    def __init__(
        self,
        settings: LiveProject,
        session: SparkSession,
        tables: Tables,
        catalog: WarehouseCatalog,
        journal: Journal,
        batches: BatchFactory,
        materializer: Materializer,
        replicas: Replicas,
        catch_up: CatchUp,
    ) -> None:
        """`session` is the one that definitions are analysed in."""
        self._settings = settings
        self._session = session
        self._tables = tables
        self._catalog = catalog
        self._journal = journal
        self._records = journal.records
        self._batches = batches
        self._materializer = materializer
        self._replicas = replicas
        self._catch_up = catch_up
        self._flows: dict[str, RunningFlow] = {}
        self._declared: dict[str, tuple[str, str]] = {}
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

    def open(self, procedures: Sequence[Procedure] = ()) -> None:
        """Opens the procedures, the flows of the project's files and those that programs declared before."""
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
        self._define(declared)

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

    def _define(self, declared: Mapping[str, tuple[str, str]], again: Collection[str] = ()) -> None:
        """Makes the files' flows and these of programs the warehouse's: opens, builds, replaces and archives as needed.

        Flows to build `again` come in an order in which each stands before those that read it.
        """
        problems = Problems()
        statements = read_statements(self._settings.current.flow_files, problems)
        for name, sql in declared.values():
            with problems.collected():
                statements.append(view_statement(name, sql))
        catalog = self._catalog.sources_only()
        for damaged in self._replicas.damaged:
            catalog.add(damaged)
        # Flows that were damaged, or over something damaged, are tried again.
        for name in self._aside:
            self._tables.damaged.pop(name, None)
        self._aside.clear()
        for stage in self._procedures.values():
            if stage.procedure.on in self._replicas.stages:
                entry = self._catalog.find(stage.name)
                assert entry is not None
                catalog.add(entry)
        planner = Planner(self._session, catalog, self._recorded_columns, self._planner)
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
        texts = {plan.name: declared[plan.name.casefold()][1] for plan in plans if plan.name.casefold() in declared}
        stale = {plan.name for plan in plans if plan.name in again or self._is_stale(plan)}
        # What is kept is opened before anything runs: its arrangements stand at the same job as their tables.
        building = {plan.name: plan for plan in plans if plan.name in again}
        for plan in plans:
            if self._is_over_damaged(plan):
                stale.discard(plan.name)
            elif plan.name not in stale and not self._keep_whole(plan, texts.get(plan.name), building):
                stale.add(plan.name)
                building[plan.name] = plan
        self._open_late_procedures()
        # What is to be built anew stays where it is: what it reads may be replaced before it is.
        replaced = [stage.name for name in stale if (old := self.find(name)) is not None for stage in old.stages]
        over_replaced = [stage.name for stage in self._procedures.values() if stage.procedure.on in stale]
        job, failures = self._catch_up([*replaced, *over_replaced, *self._unbuilt])
        self._build_procedures(job, failures)
        for plan in plans:
            if plan.name in stale and not self._is_over_damaged(plan):
                try:
                    self._build_or_defer(plan, texts.get(plan.name), job, failures, building, planner, fingerprints)
                except FlowFailed as failure:
                    if plan.name in again or plan.name not in building:
                        raise
                    self._set_aside(plan, CorruptWarehouse(failure.what, where=failure.where, hint=failure.advice))
        for name in over_replaced:
            self._open_procedure(self._procedures[name].procedure, anew=True)
        self._open_late_procedures()
        self._build_procedures(job, failures)
        self._late = [each for each in self._late if self._tables.find_damaged(each.on) is None]
        if self._late:
            raise _no_table_for(self._late[0], self._catalog.names())
        live = {plan.name for plan in plans}
        recorded = self._records.flows
        gone = [name for name, record in recorded.items() if not record.is_archived and name not in live]
        if gone:
            self._journal.record([(FLOW_ARCHIVED, {"name": name}) for name in gone])
        for name in gone:
            self._forget(name)
        self._flows = {
            plan.name.casefold(): self._flows[plan.name.casefold()]
            for plan in plans
            if plan.name not in self._tables.damaged
        }
        self._declared = dict(declared)
        self._catch_up(())

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

    def _is_stale(self, plan: FlowPlan) -> bool:
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

    def _keep_whole(self, plan: FlowPlan, text: str | None, building: Mapping[str, FlowPlan]) -> bool:
        """Opens a flow as the ledger has it; False when it has to be built again, because it or what it reads is damaged."""
        if building.keys().isdisjoint(plan.tables_read):
            try:
                self._keep(plan, text)
                return True
            except CorruptWarehouse as damage:
                if plan.entry.is_versioned:
                    self._set_aside(plan, damage)
                    return True
                _LOGGER.warning("a table is damaged and is built again: table=%s: %s", plan.name, damage)
        return False

    def _set_aside(self, plan: FlowPlan, damage: CorruptWarehouse) -> None:
        self._forget(plan.name)
        self._aside[plan.name] = plan
        self._tables.damaged[plan.name] = damage

    def _keep(self, plan: FlowPlan, text: str | None) -> None:
        """Goes on with a flow that computes as before."""
        record = self._records.flows[plan.name]
        running = self.find(plan.name)
        if running is None:
            self._add(self._opened(plan, record.generation, NO_JOB))
        else:
            running.plan = plan
        if record.text != text:
            self._journal.record([(FLOW, replace(record, text=text).body())])

    def _opened(self, plan: FlowPlan, generation: int, through: JobId) -> RunningFlow:
        return open_flow(
            plan,
            generation,
            self._tables,
            self._records.checkpoints,
            through,
            self._replicas.stages.__getitem__,
            self._journal.chain.newest_commit_at,
        )

    def _add(self, flow: RunningFlow) -> None:
        tables, records = self._tables, self._records
        with self._journal.lock:
            self._forget(flow.plan.name)
            self._flows[flow.plan.name.casefold()] = flow
            self._catalog.add(flow.plan.entry)
            for table in flow.tables():
                tables.add(table)
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
            old = self._flows.pop(name.casefold(), None)
            if old is not None:
                self._catalog.remove(name)
                for table in old.tables():
                    self._tables.remove(table.name)

    def _build_or_defer(
        self,
        plan: FlowPlan,
        text: str | None,
        job: JobId,
        failures: Sequence[BaseException],
        again: Mapping[str, FlowPlan],
        planner: Planner,
        inputs: Mapping[str, str],
    ) -> None:
        """Builds a flow. A new one whose query fails on the data of the job runs as written when it is read.

        Its definition is sound, and later data may heal it; it is built when the flows are read again.
        """
        try:
            self._build(plan, text, job, failures, again)
        except FlowFailed as failure:
            is_view = isinstance(plan.flow, MaterializedView) and plan.fragment is None
            if not is_view or self.find(plan.name) is not None or condition_of(failure.__cause__ or failure) is None:
                raise
            written = planner.plan_as_written(plan, f"{failure.what}; `headgate resume` builds it", inputs)
            self._build(written, text, job, failures, again)

    def _build(
        self,
        plan: FlowPlan,
        text: str | None,
        job: JobId,
        failures: Sequence[BaseException],
        again: Mapping[str, FlowPlan],
    ) -> None:
        """Fills a new flow from its inputs at a job and makes it durable; until then the old one answers.

        The new table has no changes from before the job, so the flows to build `again` that read it cannot go on without
        being built: the ledger says so together with it.
        """
        if plan.entry.is_versioned:
            self._replicas.warn_of_missed_versions(plan.name, plan.tables_read[0])
        before = self._records.flows.get(plan.name)
        generation = before.generation + 1 if before is not None else 1
        flow = self._opened(plan, generation, JobId(job - 1))
        inputs = {name for stage in flow.stages for name in stage.inputs} - {table.name for table in flow.tables()}
        for name in inputs:
            if self._tables.get(name).through < job:
                raise FlowFailed(
                    f"flow {plan.name} cannot be built while {name} lags behind",
                    where=plan.flow.where,
                    hint=str(next(iter(failures), "run its jobs first")),
                )
        try:
            with self._batches.open() as batch:
                for stage in flow.stages:
                    assert not isinstance(stage, ReplicaStage)
                    stage.build(job, batch)
        except (PySparkException, Py4JError) as error:
            why, where = flow_problem(error, plan.flow)
            raise FlowFailed(f"flow {plan.name} could not be built at job {job}: {why}", where=where) from error
        columns = plan.entry.schema.jsonValue() if plan.entry.is_versioned else None
        record = FlowRecord(plan.name, plan.fingerprint, generation, plan.entry.is_versioned, text, columns=columns)
        tables = [(found, job) for table in flow.tables() for found in table.physical()]
        waiting = [
            (FLOW, replace(known, fingerprint="").body())
            for name, known in self._records.flows.items()
            if name in again and plan.name in again[name].tables_read
        ]
        forgotten = self._forgotten_arrangements(flow)
        self._materializer.checkpoint(tables, [(FLOW, record.body()), *forgotten, *waiting])
        self._add(flow)

    def _forgotten_arrangements(self, flow: RunningFlow) -> list[tuple[str, dict[str, Any]]]:
        """Entries that let go of arrangements of the tables that a flow's new ones replace."""
        names = {table.name for table in flow.tables()}
        stale = [record for record in self._records.arrangements.values() if record.table in names]
        return [(ARRANGEMENT, replace(record, columns=frozenset()).body()) for record in stale]


def _described(source: TableEntry, spec: TableSpec) -> dict[str, object]:
    """What must stay the same for a procedure's table to go on."""
    return {"on": source.name, "schema": spec.schema.jsonValue(), "key": list(spec.key)}


def _no_table_for(procedure: Procedure, names: Sequence[str]) -> DefiniteError:
    return DefiniteError(
        f"procedure {procedure.name} is on {procedure.on}, which is not a stored table",
        hint=f"there are {', '.join(names)}",
    )
