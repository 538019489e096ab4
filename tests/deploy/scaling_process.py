"""A warehouse that scales on a standalone cluster, in a process of its own: two sources whose rates rise and fall, and a
procedure that waits for every row, as a slow lookup does. Tells twice a second how it is, and in the end what is lost or doubled.

    python -m tests.deploy.scaling_process '{"folder": …, "master": …, "dsn": …, "phases": [[10, 20], [30, 300]], …}'

    producer ──► etl.events ──► looked_up (waits `wait` seconds for every row)
    PostgreSQL, by trigger ──► shop.sales ──► sold

Started again with the same folder after it was killed, it goes on with the row after the last one that was acknowledged.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame

import headgate
from headgate import Procedure, Warehouse
from headgate.runtime.stages.procedures import Call

SLOTS = 4
"""Of an executor: its tasks wait most of the time."""
COMMITS = 5
"""Of the producer in a second."""
ITEMS = 10
TASKS = 24
"""Of one call of the procedure."""


@dataclass
class Plan:
    """What the process is told."""

    folder: str
    master: str
    dsn: str
    phases: list[tuple[float, int]]
    """Seconds, and rows a second of the producer; PostgreSQL gets a tenth of them."""
    least: int = 1
    most: int = 3
    wait: float = 0.02
    patience: float = 0.0
    """Seconds that the last phase may last longer, until executors have been let go."""


@dataclass
class Running:
    """The warehouse and its writers."""

    warehouse: Warehouse
    plan: Plan
    began: float = field(default_factory=time.monotonic)
    rate: int = 0
    last: int = 0
    """The last row that the producer has committed."""
    commits: deque[tuple[int, float]] = field(default_factory=deque)
    """Commits that are not in the tables yet: their last row, and when they were acknowledged."""
    over: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)

    def produce(self) -> None:
        with headgate.connect(self.warehouse, source="etl", tables=["events"]) as connection:
            while not self.over.wait(1 / COMMITS):
                count = max(1, self.rate // COMMITS)
                ids = range(self.last + 1, self.last + count + 1)
                rows = {"id": list(ids), "item": [each % ITEMS for each in ids], "amount": list(ids)}
                connection.cursor().insert("events", pa.table(rows, schema=EVENTS))
                connection.commit()
                self.last = ids[-1]
                self.commits.append((self.last, time.monotonic()))

    def sell(self) -> None:
        with psycopg.connect(self.plan.dsn, autocommit=True) as server:
            while not self.over.wait(1 / COMMITS):
                server.execute(
                    "INSERT INTO sales (item, amount) SELECT i %% %s, i FROM generate_series(1, %s) i",
                    [ITEMS, max(1, self.rate // 10 // COMMITS)],
                )

    def refresh(self) -> None:
        while not self.over.is_set():
            seen = self.last
            self.warehouse.refresh()
            while self.commits and self.commits[0][0] <= seen:
                self.commits.popleft()

    def tell(self, phase: int) -> None:
        status = self.warehouse.scaling.status
        waiting = next(iter(tuple(self.commits)), None)
        lag = 0.0 if waiting is None else time.monotonic() - waiting[1]
        say(
            at=time.monotonic() - self.began,
            phase=phase,
            rate=self.rate,
            lag=lag,
            executors=status.executors,
            transform=status.parts["transform"].size,
            last=self.last,
        )

    def guarded(self, work: Any) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)
                self.over.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


EVENTS = pa.schema([("id", pa.int64()), ("item", pa.int32()), ("amount", pa.int64())])


def say(**told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def project(plan: Plan) -> dict[str, object]:
    folder = Path(plan.folder)
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "sold.sql").write_text(
        "CREATE MATERIALIZED VIEW sold AS SELECT item, COUNT(*) AS sales, SUM(amount) AS amount FROM shop.sales GROUP BY item"
    )
    return {
        "name": "scaled",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": {
            "spark.master": plan.master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.cores": str(SLOTS),
            "spark.executor.memory": "512m",
        },
        # A job of more rows than that is the executors' work.
        "limits": {"batch_rows": 100, "stream_bytes": "8MiB"},
        "scaling": {
            "executors": {"min": plan.least, "max": plan.most, "ready": 0},
            "transform": {"queue": "0.5%"},
            "hold": "2s",
        },
        "sources": {
            "etl": {
                "type": "producer",
                "tables": {
                    "events": {"columns": {"id": "bigint", "item": "int", "amount": "bigint"}, "key": ["id"]},
                },
            },
            "shop": {"type": "postgres", "dsn": plan.dsn, "capture": "trigger", "tables": {"sales": {"key": ["id"]}}},
        },
    }


def look_up(wait: float) -> Procedure:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(wait * batch.num_rows)
            yield batch

    def function(frame: DataFrame, call: Call) -> DataFrame:
        # Few bytes that take long: Spark alone would make one task of them. Small tasks, so that executors that come have some left.
        appeared = frame.where("__weight > 0").select("id", "item", "amount").repartition(TASKS)
        return appeared.mapInArrow(slowly, "id bigint, item int, amount bigint")

    columns = {"id": "bigint", "item": "int", "amount": "bigint"}
    return Procedure("looked_up", on="etl.events", function=function, columns=columns, key=["id"])


def rows(warehouse: Warehouse, query: str) -> list[tuple[Any, ...]]:
    with warehouse.sql(query, max_staleness="0s") as answer:
        return sorted(tuple(row) for row in answer.collect())


def found(warehouse: Warehouse, running: Running) -> dict[str, object]:
    """What is in the tables, against the sources."""
    warehouse.refresh()
    wrong: dict[str, object] = {"rows": running.last, "lost": 0, "doubled": 0}
    for table in ("etl.events", "looked_up"):
        query = f"SELECT COUNT(*), COUNT(DISTINCT id), MIN(id), MAX(id), SUM(amount) FROM {table}"
        count, distinct, first, last, amount = rows(warehouse, query)[0]
        wrong["lost"] = max(int(wrong["lost"]), running.last - distinct)  # type: ignore[call-overload]
        wrong["doubled"] = max(int(wrong["doubled"]), count - distinct)  # type: ignore[call-overload]
        assert (first, last, amount) == (1, running.last, running.last * (running.last + 1) // 2), table
    with psycopg.connect(running.plan.dsn) as server:
        query = "SELECT item, COUNT(*), SUM(amount)::bigint FROM sales GROUP BY item"
        wrong["sold"] = rows(warehouse, "SELECT item, sales, amount FROM sold") == sorted(
            server.execute(query).fetchall()
        )
    return wrong


def has_shrunk(warehouse: Warehouse) -> bool:
    changes = warehouse.scaling.status.changes
    return any(change.part == "executors" and change.after < change.before for change in changes)


def main(told: str) -> None:
    plan = Plan(**json.loads(told))
    with headgate.open(project(plan), procedures=[look_up(plan.wait)]) as warehouse:
        warehouse.refresh()
        running = Running(warehouse, plan)
        running.last = rows(warehouse, "SELECT COALESCE(MAX(id), 0) FROM etl.events")[0][0]
        say(opened=running.last)
        running.rate = plan.phases[0][1]
        threads = [running.guarded(work) for work in (running.produce, running.sell, running.refresh)]
        try:
            for phase, (seconds, rate) in enumerate(plan.phases):
                running.rate = rate
                end = time.monotonic() + seconds
                while time.monotonic() < end and not running.over.wait(0.5):
                    running.tell(phase)
            end = time.monotonic() + plan.patience
            while time.monotonic() < end and not running.over.wait(0.5) and not has_shrunk(warehouse):
                running.tell(phase)
        finally:
            running.over.set()
            for thread in threads:
                thread.join()
        if running.failures:
            raise running.failures[0]
        changes = [f"{change.part} {change.before} {change.after}" for change in warehouse.scaling.status.changes]
        say(**found(warehouse, running), changes=changes)


if __name__ == "__main__":
    main(sys.argv[1])
