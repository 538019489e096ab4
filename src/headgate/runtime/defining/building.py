"""New flows filled from their inputs at a job, beside the flows that they replace.

Stages and queries go on meanwhile, so what a new flow reads is held at that job (`FlowSet.held`): until the flow counts, changes
since then stay readable, and nothing later becomes durable.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.dataflow.flow import MaterializedView
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import FlowFailed, HeadgateError
from headgate.runtime.flows.flows import FlowPlan, Planner, RunningFlow, open_flow
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.spark.problems import flow_problem
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import tables_of
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import FlowRecord
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import Tables
from headgate.warehouse.spark_errors import condition_of

_CANCELLED = "SPARK_JOB_CANCELLED"
Declared = Mapping[str, tuple[str, str]]
"""Views that programs declared: by the name in lower case, the name and the text of the query."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """All flows as files and programs define them at one moment, planned, each after those that it reads."""

    declared: Declared
    plans: tuple[FlowPlan, ...]
    planner: Planner
    fingerprints: Mapping[str, str]
    disputed: tuple[HeadgateError, ...] = ()
    """Flows that a program has and a file defines as well."""

    def text_of(self, plan: FlowPlan) -> str | None:
        """The text of a flow that a program declared."""
        return self.declared.get(plan.name.casefold(), (None, None))[1]


@dataclass(frozen=True, slots=True)
class BuiltFlow:
    """A flow that is filled; it counts when its record is in the ledger."""

    flow: RunningFlow
    record: FlowRecord


class Builder:
    """Opens flows and builds them, in the thread that changes the graph."""

    def __init__(
        self,
        tables: Tables,
        journal: Journal,
        batches: BatchFactory,
        materializer: Materializer,
        replicas: Replicas,
    ) -> None:
        self._stored = tables
        self._journal = journal
        self._batches = batches
        self._materializer = materializer
        self._replicas = replicas
        self._fresh: dict[str, StoredTable] = {}
        """Tables that are built and do not count yet, by the names that they will have."""
        self._tables = ChainMap(self._fresh, tables.by_name)

    def open(self, plan: FlowPlan, generation: int, through: JobId) -> RunningFlow:
        """The flow with its tables at their checkpoints, or new ones, empty at job `through`."""
        return open_flow(
            plan,
            generation,
            self._stored,
            self._tables,
            self._journal.records.checkpoints,
            through,
            self._replicas.stages.__getitem__,
            self._journal.chain.newest_commit_at,
        )

    def build_or_defer(
        self,
        plan: FlowPlan,
        definitions: Definitions,
        job: JobId,
        failures: Sequence[BaseException],
        is_replacing: bool,
    ) -> BuiltFlow:
        """Builds a flow. A new one whose query fails on the data of the job runs as written when it is read.

        Its definition is sound, and later data may heal it; it is built when the flows are read again.
        """
        text = definitions.text_of(plan)
        try:
            return self._build(plan, text, job, failures)
        except FlowFailed as failure:
            is_view = isinstance(plan.flow, MaterializedView) and plan.fragment is None
            condition = condition_of(failure.__cause__ or failure)
            if not is_view or is_replacing or condition is None or condition.startswith(_CANCELLED):
                raise
            why = f"{failure.what}; `headgate resume` builds it"
            return self._build(
                definitions.planner.plan_as_written(plan, why, definitions.fingerprints), text, job, failures
            )

    def end(self) -> None:
        """What was built counts, or is given up."""
        self._fresh.clear()

    def _build(self, plan: FlowPlan, text: str | None, job: JobId, failures: Sequence[BaseException]) -> BuiltFlow:
        """Fills a new flow from its inputs at a job."""
        if plan.entry.is_versioned:
            self._replicas.warn_of_missed_versions(plan.name, plan.tables_read[0])
        before = self._journal.records.flows.get(plan.name)
        generation = before.generation + 1 if before is not None else 1
        flow = self.open(plan, generation, JobId(job - 1))
        inputs = {name for stage in flow.stages for name in stage.inputs} - {table.name for table in flow.tables()}
        loading = [name for name in inputs if self._tables[name].has_unknown_rows]
        for name in loading if not all(isinstance(stage, ViewStage) for stage in flow.stages) else ():
            raise FlowFailed(
                f"flow {plan.name} cannot be built while {name} is being loaded range by range",
                where=plan.flow.where,
                hint="`headgate load` shows how far that is; then `headgate resume`",
            )
        for name in inputs if not loading else ():
            if self._tables[name].through < job:
                raise FlowFailed(
                    f"flow {plan.name} cannot be built while {name} lags behind",
                    where=plan.flow.where,
                    hint=str(next(iter(failures), "run its jobs first")),
                )
        try:
            with self._batches.open() as batch:
                for stage in flow.stages:
                    assert not isinstance(stage, ReplicaStage)
                    if loading:
                        # Each range is made when its inputs have it.
                        for table in tables_of(stage):
                            table.apply(None, job)
                            table.await_rows(f"{', '.join(loading)} is being loaded")
                        continue
                    stage.build(job, batch)
                    # Where an input has no rows yet, neither has the flow.
                    stage.target.skip_to(
                        max((self._tables[name].skipped_to(job) for name in stage.inputs), default=NO_JOB)
                    )
                self._materializer.commit([(found, job) for table in flow.tables() for found in table.physical()])
        except (PySparkException, Py4JError) as error:
            why, where = flow_problem(error, plan.flow)
            raise FlowFailed(f"flow {plan.name} could not be built at job {job}: {why}", where=where) from error
        flow.built_at = job
        self._fresh.update({table.name: table for table in flow.tables()})
        columns = plan.entry.schema.jsonValue() if plan.entry.is_versioned else None
        record = FlowRecord(
            plan.name, plan.fingerprint, generation, plan.entry.is_versioned, text, columns=columns, cut=plan.cut
        )
        return BuiltFlow(flow, record)
