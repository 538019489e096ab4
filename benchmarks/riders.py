"""Riders: how much maintenance many queries share. 100 clients ask at random times while transfers keep being committed.

    make bench NAME=riders SCALE=tiny|small|full

Each client's queries arrive as a Poisson process, one at a time. Half of the clients want bound 0, the other half 1, 2, 5 or 10 s;
all give up at a deadline. A writer commits transfers between branches at a steady rate.

    maintenance_executions_per_query   batches of jobs that were brought through the whole flow, per query: how often the table
                                       that is asked for moved
    stage_executions_per_query         batches of all three stages: the two replicas and the view; a replica takes jobs as they are
                                       closed, and the view then several of them at once
    snapshots_per_query                different jobs that were read, per query
    jobs_per_query                     jobs that were closed, per query
    bounds_met                         queries whose answer came in time, holds every transfer acknowledged before the instant that
                                       the bound names, and none torn; judged from the writer's own history, not from receipts
    shared_cut                         queries that used a job which another had closed, or one that was there
    wait                               seconds for a snapshot (capture, queue, Spark); `answer` is until the rows are there
"""

from __future__ import annotations

import bisect
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import headgate
from benchmarks.report import parse_scale, publish, say
from benchmarks.spark import spark_settings
from headgate import Receipt, Warehouse
from headgate.errors import TransientError

CLIENTS = 100
QUERIES_PER_SECOND = {"tiny": 10.0, "small": 10.0, "full": 10.0}
SECONDS = {"tiny": 5.0, "small": 60.0, "full": 300.0}
WARM_UP_QUERIES = {"tiny": 3, "small": 100, "full": 100}
DEADLINE = 10.0
LOOSER = (1.0, 2.0, 5.0, 10.0)
TRANSFERS_PER_SECOND = 20.0
ROWS_PER_TRANSFER = 6
BRANCHES = 50

FLOW = """
CREATE MATERIALIZED VIEW branch_totals AS
SELECT b.name, SUM(t.amount) AS total, COUNT(*) AS entries
FROM bank.transfers t JOIN bank.branches b ON b.branch = t.branch GROUP BY b.name;
"""
QUERY = "SELECT SUM(entries) AS entries, SUM(total) AS total FROM branch_totals"

TARGETS = {"maintenance_executions_per_query": ("<=", 0.2), "bounds_met": (">=", 1.0)}


def open_bank(folder: Path, scale: str) -> Warehouse:
    (folder / "flows").mkdir()
    (folder / "flows" / "bank.sql").write_text(FLOW, encoding="utf-8")
    tables: Mapping[str, object] = {
        "transfers": {"columns": {"id": "bigint", "branch": "int", "amount": "bigint"}, "key": ["id"]},
        "branches": {"columns": {"branch": "int", "name": "string"}, "key": ["branch"]},
    }
    warehouse = headgate.open(
        {
            "name": "riders",
            "storage": str(folder / "warehouse"),
            "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
            "spark": spark_settings(scale, "2g"),
            "sources": {"bank": {"type": "memory", "tables": tables}},
        }
    )
    with warehouse.source("bank").transaction(initial=True) as transaction:
        for branch in range(BRANCHES):
            transaction.insert("branches", {"branch": branch, "name": f"branch {branch}"})
    return warehouse


class Writer:
    """Commits transfers, whose entries add up to nothing, and remembers when each was acknowledged."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._source = warehouse.source("bank")
        self._random = Random(1)
        self._entries = 0
        self._ended = threading.Event()
        self.acknowledged: list[float] = []
        """Of each transfer the time at which its commit returned, on the monotonic clock."""
        self.began = 0
        """Transfers whose commit has begun."""

    def commit(self) -> None:
        self.began += 1
        with self._source.transaction() as transaction:
            amounts = [self._random.randint(1, 1000) for _ in range(ROWS_PER_TRANSFER - 1)]
            for amount in (*amounts, -sum(amounts)):
                row = {"id": self._entries, "branch": self._random.randrange(BRANCHES), "amount": amount}
                transaction.insert("transfers", row)
                self._entries += 1
        self.acknowledged.append(time.monotonic())

    def write(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / TRANSFERS_PER_SECOND, time.monotonic() - 1.0)
            self.commit()

    def end(self) -> None:
        self._ended.set()

    def before(self, at: float) -> int:
        """Transfers acknowledged before an instant."""
        return bisect.bisect_left(self.acknowledged, at)


class Watcher:
    """Sees each job that the table reaches; a batch takes several times as long as the time between two looks."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._ended = threading.Event()
        self.reached: set[int] = set()

    def watch(self) -> None:
        first = self._look()
        while not self._ended.wait(0.02):
            self.reached.add(self._look())
        self.reached.discard(first)

    def _look(self) -> int:
        return next(table.through for table in self._warehouse.status.tables if table.name == "branch_totals")

    def end(self) -> None:
        self._ended.set()


@dataclass(frozen=True)
class Asked:
    """One query and what came of it."""

    bound: float
    asked: float
    answered: float
    late: float
    """Seconds after its arrival at which it was asked: its client was busy with the one before."""
    wrong: str | None = None
    """What the answer lacks or has too much."""
    missed: str | None = None
    """Why there was no answer in time."""
    job: int = 0
    receipt: Receipt | None = None


@dataclass
class Client:
    """Asks at the times of a Poisson process."""

    number: int
    warehouse: Warehouse
    writer: Writer
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = Random(self.number)
        self.bound = 0.0 if self.number % 2 == 0 else LOOSER[self.number // 2 % len(LOOSER)]
        self._session = self.warehouse.session()

    def ask_until(self, start: float, end: float, per_second: float) -> None:
        arrival = start
        while (arrival := arrival + self._random.expovariate(per_second)) < end:
            time.sleep(max(0.0, arrival - time.monotonic()))
            self.asked.append(self.ask(arrival))

    def ask(self, arrival: float) -> Asked:
        asked = time.monotonic()
        expected = self.writer.before(asked - self.bound)
        try:
            with self._session.sql(QUERY, max_staleness=self.bound, deadline=DEADLINE, when_stale="fail") as answer:
                row = answer.collect()[0]
                receipt, job = answer.receipt, answer.job
        except TransientError as error:
            return Asked(self.bound, asked, time.monotonic(), asked - arrival, missed=str(error))
        answered, possible = time.monotonic(), self.writer.began
        wrong = None
        transfers, torn = divmod(row.entries or 0, ROWS_PER_TRANSFER)
        if torn or row.total:
            wrong = f"{row.entries} entries that add up to {row.total}: a transfer is torn"
        elif not expected <= transfers <= possible:
            wrong = f"{transfers} transfers, {expected} were acknowledged in time, {possible} begun"
        elif receipt.missed:
            wrong = f"the receipt says missed: {receipt.why_missed}"
        return Asked(self.bound, asked, answered, asked - arrival, wrong, job=job, receipt=receipt)


def measure(scale: str, folder: Path) -> dict[str, object]:
    with open_bank(folder, scale) as warehouse:
        writer = Writer(warehouse)
        clients = [Client(number, warehouse, writer) for number in range(CLIENTS)]
        for number in range(WARM_UP_QUERIES[scale]):
            writer.commit()
            clients[number % CLIENTS].ask(time.monotonic())
        say(f"{CLIENTS} clients ask {QUERIES_PER_SECOND[scale]:g} queries a second for {SECONDS[scale]:g} s")
        before, executed = warehouse.newest_job, warehouse.status.executions
        watcher = Watcher(warehouse)
        with ThreadPoolExecutor(CLIENTS + 2) as pool:
            writing, watching = pool.submit(writer.write), pool.submit(watcher.watch)
            start = time.monotonic()
            end = start + SECONDS[scale]
            asking = [
                pool.submit(client.ask_until, start, end, QUERIES_PER_SECOND[scale] / CLIENTS) for client in clients
            ]
            try:
                for each in asking:
                    each.result()
            finally:
                writer.end()
                watcher.end()
            writing.result()
            watching.result()
            took = time.monotonic() - start
        asked = [each for client in clients for each in client.asked]
        per_query = {
            "maintenance_executions_per_query": len(watcher.reached) / len(asked),
            "stage_executions_per_query": (warehouse.status.executions - executed) / len(asked),
            "jobs_per_query": (warehouse.newest_job - before) / len(asked),
        }
        return {**per_query, **figures(asked), "queries_per_second": len(asked) / took}


def figures(asked: Sequence[Asked]) -> dict[str, object]:
    count = len(asked)
    answered = [(each, each.receipt) for each in asked if each.receipt is not None]
    for each in asked:
        if problem := each.wrong or each.missed:
            say(f"  bound {each.bound:g} s, after {each.answered - each.asked:.1f} s: {problem}")
    waits = {each: found.waited.capture + found.waited.queue + found.waited.spark for each, found in answered}
    by_bound = {
        f"{bound:g}": {
            "queries": sum(each.bound == bound for each in asked),
            "shared_cut": _share([found.shared_cut for each, found in answered if each.bound == bound]),
            **_percentiles("wait", [wait for each, wait in waits.items() if each.bound == bound]),
        }
        for bound in (0.0, *LOOSER)
    }
    return {
        "bounds_met": _share([each.wrong is None and each.missed is None for each in asked]),
        "wrong_answers": sum(each.wrong is not None for each in asked),
        "snapshots_per_query": len({each.job for each, _ in answered}) / count,
        "shared_cut": _share([found.shared_cut for _, found in answered]),
        "caused_a_job": _share([found.closed_job for _, found in answered]),
        **_percentiles("wait", list(waits.values())),
        **_percentiles("answer", [each.answered - each.asked for each, _ in answered]),
        **_percentiles("late", [each.late for each in asked]),
        "queries": count,
        "deadline": DEADLINE,
        "by_bound": by_bound,
    }


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0


def _percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    in_order = sorted(values) or [0.0]
    return {
        f"{name}_p{percent}": in_order[min(len(in_order) - 1, len(in_order) * percent // 100)] for percent in (50, 99)
    }


def main() -> None:
    scale = parse_scale(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        results = measure(scale, Path(place))
    publish("riders", scale, results, TARGETS)
    if results["wrong_answers"]:
        raise SystemExit("an answer was wrong")


if __name__ == "__main__":
    main()
