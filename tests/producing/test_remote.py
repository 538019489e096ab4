"""Producers behind the warehouse's socket: calls, commits and lazy commits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.capture.source import SourceTable
from headgate.errors import (
    DefiniteError,
    Location,
    ProducerBusy,
    StorageFull,
    UnknownTable,
)
from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_server import RemoteServer
from headgate.producing.remote_values import say
from tests.producing.remote_shelf import START, Shelf, commit_lazily, sale, visit

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


def test_a_segment_that_cannot_be_made_is_told_and_the_connection_goes_on(channel: RemoteChannel, shelf: Shelf) -> None:
    shelf.folder.rename(shelf.folder.with_name("away"))
    with pytest.raises(DefiniteError, match="No such file"):
        channel.commit([sale(1)])
    shelf.folder.with_name("away").rename(shelf.folder)
    channel.commit([sale(2)])
    assert shelf.ids == [2]


def test_a_producer_goes_on_with_another_segment_and_gives_the_full_one_back(
    channel: RemoteChannel, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel._writer, "_segment_bytes", 2000)
    for number in range(9):
        channel.commit([sale(number)])
    assert shelf.ids == list(range(9))
    *full, last = shelf.segments.values()
    assert len(full) > 1 and all(full) and not last


def test_a_commit_of_what_the_producer_did_not_write_is_refused(channel: RemoteChannel, shelf: Shelf) -> None:
    channel.commit([sale(1)])
    forged = [["sales", "another.blocks", 9, 100, 0, 1, 1, 0, 0, 0, 0]]
    say(channel._wire, {"call": "commit", "durable": True, "lazy": False, "blocks": forged})
    with pytest.raises(DefiniteError, match="did not write"):
        channel._answer(channel._wire)
    channel.commit([sale(2)])
    assert shelf.ids == [1, 2]


def test_parts_that_several_producers_put_are_one_commit(address: Path, server: RemoteServer, shelf: Shelf) -> None:
    loader, worker = RemoteChannel(address, "feed"), RemoteChannel(address, "feed")
    name = loader.begin_parts()
    worker.join(name)
    worker.put([sale(3), visit(9)], name, 1)
    loader.put([sale(1, 2)], name, 0)
    worker.close()
    assert shelf.commits == []
    assert loader.commit_parts(name, 2) == START + SECOND
    assert shelf.commits[0].ids == (1, 2, 3, 9)
    loader.abandon(name)
    assert shelf.calls == [f"join {name}", f"abandon {name}"]
    loader.close()


# Lazy commits


@pytest.mark.parametrize("durable", [True, False])
def test_lazy_commits_are_the_warehouses_at_once_and_seen_when_it_lets_them(
    channel: RemoteChannel, shelf: Shelf, durable: bool
) -> None:
    for number in (1, 2):
        channel.commit([sale(number)], lazy=True, durable=durable)
    assert [(commit.ids, commit.durable, commit.lazy) for commit in shelf.commits] == [
        ((1,), durable, True),
        ((2,), durable, True),
    ]
    assert channel.archives == 2
    channel.flush(START)
    assert (channel.archives, shelf.calls) == (0, ["flush 00"])


def test_a_commit_that_is_not_lazy_comes_after_the_lazy_ones(channel: RemoteChannel, shelf: Shelf) -> None:
    commit_lazily(channel, 1)
    commit_lazily(channel, 2)
    channel.commit([sale(3)])
    assert shelf.ids == [1, 2, 3] and channel.archives == 0


def test_a_lazy_commit_that_the_warehouse_cannot_take_is_told(channel: RemoteChannel, shelf: Shelf) -> None:
    commit_lazily(channel, 1)
    shelf.failure = StorageFull("the disk is full")
    with pytest.raises(StorageFull):
        commit_lazily(channel, 2)
    shelf.failure = None
    commit_lazily(channel, 3)
    assert shelf.ids == [1, 3] and channel.archives == 2


def test_the_policy_hears_with_the_next_answer_why_lazy_commits_were_seen(
    server: RemoteServer, address: Path, shelf: Shelf
) -> None:
    heard: list[str] = []
    channel = RemoteChannel(address, None, heard.append)
    assert channel.source == "feed"
    for act in (channel.flush, channel.materialize, lambda: channel.commit([sale(0)])):
        commit_lazily(channel, 1)
        commit_lazily(channel, 2)
        act()
    assert heard == ["policy", "materialize", "order"]
    commit_lazily(channel, 3)
    shelf.see("demand")
    commit_lazily(channel, 4)
    assert heard == ["policy", "materialize", "order", "demand"]
    channel.close()
    assert heard == ["policy", "materialize", "order", "demand", "close"]
    assert shelf.attached == []


def test_a_policy_that_fails_stops_nothing(
    server: RemoteServer, address: Path, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    channel = RemoteChannel(address, "feed", lambda reason: [][len(reason)])
    for number in (1, 2):
        commit_lazily(channel, number)
        channel.flush()
    assert shelf.ids == [1, 2]
    assert caplog.text.count("the policy failed when it heard of a flush") == 2
    channel.close()
