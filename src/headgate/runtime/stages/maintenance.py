"""Maintenance: brings tables from their own job to a newer one, stage by stage, in the order of the graph.

All closed jobs that wait run as one batch, of any number of rows: a stage takes one of very many rows in files (`ways`). It applies a
batch to its tables whole or not at all. When one fails, its batch is halved until the failing job stands alone: earlier
jobs are complete, that job is named, stages that do not depend on it go on. A full disk or a damaged file is not the
flow's failure: it ends the run and is raised as what it is.

A view can go on where a later job's data heal what failed: it skips to that job, and its rows between are not to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.dataflow.flow import Flow
from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse, FlowFailed, HeadgateError, HistoryLost, TransientError
from headgate.ranges.range_map import Ranges
from headgate.runtime.spark.problems import flow_problem
from headgate.runtime.spark.retrying import is_transient, retried
from headgate.runtime.stages.batch import Batch, BatchFactory
from headgate.runtime.stages.procedures import CallFailed
from headgate.runtime.stages.stage import Stage, runs_whole, steps, within
from headgate.runtime.stages.view_stage import ViewStage
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spark_errors import condition_of, reason_of
from headgate.warehouse.storage import Folder


class SparkTrouble(TransientError):
    """Spark lost what it worked with, more than once in a row."""


def run_stages(
    stages: Sequence[Stage],
    upto: JobId,
    batches: BatchFactory,
    flow_of: Callable[[Stage], Flow | None],
    others: Iterable[Stage] = (),
) -> dict[str, dict[int, BaseException]]:
    """Advances every stage to the job, or as far as its inputs advance; gives the failures by stage and range.

    `others` are stages that stay where they are.
    """
    failures: dict[str, dict[int, BaseException]] = {}
    behind: dict[str, JobId] = {stage.name: stage.target.through for stage in others}
    with batches.open() as batch:
        for stage in stages:
            reach = min([upto, *(behind[name] for name in stage.inputs if name in behind)])
            failed: dict[int, BaseException] = {}
            for ranges, end in steps(stage, stage.target.ranges, reach, failed):
                try:
                    failed |= advance_ranges(stage, ranges, end, batch, flow_of(stage))
                except (CorruptWarehouse, HistoryLost) as failure:
                    failed |= dict.fromkeys(ranges, failure)
            if failed:
                failures[stage.name] = failed
            if stage.target.through < upto:
                behind[stage.name] = stage.target.through
    return failures


def advance_ranges(
    stage: Stage, ranges: Ranges, upto: JobId, batch: Batch, flow: Flow | None
) -> dict[int, BaseException]:
    """Brings ranges of a stage to a job together, or where that fails on the data each by itself; gives why some failed."""
    try:
        advance(within(stage, ranges), upto, batch, flow)
        return {}
    except FlowFailed as failure:
        if len(ranges) == 1 or runs_whole(stage):
            return dict.fromkeys(ranges, failure)
    failures: dict[int, BaseException] = {}
    for number in sorted(ranges):
        part = within(stage, frozenset({number}))
        try:
            if part.target.through < upto:
                advance(part, upto, batch, flow)
        except FlowFailed as failure:
            failures[number] = failure
    return failures


def advance(stage: Stage, upto: JobId, batch: Batch, flow: Flow | None) -> None:
    """Brings one stage to a job; a transient failure is tried again, a definite one is brought down to its job."""
    try:
        _advance(stage, upto, batch, flow)
    except FlowFailed:
        if not isinstance(stage, ViewStage) or not _skipped(stage, batch):
            raise


def _skipped(stage: ViewStage, batch: Batch) -> bool:
    """Whether the view could go past the job that failed, as far as its inputs are."""
    upto = stage.furthest
    if stage.target.missing or upto - stage.target.through <= 1:
        return False
    try:
        with storage_problems(Folder.at(batch.factory.scratch.folder)):
            stage.skip(upto, batch)
    except (PySparkException, Py4JError, FlowFailed):
        return False
    return True


def _advance(stage: Stage, upto: JobId, batch: Batch, flow: Flow | None) -> None:
    try:
        with storage_problems(Folder.at(batch.factory.scratch.folder)):
            retried(lambda: stage.advance(upto, batch), f"stage {stage.name}")
    except (PySparkException, Py4JError, FlowFailed) as error:
        if is_transient(error):
            # Not the flow's failure: it is met again when someone asks again.
            raise SparkTrouble(
                f"Spark could not run {stage.name}: {reason_of(error).words}",
                hint="ask again when its executors are back",
            ) from error
        if isinstance(error, Py4JError) and condition_of(error) is None:
            batch.factory.sessions.health.require_after(error)
            raise
        after = stage.target.through
        if upto - after == 1 or isinstance(error, CallFailed) or stage.target.missing:
            raise _failure(stage, upto, flow, error) from error
        _advance(stage, JobId((after + upto) // 2), batch, flow)
        _advance(stage, upto, batch, flow)
    except ConnectionError as error:
        batch.factory.sessions.health.require_after(error)
        raise


def _failure(stage: Stage, job: JobId, flow: Flow | None, error: Exception) -> FlowFailed:
    if isinstance(error, HeadgateError):
        return FlowFailed(error.what, where=flow.where if flow is not None else None, hint=error.advice)
    why, where = flow_problem(error, flow)
    return FlowFailed(
        f"flow {stage.name} failed in job {job}: {why}",
        where=where,
        hint="correct the flow or the data, then `headgate resume`; earlier jobs are complete",
    )
