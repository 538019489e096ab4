"""Ranges of a large load are dealt to tasks on demand or in turn; tasks here are threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.capture.events import row_schema
from headgate.capture.ranges import Stamp
from headgate.config.scaling import Distribution
from headgate.runtime.sources.spark_ranges import RangesShare
from tests.waiting import PATIENCE

SCHEMA = row_schema(pa.schema([("id", pa.int64())]))
COUNT = 9


class Reads:
    """Notes who read what; whoever reads range 0 waits until all others were read, or `gives_up`."""

    def __init__(self, *, gives_up: bool = False) -> None:
        self.read: dict[int, str] = {}
        self.others_read = threading.Event()
        self._gives_up = gives_up

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        if number == 0 and self._gives_up:
            self._gives_up = False
            raise ConnectionError("the executor is gone")
        if number == 0:
            assert self.others_read.wait(PATIENCE)
        self.read[number] = threading.current_thread().name
        if len(self.read) == COUNT - 1:
            self.others_read.set()
        yield pa.record_batch([[number], [1], [[]], [0]], schema=SCHEMA)


def share(place: Path, reads: Reads, distribution: Distribution, tasks: int = 2) -> RangesShare[int]:
    return RangesShare(tuple(range(COUNT)), reads, Stamp(1, 0), str(place), tasks, distribution)  # type: ignore[arg-type]


def whole(place: Path) -> list[int]:
    return sorted(int(path.name.split("-")[0]) for path in place.glob("*.whole"))


def test_on_demand_who_is_free_takes_the_next_range(tmp_path: Path) -> None:
    reads = Reads()
    task = share(tmp_path, reads, "on demand")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(task, [[0], [1]]))
    assert whole(tmp_path) == list(range(COUNT))
    slow = reads.read.pop(0)
    assert slow not in reads.read.values() and len(set(reads.read.values())) == 1


def test_round_robin_every_task_has_its_own_ranges(tmp_path: Path) -> None:
    reads = Reads()
    reads.others_read.set()
    task = share(tmp_path, reads, "round robin")
    task([1])
    assert whole(tmp_path) == [1, 3, 5, 7]
    task([0])
    assert whole(tmp_path) == list(range(COUNT))


@pytest.mark.parametrize("distribution", ["on demand", "round robin"])
def test_a_task_that_is_tried_again_reads_what_it_had_begun(tmp_path: Path, distribution: Distribution) -> None:
    reads = Reads(gives_up=True)
    reads.others_read.set()
    task = share(tmp_path, reads, distribution)
    with pytest.raises(ConnectionError):
        task([0])
    task([1])
    assert 0 not in whole(tmp_path)
    task([0])
    assert whole(tmp_path) == list(range(COUNT))
