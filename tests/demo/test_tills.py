"""The tills keep the journal that the demo's answers are judged by."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from examples.order_entry import tills
from examples.order_entry.tills import ITEMS, LINES_PER_PURCHASE, PURCHASES, STORES, Journal, Till

from headgate.capture.postgres.private_server import PostgresServer
from tests.waiting import eventually


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


def test_what_the_tills_did_is_what_their_journal_says(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tills, "RATE", 200.0)
    journal, stop = Journal(PURCHASES * LINES_PER_PURCHASE), threading.Event()
    with postgres.connect() as connection:
        tills.create(connection)
        before = tills.totals(connection)
        assert sum(lines for lines, _, _ in before.values()) == journal.lines_until(time.monotonic())
        assert len(before) == len(STORES) * len(ITEMS)
        assert tills.item_versions(connection) == len(ITEMS)
        with ThreadPoolExecutor(3) as pool:
            work = [pool.submit(Till(number, journal).work, postgres.dsn, stop) for number in range(3)]
            try:
                eventually(lambda: journal.commits >= 150)
            finally:
                stop.set()
        assert [each.result() for each in work] == [None] * 3
        after = tills.totals(connection)
        assert sum(lines for lines, _, _ in after.values()) == journal.lines_until(time.monotonic())
        assert tills.item_versions(connection) > len(ITEMS)
