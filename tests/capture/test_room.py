"""A log beyond its limit: its consumer is told first, then appends wait; nothing is refused or lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from headgate.capture import room
from headgate.capture.memory import MemorySource
from tests.capture.logs import OpenLog
from tests.capture.shop import items, open_shop
from tests.waiting import PATIENCE

LIMIT = 20_000


def commit(source: MemorySource, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        with source.transaction() as transaction:
            transaction.insert_many("items", items(20 * number, 20 * number + 20))


def fill_far_over(source: MemorySource) -> int:
    """Commits until the next commit would have to wait; how many."""
    count = 0
    while source.log.held_bytes <= room.HARD_MARGIN * LIMIT:
        commit(source, 1, count)
        count += 1
    return count


def test_what_is_held_is_known_after_appends_trims_and_a_restart(open_log: OpenLog, tmp_path: Path) -> None:
    shop = open_shop(tmp_path, segment_bytes=5000, transaction_bytes=10_000, kind=open_log)
    commit(shop, 10)
    with shop.transaction() as transaction:
        transaction.insert_many("items", items(0, 5000))
    log = shop.log
    files = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 0.9 * files < log.held_bytes <= files
    log.trim(5)
    after = log.held_bytes
    assert 0 < after < files
    shop.close()
    log = open_log(tmp_path)
    assert log.held_bytes == after
    log.trim(log.end)
    assert log.held_bytes == 0 and not log.over_limit
    log.close()


def test_the_consumer_is_told_once_per_crossing_and_again_when_it_did_not_go_far_enough(
    open_log: OpenLog, tmp_path: Path
) -> None:
    shop = open_shop(tmp_path, limit_bytes=LIMIT, kind=open_log)
    heard: list[int] = []
    shop.log.on_full(lambda: heard.append(shop.log.end))
    number = 0
    while not shop.log.over_limit:
        assert not heard
        commit(shop, 1, number)
        number += 1
    commit(shop, 1, number)
    assert heard == [number]
    # A trim that leaves it beyond the limit.
    shop.log.trim(1)
    commit(shop, 2, number + 1)
    assert heard == [number, number + 2] and shop.log.over_limit
    shop.log.trim(shop.log.end)
    assert not shop.log.over_limit
    commit(shop, 1, number + 3)
    assert len(heard) == 2
    shop.close()


def test_far_beyond_the_limit_a_commit_waits_for_a_consumer_that_was_told(
    open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LONGEST_WAIT", 600.0)
    shop = open_shop(tmp_path, limit_bytes=LIMIT, kind=open_log)
    filled = fill_far_over(shop)
    told, seen = threading.Event(), []
    shop.log.on_full(told.set)

    def consume() -> None:
        assert told.wait(PATIENCE)
        time.sleep(0.1)
        found = shop.log.read("items", 0, shop.log.durable)
        assert found.table is not None
        seen.append(found.table.column("id").to_pylist())
        shop.log.trim(shop.log.durable)

    consumer = threading.Thread(target=consume)
    consumer.start()
    began = time.monotonic()
    commit(shop, 1, filled)
    took = time.monotonic() - began
    consumer.join()
    # It waited for the consumer, and no longer.
    assert 0.1 <= took < PATIENCE
    assert seen == [list(range(20 * filled))]
    rest = shop.log.read("items", shop.log.trimmed, shop.log.end)
    assert rest.table is not None
    assert rest.table.column("id").to_pylist() == list(range(20 * filled, 20 * filled + 20))
    shop.close()


def test_without_a_consumer_commits_are_slow_and_all_kept(
    open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LONGEST_WAIT", 0.05)
    shop = open_shop(tmp_path, limit_bytes=LIMIT, kind=open_log)
    filled = fill_far_over(shop)
    began = time.monotonic()
    commit(shop, 4, filled)
    assert time.monotonic() - began >= 0.2
    shop.close()
    shop = open_shop(tmp_path, kind=open_log)
    found = shop.log.read("items", 0, shop.log.end)
    assert found.rows == 20 * (filled + 4)
    shop.close()


def test_closing_does_not_wait_for_room(open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LONGEST_WAIT", 600.0)
    shop = open_shop(tmp_path, limit_bytes=LIMIT, kind=open_log)
    filled = fill_far_over(shop)
    told = threading.Semaphore(0)
    shop.log.on_full(told.release)
    committed: list[int] = []

    def work(number: int) -> None:
        try:
            commit(shop, 1, number)
        except Exception:
            return
        committed.append(number)

    writers = [threading.Thread(target=work, args=[filled + number]) for number in range(3)]
    for writer in writers:
        writer.start()
    assert told.acquire(timeout=PATIENCE)
    began = time.monotonic()
    shop.close()
    for writer in writers:
        writer.join(PATIENCE)
        assert not writer.is_alive()
    assert time.monotonic() - began < PATIENCE
    # What was acknowledged is there; the others were told that the log is closed.
    shop = open_shop(tmp_path, kind=open_log)
    found = shop.log.read("items", 0, shop.log.end)
    assert found.table is not None
    kept = set(found.table.column("id").to_pylist())
    assert all(20 * number in kept for number in [*range(filled), *committed])
    shop.close()
