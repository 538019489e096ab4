"""Reading the ranges of a load: several at a time, somewhere, in bounded memory.

    ranges ──► read(range), each by itself ──► batches of event rows, in the order in which they are there

Ranges and `read` can be pickled, so that `read` may run in another process or on another machine. Threads of this
process are enough for most tables; whoever has more to offer passes it in as `LargeLoads`.
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

Range = TypeVar("Range")
Read = Callable[[Range], Generator[pa.RecordBatch, None, None]]
Batches = Generator[tuple[Range, pa.RecordBatch], None, None]

THREADS = 4
_LOOK_SECONDS = 0.05


class ReadRanges(Protocol):
    """Runs `read` on every range; the generator ends, or is closed, only when nothing runs any more."""

    def __call__(self, ranges: Sequence[Range], read: Read[Range], folder: Path) -> Batches[Range]:
        """`folder` may take files on the way; what a crash leaves there is deleted by the folder's owner."""
        ...


@dataclass(frozen=True, slots=True)
class LargeLoads:
    """What reads tables that together are larger than some bytes."""

    run: ReadRanges
    beyond: int


def in_threads(ranges: Sequence[Range], read: Read[Range], folder: Path | None = None) -> Batches[Range]:
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
