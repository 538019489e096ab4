"""The elastic queue: parts of transactions, batches by reference, partitions that split and merge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.capture.elastic.log import ElasticLog
from headgate.capture.locallog import LocalLog
from headgate.capture.places import Places, read_rows
from headgate.capture.segments import list_segments
from headgate.errors import DefiniteError
from tests.capture.test_blocks import events, rows

START = datetime(2024, 1, 1, tzinfo=UTC)


def ids(batch: Places) -> dict[int, list[int]]:
    """The ids of a table's rows per partition, read as a task reads them; files belong to none (0)."""
    found: dict[int, list[int]] = {}
    for place in batch.frames:
        with Path(place.segment).open("rb") as segment:
            found.setdefault(place.partition, []).extend(read_rows(place, segment.fileno())["id"].to_pylist())
    for file in batch.files:
        found.setdefault(0, []).extend(pq.read_table(file.path)["id"].to_pylist())
    return found


def fill(log: ElasticLog, count: int, size: int = 1) -> None:
    for _ in range(count):
        position = log.end + 1
        given = {"t": rows(*[position] * size, text="x" * 1000)}
        log.append(position, START + timedelta(seconds=position), given)


def test_a_commit_record_is_metadata_only(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    log.append(1, START, {"t": rows(*range(1000), text="x" * 100)})
    log.keep(2, START, {"t": rows(*range(1000), text="x" * 100)})
    log.sync()
    log.append_group([(3, START), (4, START)], {"t": rows(1, 2, 3)}, {"t": [1, 2]})
    log.sync()
    assert list_segments(tmp_path)[0].stat().st_size < 2000
    assert [position for position, _, _ in events(log, after=2)] == [3, 4, 4]
    log.close()


def test_only_later_blocks_are_spread_anew(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    fill(log, 8)
    status = log.split(1)
    assert status.last_change == "split: partition 1, by command"
    [left, right] = log.partitions.found
    assert (left.since, right.since) == (8, 8)
    fill(log, 32)
    assert set(ids(log.next_batch("t", 0, 8))) == {1}
    found = ids(log.next_batch("t", 8, 40))
    assert set(found) == {left.id, right.id}
    assert sorted(number for each in found.values() for number in each) == list(range(9, 41))
    assert all(len(each) > 10 and each == sorted(each) for each in found.values())
    [merged] = log.merge(left.id, right.id).partitions
    fill(log, 4)
    assert ids(log.next_batch("t", 40, 44)) == {merged.id: [41, 42, 43, 44]}
    assert [position for position, _, _ in events(log)] == list(range(1, 45))
    log.close()
    log = ElasticLog(tmp_path)
    assert [each.id for each in log.partitions.found] == [merged.id]
    fill(log, 1)
    assert set(ids(log.next_batch("t", 0, 45))) == {1, left.id, right.id, merged.id}
    log.close()


def test_partitions_grow_with_what_waits_and_shrink_when_it_was_read(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path, partition_bytes=20_000, most_partitions=4)
    sizes = []
    for _ in range(6):
        fill(log, 60)
        sizes.append(len(log.partitions))
    # The daughters of the first split do not split before they were read.
    assert sizes == [2] * 6
    log.next_batch("t", 0, log.end)
    assert [load.bytes for load in log.loads] == [0, 0]
    for _ in range(6):
        fill(log, 60)
    assert len(log.partitions) == 4
    log.next_batch("t", 0, log.end)
    for _ in range(8):
        fill(log, 1)
        log.next_batch("t", log.trimmed, log.end)
        log.trim(log.end)
    assert len(log.partitions) == 1
    status = log.queue
    assert status.reason.startswith("stay: ") and status.last_change is not None
    assert status.last_change.startswith("merge: partitions ") and "bytes a batch" in status.last_change
    log.close()


def test_what_waits_is_behind_the_table_that_was_read_least_far(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    for number in range(1, 5):
        log.append(number, START, {"t": rows(1), "u" if number < 4 else "v": rows(2)})
    log.read("t", 0, 4)
    assert log.queue.consumed == 0, "u has rows that nobody read"
    log.read("u", 0, 2)
    assert log.queue.consumed == 0, "and so has v"
    log.next_batch("v", 0, 4)
    assert log.queue.consumed == 2
    log.read("u", 2, 4)
    assert (log.queue.consumed, log.loads[0].bytes) == (4, 0)
    log.append(5, START, {"t": rows(1)})
    assert log.loads[0].transactions == 1
    log.trim(5)
    assert log.queue.consumed == 5
    log.close()


def test_an_append_that_splits_writes_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = ElasticLog(tmp_path, partition_bytes=5000)
    with caplog.at_level("INFO", "headgate.capture.elastic.log"):
        fill(log, 10)
    assert len(log.partitions) == 2 and "split: partition 1 has" in caplog.text
    assert not (tmp_path / "partitions").exists()
    log.trim(1)
    assert (tmp_path / "partitions").exists()
    log.close()


def test_a_batch_has_what_no_partition_has(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    log.append(1, START, {"t": rows(1)})
    log.close()
    log = ElasticLog(tmp_path, transaction_bytes=1000)
    log.append(2, START, {"t": rows(*range(100))})
    log.append(3, START, {"t": rows(3), "u": rows(4)})
    assert ids(log.next_batch("t", 0, 3)) == {0: [1, *range(100)], 1: [3]}
    assert ids(log.next_batch("t", 1, 2)) == {0: list(range(100))}
    assert ids(log.next_batch("u", 0, 3)) == {1: [4]}
    log.close()


def test_a_damaged_note_of_the_partitions_costs_nothing(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    log.split(1)
    fill(log, 8)
    log.close()
    (tmp_path / "partitions").write_bytes(b"{}")
    log = ElasticLog(tmp_path)
    assert [each.id for each in log.partitions.found] == [4], "the ids that blocks have are not used again"
    assert len(events(log)) == 8
    log.close()


def test_a_log_of_either_kind_opens_as_the_other(tmp_path: Path) -> None:
    for kind in (LocalLog, ElasticLog, LocalLog, ElasticLog):
        log = kind(tmp_path)
        log.append(log.end + 1, START, {"t": rows(log.end)})
        log.close()
    log = ElasticLog(tmp_path)
    assert [position for position, _, _ in events(log)] == [1, 2, 3, 4]
    log.trim(3)
    assert [position for position, _, _ in events(log, after=3)] == [4]
    log.close()


def test_unknown_partitions_are_named(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    with pytest.raises(DefiniteError, match=r"no partition 7.*its partitions are 1"):
        log.split(7)
    with pytest.raises(DefiniteError, match="no partition 2"):
        log.merge(1, 2)
    log.close()
