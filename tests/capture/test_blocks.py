"""Writers put blocks into segments of their own, and the owner of a stream log of either kind commits references to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.capture.block_writer import BLOCK_BYTES, BlockWriter, OpenSegment, Put
from headgate.capture.events import row_schema
from headgate.capture.frames import Block
from headgate.capture.locallog import LocalLog
from headgate.capture.streamlog import StreamLog
from headgate.errors import Fenced, HistoryLost, StorageFull, TransactionError
from tests.capture.logs import OpenLog
from tests.capture.test_streamlog import largest_file

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = row_schema(pa.schema([("id", pa.int64()), ("text", pa.string())]))


def rows(*ids: int, text: str = "x", first: int = 0) -> pa.Table:
    count = len(ids)
    return pa.table([ids, [text] * count, [1] * count, [[]] * count, range(first, first + count)], schema=SCHEMA)


def blocks_of(writer: BlockWriter, **tables: pa.Table) -> list[Put]:
    for table, found in tables.items():
        writer.put(table, found)
    return writer.finish(durable=True)


def append(log: StreamLog, *parts: Sequence[Put]) -> int:
    position = log.end + 1
    log.append_blocks(position, START + timedelta(seconds=position), parts, synced=True)
    log.sync()
    return position


def events(log: StreamLog, table: str = "t", after: int = 0) -> list[tuple[int, int, int]]:
    found = log.read(table, after, log.end).table
    if found is None:
        return []
    return list(zip(*(found[name].to_pylist() for name in ("__position", "__sequence", "id")), strict=True))


def test_rows_are_read_as_if_the_owner_had_written_them(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment)
    log.append(1, START, {"t": rows(1)})
    append(log, blocks_of(writer, t=rows(2, 3), u=rows(4, first=2)))
    log.append(3, START + timedelta(days=1), {"t": rows(5)})
    for _ in range(2):
        assert events(log) == [(1, 0, 1), (2, 0, 2), (2, 1, 3), (3, 0, 5)]
        assert events(log, "u") == [(2, 2, 4)]
        assert log.transactions(1, 2)[0].rows == {"t": 2, "u": 1}
        assert log.size("t", 1, 2).rows == 2
        assert log.loss is None
        writer.close()
        log.close()
        log = open_log(tmp_path)
    log.close()


def test_parts_by_several_writers_are_one_transaction_in_the_order_of_parts(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = BlockWriter(log.open_segment), BlockWriter(log.open_segment)
    later = blocks_of(second, t=rows(7, text="second"), u=rows(1, first=1))
    earlier = blocks_of(first, t=rows(7, 8, text="first"))
    append(log, earlier, later)
    assert events(log) == [(1, 0, 7), (1, 1, 8), (1, 2, 7)]
    assert events(log, "u") == [(1, 3, 1)]
    places = log.next_batch("t", 0, 1)
    assert sum(int(place.stamps.counts.sum()) for place in places.frames) == 3
    first.close()
    second.close()
    log.close()


def test_two_updates_of_a_key_by_two_writers_are_ordered_by_position(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = BlockWriter(log.open_segment), BlockWriter(log.open_segment)
    written = blocks_of(first, t=rows(7, text="written first"))
    append(log, blocks_of(second, t=rows(7, text="committed first")))
    append(log, written)
    found = log.read("t", 0, 2).table
    assert found is not None and found["text"].to_pylist() == ["committed first", "written first"]
    first.close()
    second.close()
    log.close()


def test_large_puts_are_cut_and_kept_in_order(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment)
    count = 3 * BLOCK_BYTES // 1024
    append(log, blocks_of(writer, t=rows(*range(count), text="x" * 1024)))
    assert len(log.next_batch("t", 0, 1).frames) > 2
    assert [each[1:] for each in events(log)] == [(number, number) for number in range(count)]
    writer.close()
    log.close()


def test_a_part_that_is_not_there_is_refused(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment)
    puts = blocks_of(writer, t=rows(1))
    assert writer.segment is not None
    segment = tmp_path / "blocks" / writer.segment
    os.truncate(segment, segment.stat().st_size - 1)
    with pytest.raises(TransactionError, match="a part of the transaction is not there"):
        append(log, puts)
    log.seal_segments([writer.segment])
    with pytest.raises(TransactionError, match="was closed"):
        append(log, puts)
    assert log.end == 0
    writer.close()
    log.close()


def test_a_dropped_transaction_leaves_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment, memory_bytes=0)
    writer.put("t", rows(1))
    assert writer.segment is not None
    size = (tmp_path / "blocks" / writer.segment).stat().st_size
    writer.drop()
    assert (tmp_path / "blocks" / writer.segment).stat().st_size < size
    append(log, blocks_of(writer, t=rows(2)))
    assert events(log) == [(1, 0, 2)]
    writer.close()
    log.close()


def test_rows_stay_in_memory_until_the_transaction_ends_or_they_are_many(tmp_path: Path) -> None:
    opened: list[OpenSegment] = []
    log = LocalLog(tmp_path)

    def open_segment() -> OpenSegment:
        opened.append(log.open_segment())
        return opened[-1]

    writer = BlockWriter(open_segment, memory_bytes=10_000)
    writer.put("t", rows(*range(10)))
    assert not opened
    writer.put("t", rows(*range(1000), first=10))
    assert opened
    [(_, block)] = writer.finish(durable=False)
    assert (block.rows, block.span) == (1010, 1010)
    writer.close()
    log.close()


def test_consumed_segments_are_deleted_once_nobody_writes_them(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment, segment_bytes=2000)
    names: list[str] = []
    for number in range(12):
        append(log, blocks_of(writer, t=rows(number, text="x" * 500)))
        if writer.segment not in names:
            assert writer.segment is not None
            log.seal_segments(names)
            names.append(writer.segment)
    assert len(names) > 3
    log.trim(6)
    left = {path.name for path in (tmp_path / "blocks").iterdir()}
    assert 0 < len(left) < len(names) and names[-1] in left
    assert [each[2] for each in events(log, after=6)] == list(range(6, 12))
    log.trim(log.end)
    assert {path.name for path in (tmp_path / "blocks").iterdir()} == {names[-1]}
    log.seal_segments([names[-1]])
    assert not list((tmp_path / "blocks").iterdir())
    assert log.held_bytes == 0
    writer.close()
    log.close()


def test_leftovers_of_dead_writers_are_removed_on_opening(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    kept, dead = BlockWriter(log.open_segment), BlockWriter(log.open_segment)
    append(log, blocks_of(kept, t=rows(1)))
    blocks_of(dead, t=rows(2))
    kept.close()
    dead.close()
    log.close()
    log = open_log(tmp_path)
    assert [path.name for path in (tmp_path / "blocks").iterdir()] == [
        place.segment.rpartition("/")[2] for place in log.next_batch("t", 0, 1).frames
    ]
    assert events(log) == [(1, 0, 1)]
    log.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
@pytest.mark.parametrize("opened_again", [True, False])
def test_damaged_blocks_are_a_loss(open_log: OpenLog, tmp_path: Path, damage: str, opened_again: bool) -> None:
    log = open_log(tmp_path)
    first, second = BlockWriter(log.open_segment), BlockWriter(log.open_segment)
    append(log, blocks_of(first, t=rows(1)))
    append(log, blocks_of(second, t=rows(2)))
    append(log, blocks_of(first, u=rows(3)))
    assert second.segment is not None
    segment = tmp_path / "blocks" / second.segment
    content = segment.read_bytes()
    if opened_again:
        log.close()
    match damage:
        case "flip":
            segment.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        case "cut":
            segment.write_bytes(content[:-9])
        case _:
            segment.unlink()
    if opened_again:
        log = open_log(tmp_path)
    with pytest.raises(HistoryLost, match=r"segment|damaged"):
        log.read("t", 0, 3)
    assert log.loss is not None and (log.loss.after, log.loss.upto) in [(1, 2), (1, 3)]
    assert events(log, "t", 3) == []
    log.settle_loss()
    assert events(log, "t") == [(1, 0, 1)]
    assert events(log, "u") == [(3, 0, 3)]
    for writer in (first, second):
        writer.close()
    log.close()


def test_a_commit_record_that_reached_the_disk_before_its_rows_was_never_made(
    open_log: OpenLog, tmp_path: Path
) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment)
    append(log, blocks_of(writer, t=rows(1)))
    mark = (tmp_path / "mark").read_bytes()
    for number in (2, 3):
        log.append_blocks(number, START + timedelta(seconds=number), [blocks_of(writer, t=rows(number))])
    assert writer.segment is not None
    segment = tmp_path / "blocks" / writer.segment
    [_, second, _] = log.next_batch("t", 0, 3).frames
    writer.close()
    log.close()
    with segment.open("r+b") as file:
        file.seek(second.offset + 9)
        file.write(bytes(100))
    (tmp_path / "mark").write_bytes(mark)
    log = open_log(tmp_path)
    assert (log.end, log.loss) == (1, None)
    assert events(log) == [(1, 0, 1)]
    log.append(2, START + timedelta(days=1), {"t": rows(4)})
    assert events(log) == [(1, 0, 1), (2, 0, 4)]
    log.close()


def test_a_full_disk_leaves_the_writer_usable(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = BlockWriter(log.open_segment)
    append(log, blocks_of(writer, t=rows(1)))
    with largest_file(5000), pytest.raises(StorageFull):
        blocks_of(writer, t=rows(*range(10_000)))
    writer.drop()
    append(log, blocks_of(writer, t=rows(2)))
    assert events(log) == [(1, 0, 1), (2, 0, 2)]
    writer.close()
    log.close()


def test_a_former_owner_commits_and_deletes_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    is_owner = True

    def verify() -> None:
        if not is_owner:
            raise Fenced("another process owns the warehouse")

    log = open_log(tmp_path, verify=verify)
    writer = BlockWriter(log.open_segment)
    append(log, blocks_of(writer, t=rows(1)))
    assert writer.segment is not None
    log.seal_segments([writer.segment])
    puts = blocks_of(BlockWriter(log.open_segment), t=rows(2))
    is_owner = False
    for act in (lambda: append(log, puts), log.open_segment, lambda: log.trim(1)):
        with pytest.raises(Fenced):
            act()
    assert (tmp_path / "blocks" / writer.segment).exists()
    log.close()


CHILD = """
import sys
from pathlib import Path
from headgate.capture.block_writer import BlockWriter, create_segment
from tests.capture.test_blocks import rows
path = Path(sys.argv[1])
writer = BlockWriter(lambda: create_segment(path.parent, path.name), memory_bytes=0)
writer.put("t", rows(1, 2))
print("put", flush=True)
sys.stdin.readline()
[(table, block)] = writer.finish(durable=True)
print(table, *(getattr(block, name) for name in ("segment", "offset", "length", "crc", "rows", "span", "salt")), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", ["before it ends the transaction", "afterwards"])
def test_a_writer_in_another_process_that_is_killed(open_log: OpenLog, tmp_path: Path, killed: str) -> None:
    """What it put and nobody committed is not there; what was committed is."""
    log = open_log(tmp_path)
    path = log.reserve_segment()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    assert child.stdout.readline() == "put\n"
    if killed == "afterwards":
        child.stdin.write("\n")
        child.stdin.flush()
        table, segment, *numbers = child.stdout.readline().split()
        append(log, [(table, Block(segment, *map(int, numbers)))])
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    log.seal_segments([path.name])
    expected = [(1, 0, 1), (1, 1, 2)] if killed == "afterwards" else []
    assert events(log) == expected
    assert path.exists() is bool(expected)
    log.close()
