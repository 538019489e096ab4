"""The show: a private PostgreSQL, its tills, the warehouse and its service, and readers; then what it all came to."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import headgate
from examples.order_entry import summary, tills
from examples.order_entry.readers import READERS, Visit
from examples.order_entry.summary import Check
from examples.order_entry.tills import Journal, Till, Totals
from examples.shop.__main__ import say
from headgate.capture.postgres.private_server import PostgresServer
from headgate.cli import terminal
from headgate.client import Client, connect
from headgate.service import Server

PROJECT = Path(__file__).parent / "headgate.yml"
TILLS = 3
SOLD = "SELECT store, item_id, SUM(lines) AS lines, SUM(qty) AS qty, SUM(revenue) AS revenue FROM store_sales GROUP BY store, item_id"


def run(seconds: float) -> bool:
    """Goes on for so long, or until Ctrl-C; says whether all numbers were right."""
    say("Starting a PostgreSQL server of its own, with a shop in it …")
    with tempfile.TemporaryDirectory(prefix="headgate-demo-") as folder, PostgresServer() as postgres:
        with postgres.connect() as connection:
            tills.create(connection)
        say("Starting Spark, and capturing the shop from PostgreSQL's log …")
        os.environ |= {"ORDER_ENTRY_STORAGE": folder, "ORDER_ENTRY_DSN": postgres.dsn}
        with (
            headgate.open(PROJECT) as warehouse,
            Server(warehouse, port=0) as server,
            connect(server.url) as client,
        ):
            # Spark has taken Ctrl-C to end what runs in it; here it ends the show.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
            _introduce(server.url, client, seconds)
            show = Show(postgres, client, Journal(tills.PURCHASES * tills.LINES_PER_PURCHASE))
            show.go_on(seconds)
            checks = show.check()
            say()
            terminal.show(summary.reader_table(show.visits, READERS))
            jobs, batches = warehouse.newest_job, warehouse.status.executions
            say(
                f"\n{show.journal.commits:,} commits and {len(show.visits):,} answers took {jobs:,} jobs in {batches:,} batches.\n"
            )
    return _judge(checks)


class Show:
    """Tills and readers at work."""

    def __init__(self, postgres: PostgresServer, client: Client, journal: Journal) -> None:
        self.journal = journal
        self.visits: list[Visit] = []
        self._postgres = postgres
        self._client = client
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._failed: Sequence[BaseException] = ()

    def go_on(self, seconds: float) -> None:
        """Until the time is over, someone presses Ctrl-C, or one of them fails."""
        with ThreadPoolExecutor(TILLS + len(READERS)) as pool:
            at_work = [
                pool.submit(Till(number, self.journal).work, self._postgres.dsn, self._stop) for number in range(TILLS)
            ]
            at_work += [pool.submit(reader.work, self._client, self._note, self._stop) for reader in READERS]
            for each in at_work:
                each.add_done_callback(self._ended)
            try:
                self._stop.wait(seconds)
            except KeyboardInterrupt:
                say("Stopping; what was asked is still answered …")
            finally:
                self._stop.set()
        self._failed = [error for each in at_work if (error := each.exception()) is not None]

    def check(self) -> list[Check]:
        """Compares with PostgreSQL itself, now that nobody sells any more."""
        found: Totals = {}
        with self._client.sql(SOLD, max_staleness=0) as reply:
            for row in reply.rows():
                found[row["store"], row["item_id"]] = (row["lines"], row["qty"], row["revenue"])
        with self._client.sql("SELECT COUNT(*) AS versions FROM item", max_staleness=0) as reply:
            (counted,) = reply.rows()
        with self._postgres.connect() as connection:
            return [
                summary.check_went_through(self._failed),
                summary.check_bounds(self.visits, READERS, self.journal),
                summary.check_totals(found, tills.totals(connection)),
                summary.check_versions(counted["versions"], tills.item_versions(connection), len(tills.ITEMS)),
            ]

    def _note(self, visit: Visit) -> None:
        self.visits.append(visit)
        say(summary.visit_line(visit, self._began))

    def _ended(self, work: Future[None]) -> None:
        if work.exception() is not None:
            self._stop.set()


def _introduce(url: str, client: Client, seconds: float) -> None:
    began = time.monotonic()
    READERS[0].ask(client)
    say(f"The first answer, with everything that is there already, took {time.monotonic() - began:.1f} s.\n")
    say(f"  the page     {url}")
    say(f'  ask yourself .venv/bin/headgate query --url {url} "SELECT * FROM store_sales CURRENCY BOUND 5 SEC"\n')
    say(
        f"For {seconds:g} s (Ctrl-C ends it) {TILLS} tills commit {TILLS * tills.RATE:g} transactions a second, and {len(READERS)} readers"
        " ask what was sold.\nEach says how stale its answer may be; work is done when that asks for it, and shared.\n"
    )
    for line in summary.VISIT_TITLES:
        say(line)


def _judge(checks: Sequence[Check]) -> bool:
    for check in checks:
        say(str(check))
    return all(check.problem is None for check in checks)
