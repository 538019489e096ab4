"""Replicas and dimensions whose events stay in files: the same results, and no rows in the driver."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import headgate
from headgate.capture.locallog import LocalLog
from headgate.capture.places import RowsPlace
from headgate.capture.shape import Shape
from headgate.delta.events import OBSERVED, TRUNCATE
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages import event_files
from headgate.runtime.stages.event_files import EventFiles
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Change, Delete, Dimension, Insert, Row, Table, Truncate, Update
from tests.exactness.world import View, World
from tests.producing.depot import open_depot, rows_of
from tests.seed import SEED

WIDE = {"way": "wide", "rows_per_file": 4, "small_table_rows": 1}
TABLES = {
    "t": Table({"a": "int", "b": "string", "n": "int", "tags": "array<string>"}, ("a", "b")),
    "o": Table({"a": "int", "at": "timestamp", "n": "double"}, ("a",)),
}
DIMENSIONS = [
    Dimension("current", "t", scd_type=1),
    Dimension("versions", "t", track=("n",)),
    Dimension("stamps", "o"),
]
VIEWS = [
    View("rows", "SELECT * FROM s.t"),
    View("stamped", "SELECT a, n, __commit_at AS since FROM s.o"),
]


def test_any_events_give_the_same_from_files_that_replica_and_dimensions_share(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled: list[tuple[object, ...]] = []
    make = EventFiles.__init__
    monkeypatch.setattr(EventFiles, "__init__", lambda *place: (spooled.append(place[2:]), make(*place))[1])
    chosen = random.Random(SEED)
    found = world(TABLES, dimensions=DIMENSIONS, views=VIEWS, limits=WIDE)
    found.commit(*(some_change(chosen) for _ in range(6)), initial=True)
    for _ in range(2):
        for _ in range(3):
            for _ in range(chosen.randint(1, 3)):
                if chosen.random() < 0.3:
                    poll(found, chosen)
                else:
                    found.commit(*(some_change(chosen) for _ in range(chosen.randint(1, 5))))
            found.close_job()
        found.refresh()
        found.check_new_jobs()
    assert spooled and len(spooled) == len(set(spooled)), "the events of a batch were read twice"
    found.reopen()
    found.step(Truncate("t"), some_change(chosen), some_change(chosen))


def some_change(chosen: random.Random) -> Change:
    """Of few keys, so that many events meet."""
    kind = chosen.choice(["insert", "insert", "update", "update", "delete", "move", "truncate"])
    if chosen.random() < 0.3:
        row = some_row(chosen)
        return Delete("o", {"a": row["a"]}) if kind == "delete" else Insert("o", row)
    key = {"a": chosen.randint(1, 3), "b": chosen.choice(["", "x"])}
    whole = {**key, "n": chosen.choice([None, 1, 2]), "tags": chosen.choice([None, [], ["y", None]])}
    match kind:
        case "insert":
            return Insert("t", whole)
        case "update":
            return Update("t", {**key, "n": chosen.randint(1, 3)} if chosen.random() < 0.5 else key)
        case "move":
            return Update("t", whole, key={"a": chosen.randint(1, 3), "b": "x"})
        case "delete":
            return Delete("t", key)
    return Truncate("t") if chosen.random() < 0.3 else Insert("t", whole)


def poll(world: World, chosen: random.Random) -> None:
    """A transaction that shows rows of o, perhaps all there are, without saying whether anything happened to them."""
    source = world.warehouse.source("s")
    before = world.model.state(len(world.model.transactions))["o"]
    is_whole = chosen.random() < 0.5
    seen = {key: some_row(chosen) | {"a": key} for key in chosen.sample([1, 2, 3], 2)}
    for (key,), row in before.items():
        if chosen.random() < 0.6:
            seen[key] = {name: row[name] for name in ("a", "at", "n")}
    moment = world.model.transactions[-1].commit_at + timedelta(minutes=1)
    rows, ops = list(seen.values()), [OBSERVED] * len(seen)
    if is_whole:
        rows, ops = [{}, *rows], [TRUNCATE, *ops]
    with source.log.begin(source.log.end + 1, moment) as writer:
        writer.write("o", Shape("s", source.tables["o"]).build(rows, ops, [()] * len(rows), range(len(rows))))
        writer.commit()
    source.log.sync()
    gone = [Delete("o", {"a": key}) for (key,) in before if is_whole and key not in seen]
    new = [
        Insert("o", row)
        for key, row in seen.items()
        if (key,) not in before or any(repr(before[key,][name]) != repr(row[name]) for name in row)
    ]
    world.model.commit([*gone, *new], moment, initial=False)


def some_row(chosen: random.Random) -> Row:
    at = datetime(2024, 1, chosen.randint(1, 9), tzinfo=UTC)
    return {"a": chosen.randint(1, 3), "at": at, "n": chosen.choice([None, 0.5, float("nan")])}


@pytest.mark.parametrize("ids", [range(40), [*range(20), *range(20)]], ids=["in order", "twice"])
def test_a_large_transaction_is_exact_on_an_empty_table_and_on_rows(world: MakeWorld, ids: Sequence[int]) -> None:
    """Also where the order of its keys tells that none comes twice."""
    found = world(TABLES, views=VIEWS[1:], limits={**WIDE, "transaction_bytes": 500})
    found.commit(*(Insert("o", {"a": number, "n": float(place)}) for place, number in enumerate(ids)), initial=True)
    assert found.warehouse.source("s").log.size("o", 0, 1).in_files == len(ids)
    found.check(found.refresh())
    found.commit(*(Insert("o", {"a": number, "n": 0.5}) for number in ids), Delete("o", {"a": 90}))
    found.check(found.refresh())


def test_a_worker_that_dies_while_it_reads_events_costs_another_attempt(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died, spool = tmp_path / "died", event_files.spool

    def dying(folder: str, schema: pa.Schema, share: tuple[int, Sequence[RowsPlace]]) -> tuple[str, str | None]:
        if not died.exists():
            died.touch()
            os._exit(1)
        return spool(folder, schema, share)

    monkeypatch.setattr(event_files, "spool", dying)
    found = world(TABLES, views=VIEWS, limits=WIDE)
    found.step(Insert("o", {"a": 1, "n": 1.0}), Insert("o", {"a": 2, "n": 1.0}))
    assert died.exists()


@pytest.fixture
def driver_rows(monkeypatch: pytest.MonkeyPatch, spark_sessions: SparkSessions) -> Iterator[list[int]]:
    """How many rows each step brings into this process, or hands from it to Spark."""
    seen: list[int] = []
    frame_class, session_class = type(spark_sessions.small.range(1)), SparkSession
    read, to_arrow, collect = LocalLog.read, frame_class.toArrow, frame_class.collect
    from_arrow = session_class._create_from_arrow_table  # type: ignore[attr-defined]

    def noted_read(log: LocalLog, *what: Any) -> object:
        events = read(log, *what)
        seen.append(events.rows)
        return events

    def noted_arrow(frame: DataFrame) -> pa.Table:
        rows = to_arrow(frame)
        seen.append(rows.num_rows)
        return rows

    def noted_collect(frame: DataFrame) -> list[object]:
        rows = collect(frame)
        seen.append(len(rows))
        return rows

    def noted_from(session: SparkSession, rows: pa.Table, *more: object) -> DataFrame:
        seen.append(rows.num_rows)
        return from_arrow(session, rows, *more)

    monkeypatch.setattr(LocalLog, "read", noted_read)
    monkeypatch.setattr(frame_class, "toArrow", noted_arrow)
    monkeypatch.setattr(frame_class, "collect", noted_collect)
    monkeypatch.setattr(session_class, "_create_from_arrow_table", noted_from)
    yield seen


FLOWS = """
CREATE STREAMING TABLE current; CREATE STREAMING TABLE versions;
CREATE FLOW a AS AUTO CDC INTO current FROM etl.customers KEYS (id) STORED AS SCD TYPE 1;
CREATE FLOW b AS AUTO CDC INTO versions FROM etl.customers KEYS (id) STORED AS SCD TYPE 2;
"""


def test_many_small_transactions_do_not_pass_the_driver(
    spark_sessions: SparkSessions, tmp_path: Path, driver_rows: list[int]
) -> None:
    """Neither those of a table without a key, nor those that are in memory alone."""
    with open_depot(tmp_path, FLOWS, limits={"batch_rows": 1_000, "small_table_rows": 100}) as depot:
        with headgate.connect(depot, tables=["sales", "customers"], durable=False, paramstyle="qmark") as connection:
            cursor = connection.cursor()
            for number in range(60):
                cursor.insert("customers", [(each, "new") for each in range(number * 50, number * 50 + 50)])
                cursor.insert("sales", [(each, 1, number) for each in range(50)])
                connection.commit()
            depot.refresh()
            assert sum(driver_rows) <= 1_000
            for number in range(30):
                changed = [(each,) for each in range(number * 50, number * 50 + 50)]
                cursor.executemany("UPDATE customers SET name = 'old' WHERE id = ?", changed)
                connection.commit()
            driver_rows.clear()
            depot.refresh()
            assert sum(driver_rows) <= 1_000
        answers = {
            "SELECT COUNT(*), COUNT_IF(name = 'old'), COUNT_IF(__end_at IS NULL) FROM versions": (4_500, 1_500, 3_000),
            "SELECT COUNT(*), COUNT_IF(name = 'old') FROM current": (3_000, 1_500),
            "SELECT COUNT(*), COUNT_IF(name = 'old') FROM etl.customers": (3_000, 1_500),
            "SELECT COUNT(*), COUNT(DISTINCT sale), SUM(amount) FROM etl.sales": (3_000, 50, 50 * 1_770),
        }
        for text, expected in answers.items():
            assert rows_of(depot, text) == [expected]
