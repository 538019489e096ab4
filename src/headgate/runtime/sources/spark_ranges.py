"""Reads the ranges of a large load as tasks of one Spark job.

    task       reads ranges one after the other, each into a file of events of its own ──► renamed when it is whole
    driver     moves whole files into the stream log's folder as they come; no row passes through it

On demand, a task that is free claims the next range by a link in the load's folder, which can be made once; a task that Spark
tries again has the number, and so the claims, of the one that failed. Round robin, every task has its own ranges.

What is to be read, and with which password, is inside the pickled task: neither Spark's pages nor its logs show it. Executors
need this package and the same storage.
"""

from __future__ import annotations

import pickle
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Generic

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from headgate.capture.events_file import EventsFile, EventsFileWriter
from headgate.capture.ranges import RANGE_BITS, Range, Read, Stamp
from headgate.config.scaling import Distribution
from headgate.delta.events import SEQUENCE
from headgate.errors import HeadgateError, TransientError
from headgate.runtime.spark.environment import private_files
from headgate.runtime.spark.pools import EXTRACT, use_pool

MOST_TASKS = 16
"""Sessions that a load may open at the source, however large the cluster is."""
_LOOK_SECONDS = 0.05
_ENDING_SECONDS = 30.0


class SparkRanges:
    """Implements `ReadRanges`."""

    def __init__(
        self,
        context: Callable[[], SparkContext],
        distribution: Distribution = "on demand",
        tasks: Callable[[], int] = lambda: MOST_TASKS,
    ) -> None:
        """`tasks` says how many may read at the same time; when that grows during a load on demand, more join it."""
        self._context = context
        self._distribution = distribution
        self._tasks = tasks
        self._began: dict[str, float] = {}
        """By load under way when it began, on the monotonic clock."""

    @property
    def under_way(self) -> timedelta | None:
        """For how long the oldest load has been read; None where none is."""
        began = min(tuple(self._began.values()), default=None)
        return None if began is None else timedelta(seconds=time.monotonic() - began)

    def __call__(
        self, ranges: Sequence[Range], read: Read[Range], stamp: Stamp, spool: Path, files: Path
    ) -> Generator[tuple[Range, EventsFile], None, None]:
        place = spool / f"load-{secrets.token_hex(4)}"
        place.mkdir(parents=True)
        tasks = self._wanted(ranges)
        share = RangesShare(tuple(ranges), read, stamp, str(place), tasks, self._distribution)
        jobs = [_SparkJob(self._context(), place.name, share, range(tasks))]
        seen: set[int] = set()
        self._began[place.name] = time.monotonic()
        try:
            jobs[0].start()
            while True:
                running = any(job.is_alive() for job in jobs)
                joining = range(jobs[-1].numbers.stop, self._wanted(ranges))
                if running and joining and share.has_unclaimed:
                    jobs.append(_SparkJob(self._context(), f"{place.name}-{joining.start}", share, joining))
                    jobs[-1].start()
                fresh = [path for path in place.glob("*.whole") if int(path.name.split("-")[0]) not in seen]
                for path in fresh:
                    number, rows = (int(part) for part in path.name.removesuffix(".whole").split("-"))
                    seen.add(number)
                    if rows:
                        size = path.stat().st_size
                        moved = path.replace(files / f"{stamp.position:020d}-{place.name}-{number}.parquet")
                        yield ranges[number], EventsFile(moved.name, rows, size)
                if not running:
                    break
                if not fresh:
                    time.sleep(_LOOK_SECONDS)
            for job in jobs:
                job.require_done(place, seen == set(range(len(ranges))))
        finally:
            for job in jobs:
                job.cancel()
            del self._began[place.name]
            # Python workers of cancelled tasks live a moment longer: under the old name they find nothing to write to.
            shutil.rmtree(place.rename(place.with_suffix(".ended")), ignore_errors=True)

    def _wanted(self, ranges: Sequence[Range]) -> int:
        return max(1, min(self._tasks(), MOST_TASKS, len(ranges)))


class _SparkJob(threading.Thread):
    """One Spark job in a thread of its own: the tasks with these numbers."""

    def __init__(self, context: SparkContext, name: str, share: RangesShare[Range], numbers: range) -> None:
        super().__init__(name=name, daemon=True)
        self._context = context
        self._share = share
        self.numbers = numbers
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            # The name is random, hence unique.
            self._context.setJobGroup(self.name, "reading source tables", interruptOnCancel=True)
            use_pool(self._context, EXTRACT)
            self._context.parallelize(self.numbers, len(self.numbers)).foreachPartition(self._share)
        except Exception as error:
            self._failure = error

    def cancel(self) -> None:
        if self.is_alive():
            with suppress(Py4JError, PySparkException):
                self._context.cancelJobGroup(self.name)
            self.join(_ENDING_SECONDS)

    def require_done(self, place: Path, complete: bool) -> None:
        if self._failure is None and complete:
            return
        for path in sorted(place.glob("*.error")):
            error = pickle.loads(path.read_bytes())
            assert isinstance(error, HeadgateError)
            raise error
        why = "a task lost its file" if self._failure is None else type(self._failure).__name__
        raise TransientError(
            f"Spark did not read the source's tables to the end: {why}",
            hint="look at the logs of Spark's executors; they need this package, the driver of the source and the storage",
        )


@dataclass(frozen=True, slots=True)
class RangesShare(Generic[Range]):
    """What one task does, on an executor."""

    ranges: tuple[Range, ...] = field(repr=False)
    read: Read[Range] = field(repr=False)
    stamp: Stamp
    place: str
    tasks: int
    distribution: Distribution = "on demand"

    def __call__(self, numbers: Iterable[int]) -> None:
        with private_files():
            for number in numbers:
                self._read(number)

    @property
    def has_unclaimed(self) -> bool:
        """Whether a task that joins finds something to read."""
        if self.distribution != "on demand":
            return False
        return sum(1 for _ in Path(self.place).glob("*.claim")) < len(self.ranges)

    def _read(self, number: int) -> None:
        mine = (
            self._claimed(number) if self.distribution == "on demand" else range(number, len(self.ranges), self.tasks)
        )
        for index in mine:
            try:
                self._copy(index)
            except HeadgateError as error:
                (Path(self.place) / f"{index}.error").write_bytes(pickle.dumps(error))
                raise RuntimeError(f"range {index} of a load could not be read") from None

    def _claimed(self, number: int) -> Iterator[int]:
        """Ranges that nobody has begun to read, and those that an earlier attempt of this task has."""
        for index in range(len(self.ranges)):
            claim = Path(self.place) / f"{index}.claim"
            try:
                claim.symlink_to(str(number))
            except FileExistsError:
                if str(claim.readlink()) != str(number):
                    continue
            yield index

    def _copy(self, index: int) -> None:
        """A file whose name tells how many rows it has; an empty one where there are none."""
        unfinished = Path(self.place) / f"{index}-{secrets.token_hex(4)}.unfinished"
        events = EventsFileWriter(str(unfinished), self.stamp.position, self.stamp.commit_at)
        with closing(self.read(self.ranges[index])) as batches:
            for rows in batches:
                numbers = np.arange(rows.num_rows, dtype=np.int64) + (((index + 1) << RANGE_BITS) + events.rows)
                place = rows.schema.get_field_index(SEQUENCE)
                numbered = rows.set_column(place, rows.schema.field(place), pa.array(numbers))
                events.add(pa.Table.from_batches([numbered]))
        if events.finish() is None:
            unfinished.touch()
        unfinished.rename(Path(self.place) / f"{index}-{events.rows}.whole")
