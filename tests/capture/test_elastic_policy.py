"""When partitions split and merge, as a pure function of what waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.capture.block_writer import SALTS, Salts
from headgate.capture.elastic.partitions import Partition, Partitions
from headgate.capture.elastic.policy import PartitionLoad, QueueDecision, QueueObservation, decide, deviation
from headgate.errors import DefiniteError


def observation(*loads: tuple[int, int], consumed: int = 10, most: int = 4) -> QueueObservation:
    """Each load is the bytes that wait, and the position at which the partition was made."""
    width = SALTS // len(loads)
    partitions = [Partition(n + 1, n * width, (n + 1) * width, since) for n, (_, since) in enumerate(loads)]
    found = [PartitionLoad(part, size, 1) for part, (size, _) in zip(partitions, loads, strict=True)]
    return QueueObservation(found, consumed, most, 1000)


@pytest.mark.parametrize(
    ("seen", "action", "partitions", "reason"),
    [
        (observation((1001, 0), consumed=0), "split", (1,), "partition 1 has 1,001 bytes waiting, more than 1,000"),
        (observation((1000, 0)), "stay", (), "1 partitions fit what waits"),
        (observation((900, 3), (2000, 3)), "split", (2,), "more than 1,000"),
        (observation((900, 3), (2000, 10)), "stay", (), "nothing put since it was made has been read yet"),
        (observation((2000, 3), (900, 3), most=2), "stay", (), "the most allowed"),
        (observation((900, 3), (100, 3), (100, 3)), "merge", (2, 3), "have 200 bytes a batch, less than 250"),
        (observation((900, 3), (100, 3), (100, 10)), "stay", (), "3 partitions fit what waits"),
        (observation((200, 3), (100, 3)), "stay", (), "2 partitions fit what waits"),
        (observation((0, 3), (0, 3)), "merge", (1, 2), "have 0 bytes a batch"),
    ],
)
def test_what_is_decided_and_why(seen: QueueObservation, action: str, partitions: tuple[int, ...], reason: str) -> None:
    found: QueueDecision = decide(seen)
    assert (found.action, found.partitions) == (action, partitions)
    assert reason in found.reason


def test_partitions_of_which_a_batch_took_much_lately_are_not_merged() -> None:
    left, right = observation((0, 3), (0, 3)).loads
    busy = QueueObservation([replace(left, taken=900), right], 10, 4, 1000)
    assert decide(busy).action == "stay"


def test_the_deviation_is_that_of_the_paper() -> None:
    assert deviation([10, 10, 10]) == 0
    assert deviation([0, 20]) == 100
    assert deviation([5, 15]) == 50
    assert deviation([]) == deviation([0, 0]) == 0


def test_partitions_always_hold_every_salt_once() -> None:
    partitions = Partitions().split(1, 5)
    assert [(each.id, each.low, each.high) for each in partitions.found] == [
        (2, 0, SALTS // 2),
        (3, SALTS // 2, SALTS),
    ]
    partitions = partitions.split(3, 6)
    assert [each.id for each in partitions.found] == [2, 4, 5]
    assert [partitions.of_salt(salt).id for salt in (0, SALTS // 2 - 1, SALTS // 2, SALTS - 1)] == [2, 2, 4, 5]
    merged = partitions.merge(4, 2, 7)
    assert [(each.id, each.since) for each in merged.found] == [(6, 7), (5, 6)]
    with pytest.raises(DefiniteError, match="no partition 4"):
        merged.split(4, 8)
    with pytest.raises(DefiniteError, match="not neighbours"):
        partitions.merge(2, 5, 7)
    with pytest.raises(DefiniteError, match="not neighbours"):
        partitions.merge(2, 2, 7)


def test_salts_fill_every_range_evenly() -> None:
    salts = Salts()
    counts = [0] * 16
    for _ in range(1600):
        counts[salts.next() * 16 // SALTS] += 1
    assert deviation(counts) < 5
