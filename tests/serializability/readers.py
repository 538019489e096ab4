"""Readers that ask at random bounds and write down what they got, with the receipt."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import headgate
from headgate.clock import SystemClock
from headgate.errors import TooStale, TransientError
from headgate.scheduling.session import Answer
from tests.serializability.history import History
from tests.serializability.world import DATABASES, OWNER_EVERY

_BRANCHES = "SELECT 'branches' AS part, '{db}' AS name, branch AS key, total AS one, accounts AS two FROM {db}_branches"
_HISTORY = "SELECT 'history' AS part, '{db}' AS name, writer AS key, last AS one, transfers AS two FROM {db}_history"
_OWNER = (
    "SELECT 'owner' AS part, 'east' AS name, id AS key, MAX(last) AS one,"
    f" MIN(last) + {OWNER_EVERY} * (COUNT(*) - 1) AS two FROM east_owner GROUP BY id"
)
_FIRST = "SELECT 'first' AS part, 'east' AS name, id AS key, MIN(last) AS one, 0 AS two FROM east_owner GROUP BY id"
_CURRENT = (
    "SELECT 'current' AS part, 'east' AS name, id AS key, last AS one, 1 AS two FROM east_owner WHERE __end_at IS NULL"
)
_PAIRS = "SELECT 'branches' AS part, '{db}' AS name, branch AS key, SUM({db}) AS one, COUNT(*) AS two FROM pairs GROUP BY branch"
_ACCOUNTS = (
    "SELECT 'branches' AS part, '{db}' AS name, branch AS key, SUM(balance) AS one, COUNT(*) AS two"
    " FROM {db}.accounts GROUP BY branch"
)
_TRANSFERS = (
    "SELECT 'history' AS part, '{db}' AS name, writer AS key, MAX(number) AS one, COUNT(*) AS two"
    " FROM {db}.transfers GROUP BY writer"
)
_TWICE = (
    "SELECT 'differing' AS part, '{db}' AS name, 0 AS key, COUNT(*) AS one, 0 AS two"
    " FROM {db}.accounts a FULL JOIN {db}.accounts b ON b.id = a.id WHERE NOT (a.balance <=> b.balance)"
)


def _union(*parts: str) -> str:
    return " UNION ALL ".join(parts)


def _both(part: str) -> str:
    return _union(*(part.replace("{db}", database) for database in DATABASES))


QUERIES = {
    **{
        f"{kind} {database}": text.replace("{db}", database)
        for database in DATABASES
        for kind, text in {
            "branches": _union(_BRANCHES, _HISTORY),
            "twice": _union(_TWICE, _ACCOUNTS, _TRANSFERS, _ACCOUNTS, _HISTORY),
        }.items()
    },
    "owner": _union(_OWNER, _FIRST, _CURRENT, _HISTORY.replace("{db}", "east")),
    "pairs": _union(_both(_PAIRS), _both(_HISTORY)),
    "all": _union(_both(_PAIRS), _both(_BRANCHES), _OWNER, _both(_HISTORY)),
}
"""Each shows, per database that it reads, the last number of every writer, and other parts that must fit to it."""
SHOWN = {name: re.findall(r"'(\w+)' AS part, '(\w+)' AS name", text) for name, text in QUERIES.items()}
"""The parts of each query and the databases that they are of."""

BOUNDS: tuple[float | None, ...] = (0.0, 0.0, 0.2, 2.0, None)
DEADLINES = (None, None, 0.1, 1.0, 10.0)
QUESTIONS = 8
"""So many a reader asks at least, however slow the machine is."""


class ShiftedClock:
    """The machine's clock and so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._clock = SystemClock()
        self._by = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self._clock.now() + self._by


class Reader:
    """One thread's questions; `name` tells it from readers of other processes, too."""

    def __init__(self, name: str, warehouse: headgate.Warehouse, history: History) -> None:
        self._name = name
        self._warehouse = warehouse
        self._history = history
        self._own = warehouse.session()
        self._chance = random.Random(name)

    def ask(self) -> None:
        chance = self._chance
        query = chance.choice(list(QUERIES))
        bound, deadline = chance.choice(BOUNDS), chance.choice(DEADLINES)
        when_stale = chance.choice(["fail", "serve", "wait"])
        session = chance.choice([self._name, "shared"])
        asked: dict[str, Any] = {"reader": self._name, "session": session, "query": query, "shows": SHOWN[query]}
        asked |= {"bound": bound, "deadline": deadline, "when_stale": when_stale}
        ask = self._own.sql if session == self._name else self._warehouse.sql
        asked["began_at"] = time.time()
        try:
            with self._answer(ask, QUERIES[query], bound, deadline, when_stale) as answer:
                rows = _rows(answer)
                asked["ended_at"] = time.time()
                receipt, again = answer.receipt.to_json(), None
                if chance.random() < 0.2:
                    time.sleep(0.2)
                    again = _rows(answer)
            self._history.add("answer", **asked, job=answer.job, rows=rows, again=again, receipt=receipt)
        except TooStale as error:
            self._history.add("refusal", **asked, ended_at=time.time(), what=str(error))
        except TransientError as error:
            self._history.add("trouble", **asked, ended_at=time.time(), what=f"{type(error).__name__}: {error}")

    def _answer(
        self, ask: Callable[..., Answer], text: str, bound: float | None, deadline: float | None, when_stale: str
    ) -> Answer:
        """Half of the questions say how fresh in their text."""
        if self._chance.random() < 0.5:
            age = "any" if bound is None else bound
            return ask(text, max_staleness=age, deadline=deadline, when_stale=when_stale)
        tail = f" CURRENCY BOUND {'ANY' if bound is None else f'{bound * 1000:.0f} MS'} WHEN STALE {when_stale}"
        return ask(text + tail + ("" if deadline is None else f" DEADLINE {deadline * 1000:.0f} MS"))


def read_for(
    warehouse: headgate.Warehouse, history: History, seconds: float, *, name: str, threads: int, pause: float = 0.1
) -> None:
    """So many threads ask for so long; what stops one is raised."""
    until = time.monotonic() + seconds
    errors: list[BaseException] = []

    def work(number: int) -> None:
        reader = Reader(f"{name}{number}", warehouse, history)
        try:
            asked = 0
            while (time.monotonic() < until or asked < QUESTIONS) and not errors:
                reader.ask()
                asked += 1
                time.sleep(reader._chance.uniform(0, 2 * pause))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=[number]) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def _rows(answer: Answer) -> list[list[Any]]:
    return sorted([list(row.values()) for row in answer.to_arrow().to_pylist()])
