"""What Spark does for queries, in threads of its own: whoever asked can call it off, and stop waiting for what does not end.

    caller     waits for the result, the end of its time, or that it is called off
    thread     plans and reads; its Spark jobs carry the query's tag and are in the pool of queries

Work that was called off ends when Spark has ended its tasks, which are interrupted. What has not ended after ten seconds (a loop
inside one row, a plan that computes a huge constant) cannot be ended: Spark is given up as lost.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from headgate.errors import Cancelled, SparkLost
from headgate.runtime.spark.gates import GateClosed
from headgate.runtime.spark.health import SparkHealth
from headgate.runtime.spark.pools import QUERIES, use_pool
from headgate.runtime.spark.threads import DaemonThreads

ENDING_SECONDS = 10.0
"""How long work that was called off may take to end."""
_AGAIN_SECONDS = 0.2
"""Between two attempts to call it off: it may be about to begin a job."""
_LOOK_SECONDS = 0.02
_TAGS = "spark.job.tags"
"""The property that Spark keeps a job's tags in."""

Found = TypeVar("Found")
QueryExecution = Callable[[DataFrame, Future[None], float | None], AbstractContextManager[None]]
"""Inside the block that it gives, a frame may run; raises `GateClosed` when the query gives up before."""


def any_time(frame: DataFrame, cancelled: Future[None], until: float | None) -> AbstractContextManager[None]:
    return nullcontext()


class DeadlineExceeded(Exception):
    """The work was not done in time; it has ended."""


class Interruption:
    """One query's switch: turned by any thread, it ends the query's waiting and its work in Spark."""

    _numbers = itertools.count()
    """All of this process: random names take a call to the system each."""

    def __init__(self) -> None:
        self.tag = f"headgate-{os.getpid()}-{next(self._numbers)}"
        self.cancelled: Future[None] = Future()
        self._lock = threading.Lock()
        self._at_work = 0

    @property
    def is_set(self) -> bool:
        return self.cancelled.done()

    def set(self) -> None:
        """Ends what the query does now; without effect on an answer that nobody reads at the moment."""
        with self._lock:
            if self._at_work and not self.is_set:
                self.cancelled.set_result(None)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside the block there is something to end."""
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def check(self) -> None:
        if self.is_set:
            raise Cancelled("the query was cancelled")

    def wait(self, future: Future[Any], until: float | None = None) -> None:
        """Waits for a future. Raises `Cancelled`, or `DeadlineExceeded` at an instant of the monotonic clock."""
        left = None if until is None else max(0.0, until - time.monotonic())
        wait((future, self.cancelled), left, FIRST_COMPLETED)
        if not future.done():
            self.check()
            raise DeadlineExceeded


class Turn:
    """One thread at a time, which may take its turn again inside; a query that waits for its turn can be called off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Future[None] | None = None
        self._thread: int | None = None

    @contextmanager
    def taken(self, interruption: Interruption, until: float | None = None) -> Iterator[None]:
        """Has the turn inside the block. Raises `Cancelled`, or `DeadlineExceeded` at an instant of the monotonic clock, while waiting."""
        if self._thread == threading.get_ident():
            yield
            return
        ended: Future[None] = Future()
        while True:
            with self._lock:
                before = self._last
                if before is None or before.done():
                    self._last = ended
                    break
            interruption.wait(before, until)
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None
            ended.set_result(None)


class QueryWork:
    """May be used by many threads."""

    def __init__(self, context: SparkContext, health: SparkHealth, execution: QueryExecution = any_time) -> None:
        self._context = context
        self._health = health
        self._execution = execution
        self._is_local = (context.master or "").startswith("local")
        self._threads = DaemonThreads("spark-query", self._prepare)
        self._calls_off = DaemonThreads("spark-call-off")

    def run(
        self,
        work: Callable[[], Found],
        interruption: Interruption,
        until: float | None = None,
        frame: DataFrame | None = None,
        *,
        in_spark: bool = True,
    ) -> Found:
        """The work's result. Raises `Cancelled`, or `DeadlineExceeded` at an instant of the monotonic clock, once the work has ended,
        and `SparkLost` when it does not end. Work that runs a frame begins when the frame may run; work that is not `in_spark` has
        no jobs there that could be called off."""
        if frame is None:
            return self._run(work, interruption, until, in_spark)
        try:
            with self._execution(frame, interruption.cancelled, until):
                return self._run(work, interruption, until)
        except GateClosed:
            interruption.check()
            raise DeadlineExceeded from None

    def _run(
        self, work: Callable[[], Found], interruption: Interruption, until: float | None, in_spark: bool = True
    ) -> Found:
        interruption.check()
        self._health.require()
        future = self._threads.submit((lambda: self._tagged(work, interruption.tag)) if in_spark else work)
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            either: tuple[Future[Any], ...] = (future, interruption.cancelled)
            wait(either, left, FIRST_COMPLETED)
        except BaseException:
            # Ctrl-C in a program.
            self._calls_off.submit(lambda: self._called_off(interruption.tag))
            raise
        if not future.done():
            self._end(future, interruption.tag)
            interruption.check()
            raise DeadlineExceeded
        try:
            return future.result()
        except (Py4JError, OSError) as error:
            self._health.require_after(error)
            raise

    def _prepare(self) -> None:
        use_pool(self._context, QUERIES)
        self._context.setInterruptOnCancel(True)

    def _tagged(self, work: Callable[[], Found], tag: str) -> Found:
        self._context.addJobTag(tag)
        try:
            return work()
        finally:
            self._context.removeJobTag(tag)

    def _end(self, future: Future[Found], tag: str) -> None:
        """Calls the work off until it has ended, and its tasks with it: Spark forgets a job before its tasks have ended."""
        end = time.monotonic() + ENDING_SECONDS
        while (left := end - time.monotonic()) > 0:
            # Not in this thread: a Spark that hangs does not answer.
            tasks = self._calls_off.submit(lambda: self._called_off(tag))
            both: tuple[Future[Any], ...] = (future, tasks)
            if wait(both, min(left, _AGAIN_SECONDS)).not_done:
                continue
            if tasks.exception() is not None:
                self._health.require()
            elif tasks.result() == 0:
                return
            time.sleep(_LOOK_SECONDS)
        self._health.lose(f"what it does for a query could not be ended within {ENDING_SECONDS:.0f} s")
        self._health.require()
        raise SparkLost("Spark is being closed")

    def _called_off(self, tag: str) -> int:
        """Cancels the jobs; gives how many of their tasks still run. On a cluster, executors with such tasks are ended by Spark."""
        self._context.cancelJobsWithTag(tag)
        if not self._is_local:
            return 0
        assert self._context._jsc is not None
        root = self._context._jsc.sc().taskScheduler().rootPool()
        # Without fair scheduling there is one pool.
        pool = root.getSchedulableByName(QUERIES) or root
        return sum(
            tasks.runningTasks()
            for tasks in pool.schedulableQueue().toArray()
            if tag in (tasks.taskSet().properties().getProperty(_TAGS) or "")
        )
