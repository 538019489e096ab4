"""The elastic queue: parts of transactions, batches by reference, partitions that split and merge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.capture.block_writer import BlockWriter
from headgate.capture.elastic.log import Batch, ElasticLog
from headgate.capture.locallog import LocalLog
from headgate.capture.places import read_rows
from headgate.capture.segments import list_segments
from headgate.errors import DefiniteError, StorageFull, TransactionError
from tests.capture.test_blocks import append, blocks_of, events, rows
from tests.capture.test_streamlog import largest_file

START = datetime(2024, 1, 1, tzinfo=UTC)


def ids(batch: Batch, table: str = "t") -> dict[int, list[int]]:
    """The ids of a table's rows per partition, read as a task reads them."""
    found: dict[int, list[int]] = {}
    for partition, tables in batch.items():
        if table not in tables:
            continue
        for place in tables[table].frames:
            with Path(place.segment).open("rb") as segment:
                found.setdefault(partition, []).extend(read_rows(place, segment.fileno())["id"].to_pylist())
        for file in tables[table].files:
            found.setdefault(partition, []).extend(pq.read_table(file.path)["id"].to_pylist())
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


def test_a_transaction_exists_when_all_its_parts_are_there(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    writer = BlockWriter(log.open_segment)
    log.put({"t": rows(1, 2)}, "load", 0)
    log.offer("load", 2, blocks_of(writer, t=rows(5)))
    with pytest.raises(TransactionError, match=r"has 2 parts, and 3 were announced.*put part 1"):
        log.commit("load", 3, START)
    assert (log.end, events(log)) == (0, [])
    log.put({"t": rows(3, 4), "u": rows(9, first=2)}, "load", 1)
    assert log.commit("load", 3, START).rows == {"t": 5, "u": 1}
    assert events(log) == [(1, 0, 1), (1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 5, 5)]
    assert events(log, "u") == [(1, 4, 9)]
    with pytest.raises(TransactionError, match="has 0 parts"):
        log.commit("load", 3, START)
    writer.close()
    log.close()


def test_a_part_that_is_put_again_replaces_the_one_before(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    log.put({"t": rows(1)}, "a", 0)
    log.put({"t": rows(2)}, "b", 0)
    log.put({"t": rows(3)}, "a", 0)
    log.abandon("b")
    log.commit("a", 1, START)
    with pytest.raises(TransactionError, match="has 0 parts"):
        log.commit("b", 1, START)
    assert events(log) == [(1, 0, 3)]
    log.close()


def test_only_later_blocks_are_spread_anew(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    fill(log, 8)
    [left, right] = log.split(1)
    assert (left.since, right.since) == (8, 8)
    fill(log, 32)
    assert set(ids(log.next_batch(0, 8))) == {1}
    found = ids(log.next_batch(8, 40))
    assert set(found) == {left.id, right.id}
    assert sorted(number for each in found.values() for number in each) == list(range(9, 41))
    assert all(len(each) > 10 and each == sorted(each) for each in found.values())
    merged = log.merge(left.id, right.id)
    fill(log, 4)
    assert ids(log.next_batch(40, 44)) == {merged.id: [41, 42, 43, 44]}
    assert [position for position, _, _ in events(log)] == list(range(1, 45))
    log.close()
    log = ElasticLog(tmp_path)
    assert [each.id for each in log.partitions.found] == [merged.id]
    fill(log, 1)
    assert set(ids(log.next_batch(0, 45))) == {1, left.id, right.id, merged.id}
    log.close()


def test_partitions_grow_with_what_waits_and_shrink_when_it_was_read(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path, partition_bytes=20_000, most_partitions=4)
    sizes = []
    for _ in range(6):
        fill(log, 60)
        sizes.append(len(log.partitions))
    # The daughters of the first split do not split before they were read.
    assert sizes == [2] * 6
    log.next_batch(0, log.end)
    assert [load.bytes for load in log.loads] == [0, 0]
    for _ in range(6):
        fill(log, 60)
    assert len(log.partitions) == 4
    log.next_batch(0, log.end)
    for _ in range(8):
        fill(log, 1)
        log.next_batch(log.trimmed, log.end)
        log.trim(log.end)
    assert len(log.partitions) == 1
    log.close()


def test_a_batch_can_leave_out_blocks_without_the_keys(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    writer = BlockWriter(log.open_segment)
    for number in range(5):
        append(log, blocks_of(writer, t=rows(10 * number, 10 * number + 9)))
    log.append(6, START + timedelta(days=1), {"t": rows(1000)})
    assert ids(log.next_batch(0, 6, (19, 25))) == {1: [10, 19, 20, 29, 1000]}
    assert ids(log.next_batch(0, 6, ("a", "b"))) == ids(log.next_batch(0, 6))
    writer.close()
    log.close()


def test_a_batch_has_what_no_partition_has(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    log.append(1, START, {"t": rows(1)})
    log.close()
    log = ElasticLog(tmp_path, transaction_bytes=1000)
    log.append(2, START, {"t": rows(*range(100))})
    log.append(3, START, {"t": rows(3), "u": rows(4)})
    assert ids(log.next_batch(0, 3)) == {0: [1, *range(100)], 1: [3]}
    assert ids(log.next_batch(1, 2)) == {0: list(range(100))}
    assert ids(log.next_batch(0, 3), "u") == {1: [4]}
    log.close()


def test_a_put_that_fails_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    log.put({"t": rows(1)}, "a", 0)
    with largest_file(3000), pytest.raises(StorageFull):
        log.put({"t": rows(2), "u": rows(*range(1000))}, "a", 1)
    log.put({"t": rows(3)}, "a", 1)
    log.commit("a", 2, START)
    assert events(log) == [(1, 0, 1), (1, 1, 3)]
    assert events(log, "u") == []
    log.close()


def test_a_damaged_note_of_the_partitions_costs_nothing(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path)
    log.split(1)
    fill(log, 8)
    log.close()
    (tmp_path / "partitions").write_bytes(b"{}")
    log = ElasticLog(tmp_path)
    assert len(log.partitions) == 1
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
