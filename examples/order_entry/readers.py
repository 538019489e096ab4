"""Readers that ask the service for the same table, each with a bound of its own, and what each of them got."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from headgate.client import Client
from headgate.config.durations import parse_duration
from headgate.scheduling.receipt import Receipt

QUERY = "SELECT store, SUM(lines) AS lines, SUM(revenue) AS revenue FROM store_sales GROUP BY store"


@dataclass(frozen=True)
class Reader:
    """Asks again and again."""

    name: str
    max_staleness: str
    every: float
    """Seconds from an answer to the next question."""
    deadline: str | None = None

    @property
    def bound(self) -> str:
        """What it says about freshness, in words."""
        return self.max_staleness if self.deadline is None else f"{self.max_staleness} within {self.deadline}"

    @property
    def allowed(self) -> timedelta:
        return parse_duration(self.max_staleness)

    def work(self, client: Client, told: Callable[[Visit], None], stop: threading.Event) -> None:
        """At least once, until told to stop."""
        while True:
            told(self.ask(client))
            if stop.wait(self.every):
                return

    def ask(self, client: Client) -> Visit:
        asked_at = time.monotonic()
        with client.sql(
            QUERY, max_staleness=self.max_staleness, deadline=self.deadline, when_stale=self.deadline and "serve"
        ) as reply:
            rows = list(reply.rows())
        assert reply.receipt is not None
        return Visit(
            self,
            asked_at,
            sum(row["lines"] for row in rows),
            sum((row["revenue"] for row in rows), Decimal(0)),
            Receipt.from_json(reply.receipt),
        )


@dataclass(frozen=True)
class Visit:
    """One question and its answer."""

    reader: Reader
    asked_at: float
    """On the monotonic clock."""
    lines: int
    """Line items in the answer."""
    revenue: Decimal
    receipt: Receipt


READERS = (
    Reader("till", "0s", 2),
    Reader("dashboard", "5s", 2),
    Reader("report", "1m", 5),
    Reader("alarm", "0s", 3, deadline="500ms"),
)
