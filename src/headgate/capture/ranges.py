"""Reading the ranges of a load: several at a time, somewhere, in bounded memory.

    few rows     threads of this process: read(range) ──► batches of event rows, in the order in which they are there
    many rows    others (`LargeLoads`): read(range) ──► a file of events for each range; only its name comes back

Ranges and `read` can be pickled, so that `read` may run in another process or on another machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Protocol, TypeVar

import pyarrow as pa

from headgate.capture.events_file import EventsFile

Range = TypeVar("Range")
Read = Callable[[Range], Generator[pa.RecordBatch, None, None]]
Batches = Generator[tuple[Range, pa.RecordBatch], None, None]

THREADS = 4
_LOOK_SECONDS = 0.05


RANGE_BITS = 32
"""A range has fewer rows than two to this power: its events are numbered from its own number, shifted, on."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a transaction gives to its events."""

    position: int
    commit_at: int
    """In microseconds since 1970."""


class ReadRanges(Protocol):
    """Has `read` run on every range; the generator ends, or is closed, only when nothing runs any more."""

    def __call__(
        self, ranges: Sequence[Range], read: Read[Range], stamp: Stamp, spool: Path, files: Path
    ) -> Generator[tuple[Range, EventsFile], None, None]:
        """The files of events, each on the disk in `files` when it is given; `spool` is emptied by its owner after a crash."""
        ...


@dataclass(frozen=True, slots=True)
class LargeLoads:
    """What reads tables that together are larger than some bytes."""

    run: ReadRanges
    beyond: int


def in_threads(ranges: Sequence[Range], read: Read[Range]) -> Batches[Range]:
    """Reads in this process, without files."""
    waiting = list(reversed(ranges))
    found: Queue[tuple[Range, pa.RecordBatch] | BaseException] = Queue(THREADS)
    stopped = threading.Event()

    def work() -> None:
        try:
            while waiting and not stopped.is_set():
                try:
                    taken = waiting.pop()
                except IndexError:
                    return
                with closing(read(taken)) as batches:
                    for rows in batches:
                        if not hand_over((taken, rows)):
                            return
        except BaseException as error:
            hand_over(error)

    def hand_over(result: tuple[Range, pa.RecordBatch] | BaseException) -> bool:
        while not stopped.is_set():
            try:
                found.put(result, timeout=_LOOK_SECONDS)
                return True
            except Full:
                continue
        return False

    threads = [threading.Thread(target=work, name="load", daemon=True) for _ in range(min(THREADS, len(ranges)))]
    try:
        for thread in threads:
            thread.start()
        while True:
            alive = any(thread.is_alive() for thread in threads)
            try:
                result = found.get(timeout=_LOOK_SECONDS if alive else 0)
            except Empty:
                if not alive:
                    return
                continue
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stopped.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
