"""Spark's executors, as many as are wanted.

    ClusterExecutors   asks the cluster's manager for a total and lets go of those that are idle. Tested with Spark's standalone
                       manager; Kubernetes and YARN take the same calls, untested.
    LocalSlots         Spark inside the driver's process: its slots are what they are.

`benchmarks.scaling_simulation` has a third one, whose executors come after a while.

Spark's own dynamic allocation asks for executors by the number of waiting tasks and cannot be told how many there may be once
it runs; two that ask for totals would undo each other's requests. So with scaling, headgate asks and dynamic allocation is off.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark import SparkContext

from headgate.errors import ConfigError
from headgate.scaling.supply import ExecutorSupply

_LOGGER = logging.getLogger(__name__)
_REASON = "headgate needs fewer executors"

SETTINGS = {
    "spark.dynamicAllocation.enabled": "false",
    # An executor that is let go hands over what others may still need of it.
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.rddBlocks.enabled": "true",
}
"""What Spark must be started with, so that executors can come and go."""


class LocalSlots:
    """All slots of this machine, always."""

    def __init__(self, context: SparkContext) -> None:
        self.slots = context.defaultParallelism
        self.running = self.most = 1

    def want(self, count: int) -> None:
        pass


class ClusterExecutors:
    """Executors of a cluster, each with `spark.executor.cores` slots."""

    def __init__(self, context: SparkContext) -> None:
        self._jvm: Any = context._jvm
        assert context._jsc is not None
        self._spark = context._jsc.sc()
        cores = context.getConf().get("spark.executor.cores", None)
        if cores is None:
            raise ConfigError(
                "scaling needs to know how many tasks an executor runs, and the Spark setting spark.executor.cores is missing",
                hint="give spark.executor.cores in the section spark of the project, such as 2",
            )
        self.slots = int(cores)
        self.most = None
        self._asked = 0
        self._leaving: set[str] = set()

    @property
    def running(self) -> int:
        return len(self._executors())

    def want(self, count: int) -> None:
        there = self._executors()
        self._leaving &= there.keys()
        remaining = {name: tasks for name, tasks in there.items() if name not in self._leaving}
        # Asked again while some are missing: a manager that was started anew does not know what it was asked for.
        if count != self._asked or len(remaining) < count:
            none = getattr(getattr(self._jvm, "scala.collection.immutable.Map$"), "MODULE$").empty()
            self._spark.requestTotalExecutors(count, 0, none)
            self._asked = count
        idle = [name for name, tasks in remaining.items() if tasks == 0]
        # The latest came last and has the least to hand over.
        idle.sort(key=lambda name: (len(name), name), reverse=True)
        for name in idle[: max(0, len(remaining) - count)]:
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(_REASON, self._jvm.scala.Option.empty())
        pairs = self._jvm.java.lang.reflect.Array.newInstance(self._jvm.java.lang.Class.forName("scala.Tuple2"), 1)
        self._jvm.java.lang.reflect.Array.set(pairs, 0, self._jvm.scala.Tuple2(name, info))
        # The total that was asked for holds: it is below what is there already.
        if self._spark.schedulerBackend().decommissionExecutors(pairs, False, False).size():
            self._leaving.add(name)
            _LOGGER.info("executor let go: executor=%s", name)

    def _executors(self) -> dict[str, int]:
        """By name how many tasks each runs."""
        summaries = self._spark.statusStore().executorList(True)
        found = (summaries.apply(place) for place in range(summaries.size()))
        return {each.id(): each.activeTasks() for each in found if each.id() != "driver"}


def executor_supply(context: SparkContext) -> ExecutorSupply:
    """What the context's master gives."""
    return LocalSlots(context) if (context.master or "").startswith("local") else ClusterExecutors(context)
