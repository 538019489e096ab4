"""Which flows a warehouse has: those of its project files and those that programs declared.

Each flow's fingerprint is in the ledger. One that is new or has changed is built from its inputs at the newest job while
the old one still answers; one that is gone is archived. History that cannot be made again is never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headgate.config.live import LiveProject
from headgate.dataflow.cutting import Cut
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import CorruptWarehouse, DefiniteError, FlowFailed, HeadgateError
from headgate.runtime.defining.building import Builder, BuiltFlow, Declared, Definitions
from headgate.runtime.defining.definition_reader import DefinitionReader
from headgate.runtime.execution.executor import Executor
from headgate.runtime.execution.failures import all_failures
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.flows import FlowPlan, RunningFlow
from headgate.runtime.flows.procedure_set import ProcedureSet
from headgate.runtime.flows.replicas import OPENING_THREADS, Replicas
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.procedures import Procedure
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Entries, Journal
from headgate.runtime.tables.records import ARRANGEMENT, FLOW, FLOW_ARCHIVED, GAPS
from headgate.runtime.tables.tables import Tables

_LOGGER = logging.getLogger(__name__)
_BUILD_AGAIN = "mend the cause, then try again: `headgate resume`"


@dataclass(eq=False)
class Defining:
    """Changes the flows, in one thread at a time; stages stand still only where the graph itself changes."""

    _settings: LiveProject
    analyses: Analyses
    _tables: Tables
    _catalog: WarehouseCatalog
    _journal: Journal
    _materializer: Materializer
    _replicas: Replicas
    _procedures: ProcedureSet
    _flows: FlowSet
    _builder: Builder
    _executor: Executor
    _declared: Declared = field(default_factory=dict, init=False)
    disputed: tuple[HeadgateError, ...] = field(default=(), init=False)
    """Flows that a program has and a file of the project defines as well: the program's count."""
    _left: tuple[Definitions, set[str]] | None = field(default=None, init=False)
    """What opening has left to be built."""
    is_stopped: bool = field(default=False, init=False)
    """Nothing more is to be built; see `stop`."""

    def __post_init__(self) -> None:
        self._reader = DefinitionReader(
            self._settings, self.analyses, self._catalog, self._journal, self._replicas, self._procedures
        )
        self.is_stale = self._reader.is_stale

    def open(
        self, procedures: Sequence[Procedure], approve: Callable[[Definitions], None], build_later: bool = False
    ) -> None:
        """Opens the procedures, the flows of the project's files and those that programs declared before.

        `approve` raises where flows are not to be taken as they are. With `build_later`, and without procedures, flows that have
        to be built are left to `build_left`.
        """
        self._procedures.open(procedures)
        declared = {
            record.name.casefold(): (record.name, record.text)
            for record in self._journal.records.flows.values()
            if record.text is not None and not record.is_archived
        }
        self._delete_former()
        self._declared = declared
        definitions = self.plan()
        approve(definitions)
        if not self._procedures:
            # A procedure is called with rows as changes, which rows of a base are not.
            self._replicas.load_by_range(
                {plan.tables_read[0] for plan in definitions.plans if plan.dimension is not None}
            )
        # Before the first job there is nothing to build from, and nothing to answer meanwhile.
        if not build_later or self._procedures or self._journal.chain.newest == NO_JOB:
            self.take(definitions)
            return
        stale, _ = self._open_kept(definitions, ())
        self._declared, self.disputed = dict(definitions.declared), definitions.disputed
        self._left = (definitions, stale)
        self._flows.leave_unbuilt(plan.name for plan in definitions.plans if plan.name in stale)
        if not stale:
            self.build_left()

    def build_left(self) -> None:
        """Builds the flows that opening has left. One that cannot be built is set aside with the reason, as is what reads it."""
        if self._left is None:
            return
        (definitions, stale), self._left = self._left, None
        try:
            self._complete(definitions, stale, stale)
        except Exception as error:
            what = error.what if isinstance(error, HeadgateError) else str(error)
            if not self.is_stopped:
                _LOGGER.exception("flows could not be built after the opening")
            for plan in definitions.plans:
                if plan.name.casefold() in self._flows.unbuilt:
                    problem = f"flow {plan.name} could not be built: {what}"
                    self._set_aside(plan, FlowFailed(problem, where=plan.flow.where, hint=_BUILD_AGAIN))

    def stop(self) -> None:
        """Nothing more is built; what is being built ends with the flow that it is at."""
        self.is_stopped = True

    def _delete_former(self) -> None:
        """Deletes what was stored of flows before their cuts moved: jobs from before are not readable after an opening."""
        for record in [each for each in self._journal.records.flows.values() if each.former]:
            for path in record.former:
                self._tables.folder(path).delete_folder()
            self._journal.record([(FLOW, replace(record, former=()).body())])

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
        flow = self._flows.get(name).plan
        if flow.entry.is_versioned:
            raise DefiniteError(
                f"{name} keeps history, which cannot be made again from current rows",
                where=flow.flow.where,
                hint=f"if its source was not followed: `headgate refresh --table {flow.tables_read[0]}`; if its files are"
                " damaged, restore a backup, or declare the dimension under another name",
            )
        again = {flow.name}
        for running in self._flows:
            if not again.isdisjoint(running.plan.tables_read):
                again.add(running.plan.name)
        self._define(self._declared, again)

    def move(self, name: str, cut: Cut | None) -> None:
        """Stores a flow's results behind other operators, or its whole result (None); earlier jobs are read from where they are."""
        self.take(self.plan(cuts={self._flows.get(name).plan.name: cut}))

    def declare(self, name: str, sql: str) -> None:
        """Adds a program's view, or replaces it."""
        self._define({**self._declared, name.casefold(): (name, sql)})

    @property
    def declared(self) -> Mapping[str, str]:
        """The queries of programs' flows, by name."""
        return dict(self._declared.values())

    def redeclare(self, flows: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Adds, replaces or (None) archives several of programs' views at once; with `dry_run` only raises mistakes."""
        kept = {place: found for place, found in self._declared.items() if flows.get(found[0], "") is not None}
        given = {name.casefold(): (name, text) for name, text in flows.items() if text is not None}
        definitions = self.plan({**kept, **given})
        if not dry_run:
            self.take(definitions, ())

    def drop(self, name: str) -> None:
        """Archives a program's flow."""
        if name.casefold() not in self._declared:
            raise DefiniteError(f"no program declared a flow {name}", hint="remove a project file's flow from its file")
        self._define({place: found for place, found in self._declared.items() if place != name.casefold()})

    def _define(self, declared: Declared, again: Collection[str] = ()) -> None:
        self.take(self.plan(declared), again)

    def plan(
        self,
        declared: Declared | None = None,
        files: Sequence[Path] | None = None,
        cuts: Mapping[str, Cut | None] = MappingProxyType({}),
    ) -> Definitions:
        """The flows of the files and of programs, by default those that there are, planned; see `DefinitionReader.plan`."""
        return self._reader.plan(self._declared if declared is None else declared, self._declared, files, cuts)

    def take(self, definitions: Definitions, again: Collection[str] = ()) -> None:
        """Makes these flows the warehouse's: opens, builds, replaces and archives as needed.

        What is replaced answers until everything that takes its place is built; then all of it changes at once. Stages go on
        meanwhile, unless there are procedures, whose zones must not be ahead of each other.
        """
        self.build_left()
        with self._executor.paused() if self._procedures else nullcontext():
            stale, renewed = self._open_kept(definitions, again)
            self._complete(definitions, stale, renewed - set(again))

    def _open_kept(self, definitions: Definitions, again: Collection[str]) -> tuple[set[str], set[str]]:
        """Opens the flows that need not be built; gives the names of those that must be, and which of them are built again as they were."""
        plans = definitions.plans
        # Flows that were damaged, or over something damaged, are tried again.
        self._flows.take_back()
        stale = {plan.name for plan in plans if plan.name in again or self.is_stale(plan)}
        renewed = set(again)
        """Flows whose definition is as it was: what fails when such a flow is built says nothing against the definition."""
        opened = self._open_all(
            [plan for plan in plans if plan.name not in stale and self._flows.find(plan.name) is None]
        )
        with self._executor.paused():
            for plan in plans:
                if self._is_over_damaged(plan):
                    stale.discard(plan.name)
                elif plan.name not in stale and not self._keep_whole(plan, definitions, renewed, opened):
                    stale.add(plan.name)
                    renewed.add(plan.name)
            self._procedures.open_late()
        return stale, renewed

    def _complete(self, definitions: Definitions, stale: Collection[str], aside: Collection[str]) -> None:
        """Builds the stale flows and archives those that are gone. Of flows in `aside`, one that cannot be built is set aside."""
        plans = definitions.plans
        over_replaced = [stage.name for stage in self._procedures.over_flows() if stage.procedure.on in stale]
        try:
            if stale or self._procedures.unbuilt:
                job, failures = self._bring_inputs(plans, stale, over_replaced)
                self._procedures.build(job, failures)
                self._build_all(definitions, stale, aside, job, failures)
                self._procedures.begin_anew(over_replaced)
                self._procedures.open_late()
                self._procedures.build(job, failures)
        finally:
            self._flows.end_building()
            self._builder.end()
        self._procedures.require_all()
        live = {plan.name for plan in plans}
        gone = self.gone(live)
        if gone:
            self._journal.record([(FLOW_ARCHIVED, {"name": name}) for name in gone])
        with self._executor.paused():
            for name in gone:
                self._flows.remove(name)
            self._flows.order(plan.name for plan in plans)
        self._declared, self.disputed = dict(definitions.declared), definitions.disputed
        self.analyses.keep_used()

    def gone(self, live: Collection[str]) -> list[str]:
        """The flows of the ledger that are not among the live ones."""
        return [
            name for name, record in self._journal.records.flows.items() if not record.is_archived and name not in live
        ]

    def bring(self, tables: Collection[str], job: JobId, leave: Collection[str] = ()) -> Sequence[BaseException]:
        """Brings tables to a job, as far as that is possible; where no stage may run, all but those to leave, in this thread.

        Gives why tables lag behind.
        """
        if self._executor.is_paused:
            self._executor.run_here(job, leave)
        else:
            self._executor.settle(tables, job)
        return all_failures(self._tables, self._executor, self._replicas)

    def _bring_inputs(
        self, plans: Iterable[FlowPlan], stale: Collection[str], leave: Collection[str]
    ) -> tuple[JobId, Sequence[BaseException]]:
        """Brings what stale flows and new procedures read to the newest job; what is to be replaced stays where it is."""
        read = {name for plan in plans if plan.name in stale for name in plan.tables_read if name not in stale}
        read |= self._procedures.read_by_unbuilt()
        # What is stored elsewhere from then on has all jobs up to there.
        moved = {plan.name for plan in plans if plan.name in stale and self._is_moved(plan)}
        read |= moved
        replaced = [
            stage.name
            for name in {*stale} - moved
            if (old := self._flows.find(name)) is not None
            for stage in old.all_stages
        ]
        known = [name for name in read if self._tables.find_damaged(name) is None]
        with self._journal.lock:
            job = self._journal.chain.newest
            self._flows.begin_building(known, job)
        unloaded = {stage.name for stage in self._flows.needed(known)} & self._flows.waiting_for_rows()
        if unloaded:
            with self._executor.paused():
                self._replicas.pass_unloaded(unloaded, job)
        return job, self.bring(known, job, [*replaced, *leave, *self._procedures.unbuilt])

    def _build_all(
        self,
        definitions: Definitions,
        stale: Collection[str],
        aside: Collection[str],
        job: JobId,
        failures: Sequence[BaseException],
    ) -> None:
        """Builds the stale flows. One that replaces none, and reads none that is replaced, counts at once; all others count
        together: a flow without the changes that its readers lack must not be theirs."""
        replacing: list[BuiltFlow] = []
        records = self._journal.records.flows
        for plan in definitions.plans:
            if plan.name not in stale or self._is_over_damaged(plan):
                continue
            if self.is_stopped:
                raise DefiniteError("the warehouse was closed", hint="open it again")
            try:
                built = self._builder.build_or_defer(
                    plan, definitions, job, failures, self._flows.find(plan.name) is not None
                )
            except FlowFailed as failure:
                if plan.name not in aside or self.is_stopped:
                    raise
                advice = failure.advice or _BUILD_AGAIN
                self._set_aside(plan, FlowFailed(failure.what, where=failure.where, hint=advice))
                continue
            waits = {each.flow.plan.name for each in replacing}
            if self._replaces_none(plan) and waits.isdisjoint(plan.tables_read):
                self._count([built], job)
            else:
                replacing.append(built)
        # What they read may begin anew: they are built when they can be.
        failed = [
            replace(records[plan.name], fingerprint="")
            for plan in self._flows.aside
            if plan.name in aside and plan.name in records
        ]
        self._count(replacing, job, [(FLOW, record.body()) for record in failed])

    def _replaces_none(self, plan: FlowPlan) -> bool:
        """Whether nothing of the flow can be read, and all that reads it has to be built as well."""
        record = self._journal.records.flows.get(plan.name)
        is_new = record is None or record.is_archived
        return is_new or (self._flows.find(plan.name) is None and self.is_stale(plan))

    def _count(self, built: Sequence[BuiltFlow], job: JobId, more: Entries = ()) -> None:
        """Makes flows durable in one step; from then on they answer."""
        if built or more:
            tables = [(found, job) for each in built for table in each.flow.tables() for found in table.physical()]
            entries = [entry for each in built for entry in self._entries(each)]
            self._materializer.checkpoint(tables, [*entries, *more])
            with self._executor.paused():
                for each in built:
                    self._flows.add(each.flow)

    def _entries(self, built: BuiltFlow) -> list[tuple[str, dict[str, Any]]]:
        """The flow's record; arrangements of the tables that its new ones replace are let go of."""
        names = {table.name for table in built.flow.tables()}
        record, old = built.record, self._flows.find(built.flow.plan.name)
        before = self._journal.records.flows.get(record.name)
        former = () if before is None else before.former
        if old is not None and self._flows.has_earlier_jobs(old, built.flow):
            former += tuple(self._flows.paths(old))
        record = replace(record, former=former)
        stale = [record for record in self._journal.records.arrangements.values() if record.table in names]
        forgotten = [(ARRANGEMENT, replace(record, columns=frozenset()).body()) for record in stale]
        gaps = [
            (GAPS, {"table": self._tables.path(table.versioned), "gaps": [gap.body() for gap in table.gaps.open]})
            for table in built.flow.tables()
            if table.gaps.open
        ]
        return [(FLOW, record.body()), *forgotten, *gaps]

    def _is_moved(self, plan: FlowPlan) -> bool:
        old = self._flows.find(plan.name)
        return old is not None and old.plan.definition == plan.definition and old.plan.cut != plan.cut

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
                return self._builder.open(plan, self._journal.records.flows[plan.name].generation, NO_JOB)
            except CorruptWarehouse as damage:
                return damage

        with ThreadPoolExecutor(OPENING_THREADS, "opening") as pool:
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
            self._flows.add(found)
        else:
            self._flows.get(plan.name).plan = plan
        record, text = self._journal.records.flows[plan.name], definitions.text_of(plan)
        if record.text != text:
            self._journal.record([(FLOW, replace(record, text=text).body())])
        return True

    def _set_aside(self, plan: FlowPlan, damage: DefiniteError) -> None:
        with self._executor.paused():
            self._flows.set_aside(plan, damage)
