"""Why tables lag behind."""

from __future__ import annotations

from headgate.errors import FlowFailed
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.tables.tables import Tables


def all_failures(tables: Tables, executor: Executor, replicas: Replicas) -> tuple[BaseException, ...]:
    """What failed when jobs last ran, and source tables that cannot be followed any further."""
    failed = [*tables.damaged.values(), *executor.failures.values()]
    known = {failure.what for failure in failed if isinstance(failure, FlowFailed)}
    return (*failed, *(each for each in replicas.stopped() if each.what not in known))
