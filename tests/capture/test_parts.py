"""Transactions whose parts several writers put, over a stream log of either kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.capture.block_writer import BlockWriter
from headgate.capture.producer import ProducerSource
from headgate.clock import ManualClock
from headgate.errors import Fenced, ProducerBusy, TransactionError
from tests.capture.logs import OpenLog
from tests.capture.shop import TABLES
from tests.capture.test_blocks import blocks_of, events, rows

SOURCE_TABLES = {"t": TABLES["items"], "u": TABLES["items"]}


def test_a_transaction_exists_when_all_its_parts_are_there(open_log: OpenLog, tmp_path: Path) -> None:
    source = ProducerSource("s", SOURCE_TABLES, log := open_log(tmp_path), ManualClock())
    loader, writer = source.attach("loader"), BlockWriter(log.open_segment)
    name = loader.begin_parts()
    loader.offer(name, 0, blocks_of(writer, t=rows(1, 2)))
    loader.offer(name, 2, blocks_of(writer, t=rows(5)))
    with pytest.raises(TransactionError, match=r"has 2 parts, and 3 were announced.*put part 1"):
        loader.commit_parts(name, 3)
    assert (log.end, events(log)) == (0, [])
    loader.offer(name, 1, blocks_of(writer, t=rows(3, 4), u=rows(9, first=2)))
    with pytest.raises(TransactionError, match="announce all parts"):
        loader.commit_parts(name, 2)
    committed = loader.commit_parts(name, 3)
    assert committed is not None and committed.rows == {"t": 5, "u": 1}
    assert events(log) == [(1, 0, 1), (1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 5, 5)]
    assert events(log, "u") == [(1, 4, 9)]
    assert source.cut() == 1
    with pytest.raises(TransactionError, match="no such open transaction"):
        loader.commit_parts(name, 3)
    writer.close()
    source.close()


def test_a_part_outlives_its_writer_and_goes_with_the_producer_that_began(open_log: OpenLog, tmp_path: Path) -> None:
    source = ProducerSource("s", SOURCE_TABLES, log := open_log(tmp_path), ManualClock())
    loader = source.attach("loader")
    names = [loader.begin_parts() for _ in range(2)]
    for name in names:
        writer = BlockWriter(log.open_segment)
        worker = source.attach("worker")
        worker.join(name)
        worker.offer(name, 0, blocks_of(writer, t=rows(1)))
        segment = writer.segment
        assert segment is not None
        writer.close()
        log.seal_segments([segment])
        worker.close()
    assert len(list((tmp_path / "blocks").iterdir())) == 2
    assert loader.commit_parts(names[0], 1) is not None
    loader.close()
    assert events(log) == [(1, 0, 1)]
    assert len(list((tmp_path / "blocks").iterdir())) == 1, "the part that nobody can commit any more is deleted"
    with pytest.raises(TransactionError, match="no such open transaction"):
        worker.offer(names[1], 1, [])
    source.close()


def test_a_part_that_is_put_again_replaces_the_one_before(open_log: OpenLog, tmp_path: Path) -> None:
    source = ProducerSource("s", SOURCE_TABLES, log := open_log(tmp_path), ManualClock())
    loader, writer = source.attach("loader"), BlockWriter(log.open_segment)
    first, second = loader.begin_parts(), loader.begin_parts()
    loader.offer(first, 0, blocks_of(writer, t=rows(1)))
    loader.offer(second, 0, blocks_of(writer, t=rows(2)))
    loader.offer(first, 0, blocks_of(writer, t=rows(3)))
    # A whole commit of the same segment does not let go of a part that waits.
    loader.commit_blocks(blocks_of(writer, t=rows(7)))
    loader.abandon(second)
    assert writer.segment is not None
    log.seal_segments([writer.segment])
    loader.commit_parts(first, 1)
    assert events(log) == [(1, 0, 7), (2, 0, 3)]
    writer.close()
    source.close()


def test_a_key_in_two_parts_has_what_the_later_part_says(open_log: OpenLog, tmp_path: Path) -> None:
    source = ProducerSource("s", SOURCE_TABLES, log := open_log(tmp_path), ManualClock())
    loader, writer = source.attach("loader"), BlockWriter(log.open_segment)
    name = loader.begin_parts()
    loader.offer(name, 1, blocks_of(writer, t=rows(7, text="later")))
    loader.offer(name, 0, blocks_of(writer, t=rows(7, text="earlier")))
    loader.commit_parts(name, 2)
    found = log.read("t", 0, 1).table
    assert found is not None and found["text"].to_pylist() == ["earlier", "later"]
    writer.close()
    source.close()


def test_only_who_began_commits_and_its_tables_stay_its_own(open_log: OpenLog, tmp_path: Path) -> None:
    source = ProducerSource("s", SOURCE_TABLES, log := open_log(tmp_path), ManualClock())
    loader, worker, other = (source.attach(who) for who in ("loader", "worker", "other"))
    loader.claim(["t"])
    name = loader.begin_parts()
    worker.join(name)
    worker.claim(["t", "u"])
    with pytest.raises(ProducerBusy, match="written by loader"):
        other.claim(["u"])
    with pytest.raises(TransactionError, match="another producer began"):
        worker.commit_parts(name, 0)
    worker.close()
    with pytest.raises(ProducerBusy, match="written by loader"):
        other.claim(["t"])
    mine, writer = other.begin_parts(), BlockWriter(log.open_segment)
    other.offer(mine, 0, blocks_of(writer, t=rows(1)))
    with pytest.raises(ProducerBusy, match="written by loader"):
        other.commit_parts(mine, 1)
    assert log.end == 0
    writer.close()
    source.close()


def test_a_former_owner_takes_no_part_and_commits_none(open_log: OpenLog, tmp_path: Path) -> None:
    is_owner = True

    def verify() -> None:
        if not is_owner:
            raise Fenced("another process owns the warehouse")

    source = ProducerSource("s", SOURCE_TABLES, log := open_log(tmp_path, verify=verify), ManualClock())
    loader, writer = source.attach("loader"), BlockWriter(log.open_segment)
    name, puts = loader.begin_parts(), blocks_of(writer, t=rows(1))
    loader.offer(name, 0, puts)
    is_owner = False
    with pytest.raises(Fenced):
        loader.offer(name, 1, puts)
    with pytest.raises(Fenced):
        loader.commit_parts(name, 1)
    writer.close()
    source.close()
