"""Reads the ranges of a large load as tasks of one Spark job.

    task       reads its ranges one after the other, each into a file of its own ──► renamed when it is whole
    driver     takes whole files as they come, batch by batch, and deletes them

What is to be read, and with which password, is inside the pickled task: neither Spark's pages nor its logs show it. Executors
need this package and the same storage.
"""

from __future__ import annotations

import pickle
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from headgate.capture.ranges import Batches, Range, Read
from headgate.errors import HeadgateError, TransientError
from headgate.runtime.spark.environment import private_files

MOST_TASKS = 16
"""Sessions that a load may open at the source, however large the cluster is."""
_LOOK_SECONDS = 0.05
_ENDING_SECONDS = 30.0


class SparkRanges:
    """Implements `ReadRanges`."""

    def __init__(self, context: Callable[[], SparkContext]) -> None:
        self._context = context

    def __call__(self, ranges: Sequence[Range], read: Read[Range], folder: Path) -> Batches[Range]:
        place = folder / f"load-{secrets.token_hex(4)}"
        place.mkdir(parents=True)
        tasks = max(1, min(MOST_TASKS, len(ranges)))
        job = _Job(self._context(), place.name, _Share(tuple(ranges), read, str(place), tasks), tasks)
        seen: set[int] = set()
        try:
            job.start()
            while True:
                running = job.is_alive()
                fresh = [path for path in place.glob("*.arrow") if int(path.stem) not in seen]
                for path in fresh:
                    seen.add(int(path.stem))
                    taken = ranges[int(path.stem)]
                    for rows in _batches(path):
                        yield taken, rows
                    path.unlink(missing_ok=True)
                if not running:
                    break
                if not fresh:
                    time.sleep(_LOOK_SECONDS)
            job.require_done(place, seen == set(range(len(ranges))))
        finally:
            job.cancel()
            shutil.rmtree(place, ignore_errors=True)


class _Job(threading.Thread):
    """One Spark job in a thread of its own."""

    def __init__(self, context: SparkContext, name: str, share: _Share[Range], tasks: int) -> None:
        super().__init__(name=name, daemon=True)
        self._context = context
        self._share = share
        self._tasks = tasks
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            # The name is random, hence unique.
            self._context.setJobGroup(self.name, "reading source tables", interruptOnCancel=True)
            self._context.parallelize(range(self._tasks), self._tasks).foreachPartition(self._share)
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
class _Share(Generic[Range]):
    """What one task does, on an executor."""

    ranges: tuple[Range, ...] = field(repr=False)
    read: Read[Range] = field(repr=False)
    place: str
    tasks: int

    def __call__(self, numbers: Iterable[int]) -> None:
        with private_files():
            for number in numbers:
                self._read(number)

    def _read(self, number: int) -> None:
        for index in range(number, len(self.ranges), self.tasks):
            try:
                self._copy(index)
            except HeadgateError as error:
                (Path(self.place) / f"{index}.error").write_bytes(pickle.dumps(error))
                raise RuntimeError(f"range {index} of a load could not be read") from None

    def _copy(self, index: int) -> None:
        unfinished = Path(self.place) / f"{index}-{secrets.token_hex(4)}.unfinished"
        writer: pa.RecordBatchStreamWriter | None = None
        with unfinished.open("wb") as sink, closing(self.read(self.ranges[index])) as batches:
            for rows in batches:
                if writer is None:
                    options = pa.ipc.IpcWriteOptions(compression="lz4")
                    writer = pa.ipc.new_stream(sink, rows.schema, options=options)
                writer.write_batch(rows)
            if writer is not None:
                writer.close()
        unfinished.rename(Path(self.place) / f"{index}.arrow")


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file, one at a time; none of an empty one."""
    if path.stat().st_size:
        with path.open("rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader
