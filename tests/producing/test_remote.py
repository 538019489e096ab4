"""Producers behind the warehouse's socket: calls, commits, lazy commits and demands."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.capture.source import SourceTable
from headgate.clock import ManualClock
from headgate.errors import (
    DefiniteError,
    Location,
    ProducerBusy,
    StorageFull,
    UnknownTable,
)
from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_server import RemoteServer
from tests.producing.remote_shelf import START, Shelf, archive, sale, visit
from tests.waiting import eventually

SECOND = timedelta(seconds=1)
LOGGER = "headgate.producing.remote_producer"


# Calls


def test_tables_come_with_the_connection_and_with_every_change(channel: RemoteChannel, shelf: Shelf) -> None:
    assert channel.tables == shelf.tables
    fresh = SourceTable("notes", StructType().add("note", "string"), ())
    channel.create(fresh)
    assert channel.tables["notes"] == fresh
    shelf.tables["others"] = SourceTable("others", StructType().add("n", "decimal(12,2)"), ("n",))
    channel.flush()
    assert channel.tables == shelf.tables
    channel.drop("notes")
    assert "notes" not in channel.tables


def test_reading_calls_give_the_channels_answers(channel: RemoteChannel) -> None:
    channel.commit([sale(1, 2, 3)])
    assert channel.count("sales") == 3
    assert channel.rows("sales").to_pydict() == {"id": [1, 2, 3]}
    keys = pa.table({"id": pa.array([2, 9], pa.int64())})
    found = channel.lookup("sales", ("id",), keys)
    assert found is not None and found.to_pydict() == {"id": [2]}
    assert channel.lookup("sales", ("price",), keys) is None
    assert channel.query("SELECT 1").to_pydict() == {"text": ["SELECT 1"]}


def test_an_answer_without_rows_has_its_columns(channel: RemoteChannel) -> None:
    assert channel.rows("sales").schema == pa.schema([("id", pa.int64())])
    assert channel.rows("sales").num_rows == 0


def test_flush_and_materialize_reach_the_channel(channel: RemoteChannel, shelf: Shelf) -> None:
    channel.flush()
    channel.materialize()
    assert shelf.calls == ["flush", "materialize"]


def test_errors_keep_class_what_where_and_hint(channel: RemoteChannel, shelf: Shelf) -> None:
    shelf.owners["sales"] = "process 1 on moon"
    with pytest.raises(ProducerBusy) as busy:
        channel.claim(["visits", "sales"])
    assert (busy.value.what, busy.value.hint) == ("sales is written by process 1 on moon", "close it there")
    assert busy.value.where == Location("feed", 7)


def test_a_mistake_in_the_warehouse_is_told_and_the_connection_goes_on(
    channel: RemoteChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, LOGGER), pytest.raises(DefiniteError, match=r"KeyError.*a mistake"):
        channel.query("fail")
    assert channel.query("x").num_rows == 1


def test_a_second_producer_gets_the_table_when_the_first_has_closed(address: Path, server: RemoteServer) -> None:
    # Both are this process: they differ by name only, which the shelf sees.
    first, second = RemoteChannel(address, "feed"), RemoteChannel(address, "feed")
    first.close()
    second.claim(["sales"])
    second.close()


def test_an_unknown_source_is_refused(address: Path, server: RemoteServer) -> None:
    with pytest.raises(UnknownTable, match="it is called feed"):
        RemoteChannel(address, "food")


def test_a_closed_channel_says_so(channel: RemoteChannel) -> None:
    channel.close()
    channel.close()
    with pytest.raises(DefiniteError, match="is closed"):
        channel.count("sales")


# Commits


def test_a_commit_is_one_transaction_for_all_its_tables(channel: RemoteChannel, shelf: Shelf) -> None:
    committed_at = channel.commit([sale(1), visit(10), sale(2)], durable=True, lazy=True)
    assert len(shelf.commits) == 1
    assert sorted(shelf.commits[0].ids) == [1, 2, 10]
    assert (shelf.commits[0].durable, shelf.commits[0].lazy) == (True, True)
    assert committed_at == START + SECOND


def test_a_commit_without_rows_has_no_time(channel: RemoteChannel, shelf: Shelf) -> None:
    assert channel.commit([]) is None
    assert channel.commit([sale()]) is None
    assert channel.commit([sale()], lazy=True, durable=False) is None
    assert shelf.commits == []


def test_a_producers_error_in_the_middle_leaves_nothing_behind(channel: RemoteChannel, shelf: Shelf) -> None:
    def rows() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield sale(1)
        raise OSError("the file is damaged")

    with pytest.raises(OSError, match="the file is damaged"):
        channel.commit(rows())
    channel.commit([sale(2)])
    assert shelf.ids == [2]


def test_a_warehouses_error_leaves_nothing_behind(channel: RemoteChannel, shelf: Shelf) -> None:
    shelf.failure = StorageFull("the disk is full", hint="make room")
    with pytest.raises(StorageFull, match="make room"):
        channel.commit([sale(1)])
    shelf.failure = None
    channel.commit([sale(2)])
    assert shelf.ids == [2]


def test_an_error_while_rows_arrive_is_told_at_the_end(channel: RemoteChannel, shelf: Shelf, tmp_path: Path) -> None:
    many = sale(*range(100_000))
    folder = tmp_path / "spool"
    folder.rmdir()  # so that a transaction over the memory limit cannot be written out
    with pytest.raises(DefiniteError, match="No such file"):
        channel.commit([many] * 3)
    folder.mkdir()
    channel.commit([sale(2)])
    assert shelf.ids == [2]


# Lazy commits and demands


def test_lazy_commits_stay_with_the_producer_until_they_are_flushed(channel: RemoteChannel, shelf: Shelf) -> None:
    archive(channel, 1)
    archive(channel, 2)
    assert (shelf.commits, channel.archives) == ([], 2)
    channel.flush()
    assert [commit.ids for commit in shelf.commits] == [(1,), (2,)]
    assert not any(commit.durable or commit.lazy for commit in shelf.commits)
    assert channel.archives == 0


def test_durable_lazy_commits_go_to_the_warehouse_at_once(channel: RemoteChannel, shelf: Shelf) -> None:
    channel.commit([sale(1)], lazy=True, durable=True)
    assert [(commit.durable, commit.lazy) for commit in shelf.commits] == [(True, True)]


def test_a_demand_brings_what_was_committed_up_to_then(server: RemoteServer, address: Path, shelf: Shelf) -> None:
    clock = ManualClock(START)
    channel = RemoteChannel(address, "feed", clock=clock)
    archive(channel, 2)
    clock.set(START + 2 * SECOND)
    archive(channel, 4)
    clock.set(START + 3 * SECOND)
    [pull] = shelf.pulls
    pull(START + SECOND)
    assert [(commit.ids, commit.commit_at) for commit in shelf.commits] == [((2,), START)]
    pull(START + SECOND)
    assert channel.archives == 1
    pull(None)
    assert [(commit.ids, commit.commit_at) for commit in shelf.commits[1:]] == [((4,), START + 2 * SECOND)]
    channel.close()


def test_an_empty_demand_moves_later_commits_behind_it(channel: RemoteChannel, shelf: Shelf) -> None:
    archive(channel, 1)
    [pull] = shelf.pulls
    pull(None)
    pull(START)
    later = channel.commit([sale(2)], lazy=True, durable=False)
    assert later is not None and later > START
    assert shelf.ids == [1]


def test_flush_up_to_an_instant_leaves_later_commits(server: RemoteServer, address: Path, shelf: Shelf) -> None:
    clock = ManualClock(START)
    channel = RemoteChannel(address, "feed", clock=clock)
    archive(channel, 1)
    clock.advance(SECOND)
    archive(channel, 2)
    channel.flush(START)
    assert shelf.ids == [1]
    channel.close()
    assert shelf.ids == [1, 2]


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_that_is_not_lazy_comes_after_the_lazy_ones(
    channel: RemoteChannel, shelf: Shelf, durable: bool
) -> None:
    archive(channel, 1)
    archive(channel, 2)
    channel.commit([sale(3)], durable=durable)
    assert shelf.ids == [1, 2, 3]


def test_a_lazy_commit_is_not_before_what_the_warehouse_committed(channel: RemoteChannel) -> None:
    committed_at = channel.commit([sale(1)])
    assert committed_at is not None and committed_at > START
    assert channel.commit([sale(2)], lazy=True, durable=False) == committed_at


def test_every_call_sees_the_lazy_commits_before_it(channel: RemoteChannel) -> None:
    archive(channel, 1)
    assert channel.count("sales") == 1
    archive(channel, 2)
    assert channel.rows("sales")["id"].to_pylist() == [1, 2]


def test_what_the_warehouse_could_not_take_stays_archived(channel: RemoteChannel, shelf: Shelf) -> None:
    archive(channel, 1)
    archive(channel, 2)
    shelf.failure = StorageFull("the disk is full")
    with pytest.raises(StorageFull):
        shelf.pulls[0](None)
    with pytest.raises(StorageFull):
        channel.flush()
    assert channel.archives == 2
    shelf.failure = None
    channel.flush()
    assert shelf.ids == [1, 2]


def test_lazy_commits_beyond_the_memory_limit_are_flushed(server: RemoteServer, address: Path, shelf: Shelf) -> None:
    limit = 3 * sale(1)[1].nbytes
    channel = RemoteChannel(address, "feed", archive_bytes=limit)
    held = []
    for number in range(10):
        channel.commit([sale(number)], lazy=True, durable=False)
        held.append(channel.archives)
    assert held == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert shelf.ids == list(range(8))
    channel.commit((sale(number) for number in range(10, 30)), lazy=True, durable=False)
    assert shelf.ids == list(range(30)) and len(shelf.commits) == 9 + 2
    channel.close()


def test_whoever_asks_hears_why_lazy_commits_were_flushed(server: RemoteServer, address: Path, shelf: Shelf) -> None:
    heard: list[str] = []
    channel = RemoteChannel(address, None, heard.append)
    assert channel.source == "feed"

    def archives_flushed_by(act: Callable[[], object]) -> None:
        archive(channel, 1)
        archive(channel, 2)
        before = len(heard)
        act()
        eventually(lambda: len(heard) > before)

    archives_flushed_by(channel.flush)
    archives_flushed_by(channel.materialize)
    archives_flushed_by(lambda: shelf.pulls[0](None))
    archives_flushed_by(lambda: channel.commit([sale(0)]))
    archive(channel, 3)
    channel.close()
    assert heard == ["policy", "materialize", "demand", "order", "close"]


def test_durable_lazy_commits_in_the_warehouse_count_as_archives(
    server: RemoteServer, address: Path, shelf: Shelf
) -> None:
    heard: list[str] = []
    channel = RemoteChannel(address, "feed", heard.append)
    channel.commit([sale(1)], lazy=True)
    assert (channel.archives, heard) == (1, [])
    channel.flush()
    assert (channel.archives, heard) == (0, ["policy"])
    channel.flush()
    assert heard == ["policy"]
    channel.close()


def test_a_policy_that_fails_does_not_stop_demands(
    server: RemoteServer, address: Path, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    channel = RemoteChannel(address, "feed", lambda reason: [][len(reason)])
    archive(channel, 1)
    channel.flush()
    archive(channel, 2)
    channel.flush()
    assert shelf.ids == [1, 2]
    eventually(lambda: caplog.text.count("the policy failed when it heard of a flush") == 2)
    channel.close()


def test_close_flushes(channel: RemoteChannel, shelf: Shelf) -> None:
    archive(channel, 1)
    archive(channel, 2)
    channel.close()
    assert shelf.ids == [1, 2]
    assert shelf.attached == []


def test_demands_from_several_readers_while_the_producer_commits_take_every_commit_once_in_order(
    channel: RemoteChannel, shelf: Shelf
) -> None:
    archive(channel, 0)
    done = threading.Event()

    def demand() -> None:
        while not done.is_set():
            shelf.pulls[0](None)
            time.sleep(0.001)

    readers = [threading.Thread(target=demand) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 300):
        lazy = number % 7 != 0
        channel.commit([sale(number)], lazy=lazy, durable=False)
        if number % 11 == 0:
            channel.flush()
    done.set()
    for reader in readers:
        reader.join()
    channel.flush()
    assert shelf.ids == list(range(300))
    times = [commit.commit_at for commit in shelf.commits if commit.commit_at is not None]
    assert times == sorted(times)
