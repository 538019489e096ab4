"""The shop's database, the tills that enter orders into it, and the journal of what it has acknowledged to them.

Line items are added and corrected but never deleted: their number only grows, so that the journal tells how many an
answer must hold at least.
"""

from __future__ import annotations

import bisect
import threading
import time
from decimal import Decimal
from random import Random

import psycopg

STORES = ("north", "south", "harbour")
ITEMS = ("tea", "coffee", "cocoa", "milk", "sugar", "honey", "bread", "butter", "cheese", "apple", "pear", "cup")
PURCHASES = 1000
LINES_PER_PURCHASE = 2
RATE = 5.0
"""Transactions a second of each till."""

_SCHEMA = """
CREATE TABLE item_s (item_id bigint PRIMARY KEY, name text NOT NULL, price numeric(7,2) NOT NULL, version int NOT NULL);
CREATE TABLE purchases (purc_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, store text NOT NULL);
CREATE TABLE lineitems (purc_id bigint REFERENCES purchases, line int, item_id bigint NOT NULL REFERENCES item_s,
  qty int NOT NULL, price numeric(7,2) NOT NULL, PRIMARY KEY (purc_id, line));
"""
_ITEMS = (
    "INSERT INTO item_s SELECT place, name, 0.95 + place, 1 FROM unnest(%s::text[]) WITH ORDINALITY AS i (name, place)"
)
_PURCHASES = "INSERT INTO purchases (store) SELECT (%s::text[])[1 + n %% %s] FROM generate_series(1, %s) n"
_LINES = """
INSERT INTO lineitems SELECT purc_id, line, item_id, 1 + (purc_id + line) %% 3, price
FROM purchases, generate_series(1, %s) line, item_s WHERE item_id = 1 + (purc_id / 3 + line) %% %s
"""
_TOTALS = """
SELECT store, item_id, count(*), sum(qty), sum(qty * price) FROM purchases JOIN lineitems USING (purc_id) GROUP BY store, item_id
"""
_SOLD = "INSERT INTO lineitems SELECT %s, %s, item_id, %s, price FROM item_s WHERE item_id = %s"
_CORRECTED = "UPDATE lineitems SET qty = %s WHERE purc_id = %s AND line = 1"
_RENAMED = "UPDATE item_s SET version = version + 1, price = price + 0.05, name = %s || ' no. ' || version + 1 WHERE item_id = %s"

Totals = dict[tuple[str, int], tuple[int, int, Decimal]]
"""By store and item: line items, quantity, revenue."""


def create(connection: psycopg.Connection) -> None:
    """The shop on its first day: a few items, and purchases of some time before."""
    connection.execute(_SCHEMA)
    connection.execute(_ITEMS, [list(ITEMS)])
    connection.execute(_PURCHASES, [list(STORES), len(STORES), PURCHASES])
    connection.execute(_LINES, [LINES_PER_PURCHASE, len(ITEMS)])


def totals(connection: psycopg.Connection) -> Totals:
    """What PostgreSQL itself says was sold."""
    found = connection.execute(_TOTALS).fetchall()
    return {(store, item): (lines, qty, revenue) for store, item, lines, qty, revenue in found}


def item_versions(connection: psycopg.Connection) -> int:
    """How many versions all items have had together; an item counts its own."""
    found = connection.execute("SELECT sum(version) FROM item_s").fetchone()
    assert found is not None
    return int(found[0])


class Journal:
    """When the database acknowledged how many line items."""

    def __init__(self, lines: int) -> None:
        self._lock = threading.Lock()
        self._at = [float("-inf")]
        self._lines = [lines]

    @property
    def commits(self) -> int:
        """Since the journal was begun."""
        return len(self._at) - 1

    def note(self, lines: int) -> None:
        """A transaction with so many new line items was acknowledged just now."""
        with self._lock:
            self._at.append(time.monotonic())
            self._lines.append(self._lines[-1] + lines)

    def lines_until(self, at: float) -> int:
        """The line items that were acknowledged by then, on the monotonic clock."""
        with self._lock:
            return self._lines[bisect.bisect_right(self._at, at) - 1]


class Till:
    """Enters orders for one store, corrects some, and at times renames an item; one transaction after another."""

    def __init__(self, number: int, journal: Journal) -> None:
        self._store = STORES[number % len(STORES)]
        self._journal = journal
        self._choose = Random(number)
        self._latest = 1 + number

    def work(self, dsn: str, stop: threading.Event) -> None:
        """Until told to stop, at a steady rate; what could not be done in time is not made up for."""
        with psycopg.connect(dsn) as connection:
            due = time.monotonic()
            while not stop.wait(max(0.0, due - time.monotonic())):
                lines = self._transaction(connection)
                connection.commit()
                self._journal.note(lines)
                due = max(due + 1 / RATE, time.monotonic())

    def _transaction(self, connection: psycopg.Connection) -> int:
        """Gives how many line items are new."""
        kind = self._choose.random()
        if kind < 0.05:
            item = self._choose.randint(1, len(ITEMS))
            connection.execute(_RENAMED, [ITEMS[item - 1], item])
            return 0
        if kind < 0.2:
            # Nothing of it is left when the customer changes his mind.
            connection.execute(_CORRECTED, [self._choose.randint(0, 4), self._latest])
            return 0
        lines = self._choose.randint(1, 4)
        made = connection.execute(
            "INSERT INTO purchases (store) VALUES (%s) RETURNING purc_id", [self._store]
        ).fetchone()
        assert made is not None
        self._latest = made[0]
        for line in range(1, lines + 1):
            item = self._choose.randint(1, len(ITEMS))
            connection.execute(_SOLD, [self._latest, line, self._choose.randint(1, 5), item])
        return lines
