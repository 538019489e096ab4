"""Stream logs of each kind keep whole transactions in order, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.capture.events import row_schema
from headgate.capture.locallog import LocalLog
from headgate.capture.segments import list_segments
from headgate.capture.streamlog import StreamLog
from headgate.delta.changes import BEGINNING
from headgate.errors import ConfigError, CorruptWarehouse, StorageFull, TransactionError
from tests.capture.logs import OpenLog

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = row_schema(pa.schema([("id", pa.int64()), ("text", pa.string())]))


def rows(*texts: str, first: int = 0) -> pa.Table:
    count = len(texts)
    return pa.table(
        [list(range(count)), list(texts), [1] * count, [[]] * count, list(range(first, first + count))], schema=SCHEMA
    )


def fill(log: StreamLog, count: int, size: int = 3) -> None:
    for position in range(log.end + 1, log.end + 1 + count):
        log.append(position, START + timedelta(seconds=position), {"t": rows(*[f"{position}"] * size)})


def texts(log: StreamLog, after: int = 0, upto: int = 1 << 60, table: str = "t") -> list[str]:
    events = log.read(table, after, upto)
    found = [] if events.table is None else events.table["text"].to_pylist()
    for file in events.files:
        found += pq.read_table(file.path)["text"].to_pylist()
    return found


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Lets no file of this process grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_new_log_is_empty(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert (log.end, log.durable, log.trimmed, log.end_commit_at) == (0, 0, 0, None)
    assert log.read("t", 0, 10).table is None
    log.close()


def test_events_carry_position_and_commit_time(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(7, START, {"t": rows("a", "b"), "u": rows("c", first=2)})
    log.append(9, START + timedelta(seconds=1), {"t": rows("d")})
    events = log.read("t", 0, 9)
    assert events.rows == 3
    assert events.table is not None
    assert events.table["text"].to_pylist() == ["a", "b", "d"]
    assert events.table["__position"].to_pylist() == [7, 7, 9]
    assert events.table["__commit_at"].to_pylist() == [START, START, START + timedelta(seconds=1)]
    assert log.read("u", 0, 9).rows == 1
    assert log.read("v", 0, 9).rows == 0
    log.close()


def test_a_range_excludes_its_start_and_includes_its_end(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 5, size=1)
    assert texts(log, 1, 3) == ["2", "3"]
    assert texts(log, 5, 5) == []
    assert [committed.position for committed in log.transactions(2, 4)] == [3, 4]
    assert log.transactions(0, 1)[0].rows == {"t": 1}
    log.close()


def test_rows_of_an_initial_load_are_from_the_beginning_of_time(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path, transaction_bytes=100)
    log.append(1, START, {"t": rows("a")}, initial=True)
    log.append(2, START, {"t": rows(*["b"] * 100)}, initial=True)
    events = log.read("t", 0, 2)
    assert events.table is not None
    assert events.table["__commit_at"].to_pylist() == [BEGINNING]
    assert events.files[0].commit_at == BEGINNING
    assert set(pq.read_table(events.files[0].path)["__commit_at"].to_pylist()) == {BEGINNING}
    assert log.transactions(0, 2)[0].commit_at == START
    log.close()


def test_a_reopened_log_holds_the_same(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=500)
    fill(log, 10)
    before = log.read("t", 0, 10)
    log.close()
    log = open_log(tmp_path, segment_bytes=500)
    assert len(list_segments(tmp_path)) > 2
    assert (log.end, log.end_commit_at) == (10, START + timedelta(seconds=10))
    assert log.read("t", 0, 10) == before
    fill(log, 1)
    assert log.end == 11
    log.close()


def test_positions_and_commit_times_only_grow(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(5, START, {"t": rows("a")})
    with pytest.raises(TransactionError, match="position 5 does not follow 5"):
        log.append(5, START, {"t": rows("b")})
    with pytest.raises(TransactionError, match="before its predecessor"):
        log.append(6, START - timedelta(seconds=1), {"t": rows("b")})
    assert texts(log) == ["a"]
    log.close()


def test_a_large_transaction_goes_to_files_and_a_small_table_of_it_stays_inside(
    open_log: OpenLog, tmp_path: Path
) -> None:
    log = open_log(tmp_path, transaction_bytes=10_000)
    with log.begin(1, START) as writer:
        writer.write("u", rows("small"))
        for chunk in range(10):
            writer.write("t", rows(*[f"{chunk}"] * 100, first=chunk * 100))
        writer.commit()
    log.sync()
    events = log.read("t", 0, 1)
    assert events.table is None
    assert events.rows == events.files[0].rows == 1000
    found = pq.ParquetFile(events.files[0].path)
    assert found.num_row_groups > 1
    table = found.read()
    assert table["__sequence"].to_pylist() == list(range(1000))
    assert set(table["__position"].to_pylist()) == {1}
    assert table.schema.field("__commit_at").type == pa.timestamp("us", tz="UTC")
    assert log.read("u", 0, 1).files == ()
    assert texts(log, table="u") == ["small"]
    log.close()
    log = open_log(tmp_path)
    assert log.read("t", 0, 1) == events
    log.close()


def test_an_abandoned_transaction_leaves_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path, transaction_bytes=100)
    with log.begin(1, START) as writer:
        writer.write("t", rows(*["x"] * 100))
        assert list(log.files_folder.iterdir())
    assert not list(log.files_folder.iterdir())
    assert log.end == 0
    log.close()


def test_trimming_removes_files_at_once_and_segments_when_all_of_it_may_go(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=500, transaction_bytes=5000)
    fill(log, 8)
    log.append(9, START + timedelta(days=1), {"t": rows(*["large"] * 500)})
    segments = len(list_segments(tmp_path))
    log.trim(4)
    assert log.trimmed == 4
    assert len(list_segments(tmp_path)) < segments
    assert texts(log, 4, 8) == [f"{position}" for position in range(5, 9) for _ in range(3)]
    with pytest.raises(CorruptWarehouse, match="begins after position 4"):
        log.read("t", 3, 8)
    log.trim(100)
    assert not list(log.files_folder.iterdir())
    assert (log.trimmed, log.end, log.held_bytes) == (9, 9, 0)
    log.close()
    log = open_log(tmp_path)
    assert (log.trimmed, log.end, log.end_commit_at) == (9, 9, START + timedelta(days=1))
    log.append(10, START + timedelta(days=2), {"t": rows("next")})
    assert texts(log, 9) == ["next"]
    log.close()


@pytest.mark.parametrize("keep", ["half", "prefix", "garbage"])
def test_a_torn_end_is_cut_off_on_opening(open_log: OpenLog, tmp_path: Path, keep: str) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    size = list_segments(tmp_path)[0].stat().st_size
    mark = (tmp_path / "mark").read_bytes()
    fill(log, 1)
    log.close()
    (tmp_path / "mark").write_bytes(mark)
    segment = list_segments(tmp_path)[0]
    whole = segment.read_bytes()
    torn = {
        "half": whole[: (size + len(whole)) // 2],
        "prefix": whole[: size + 5],
        "garbage": whole[:size] + bytes(len(whole) - size),
    }[keep]
    segment.write_bytes(torn)
    log = open_log(tmp_path)
    assert (log.end, log.loss) == (3, None)
    assert segment.stat().st_size == size
    fill(log, 1)
    log.close()
    log = open_log(tmp_path)
    assert log.end == 4
    log.close()


@given(cut=st.integers(min_value=0, max_value=2000))
@settings(max_examples=60, deadline=None)
def test_a_log_without_a_mark_that_is_cut_anywhere_opens_with_the_transactions_before_the_cut(
    open_log: OpenLog, cut: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = open_log(folder)
        ends = []
        for _ in range(4):
            fill(log, 1, size=1)
            ends.append(list_segments(folder)[0].stat().st_size)
        log.close()
        (folder / "mark").unlink()
        segment = list_segments(folder)[0]
        segment.write_bytes(segment.read_bytes()[:cut])
        log = open_log(folder)
        assert log.end == sum(end <= cut for end in ends)
        fill(log, 1)
        log.close()


def test_transactions_that_were_not_synced_may_be_torn_in_any_place(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    fill(log, 2)
    third = list_segments(tmp_path)[0].stat().st_size
    for position in (3, 4, 5):
        with log.begin(position, START + timedelta(days=1)) as writer:
            writer.write("t", rows("x"))
            writer.commit()
    assert (log.end, log.durable) == (5, 2)
    mark = (tmp_path / "mark").read_bytes()
    segment = list_segments(tmp_path)[0]
    content = bytearray(segment.read_bytes())
    content[third + 200] ^= 0xFF
    log.close()
    segment.write_bytes(content)
    (tmp_path / "mark").write_bytes(mark)
    log = LocalLog(tmp_path)
    assert (log.end, log.loss) == (2, None)
    log.close()


def test_after_a_failed_sync_the_log_takes_nothing_more(
    open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    fill(log, 1)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with monkeypatch.context() as broken:
        broken.setattr("headgate.capture.locallog.os.fsync", fail)
        with pytest.raises(OSError, match="the disk is broken"):
            fill(log, 1)
    assert log.durable == 1
    with pytest.raises(CorruptWarehouse, match=r"is closed to writes.*open the warehouse again"):
        fill(log, 1)
    log.close()


def test_files_that_no_transaction_refers_to_are_removed_on_opening(open_log: OpenLog, tmp_path: Path) -> None:
    open_log(tmp_path).close()
    (tmp_path / "files" / "leftover.parquet").write_bytes(b"x")
    (tmp_path / "spool" / "leftover.arrow").write_bytes(b"x")
    log = open_log(tmp_path)
    assert not list(log.files_folder.iterdir())
    assert not list(log.spool_folder.iterdir())
    log.close()


def test_a_full_disk_is_named_and_the_half_written_frame_is_cut_off(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 2)
    segment = list_segments(tmp_path)[0]
    size = segment.stat().st_size
    with largest_file(size + 300), pytest.raises(StorageFull, match=str(tmp_path)):
        fill(log, 1)
    assert segment.stat().st_size == size
    fill(log, 1)
    assert log.end == 3
    log.close()
    log = open_log(tmp_path)
    assert texts(log) == [f"{position}" for position in (1, 2, 3) for _ in range(3)]
    log.close()


def test_a_full_disk_under_a_large_transaction_leaves_no_file(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path, transaction_bytes=100)
    many = rows(*[f"{index * 7919}" for index in range(5000)])
    with largest_file(10_000), pytest.raises(StorageFull):
        log.append(1, START, {"t": many})
    assert not list(log.files_folder.iterdir())
    log.append(1, START, {"t": many})
    assert log.read("t", 0, 1).rows == 5000
    log.close()


def test_a_column_that_was_added_is_null_in_older_transactions(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(1, START, {"t": rows("a").drop_columns(["id"])})
    log.append(2, START, {"t": rows("b")})
    events = log.read("t", 0, 2).table
    assert events is not None
    assert events["id"].to_pylist() == [None, 0]
    assert events["__position"].to_pylist() == [1, 2]
    log.append(3, START, {"t": rows("b").set_column(0, "id", pa.array(["x"]))})
    with pytest.raises(ConfigError, match="changed their types"):
        log.read("t", 0, 3)
    log.close()


def test_a_closed_log_takes_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 1)
    log.close()
    log.close()
    with pytest.raises(CorruptWarehouse, match="closed"):
        fill(log, 1)
