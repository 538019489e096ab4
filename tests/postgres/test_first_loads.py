"""First loads beside the stream: opening does not wait for them, queries wait for their own tables, answers are what the source has."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import TypeAdapter

import headgate
from headgate.capture.postgres import load
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.log_state import LogState, given_up
from headgate.capture.postgres.snapshot import copy_tables
from headgate.capture.source import Progress
from headgate.errors import FlowFailed, TooStale, UnknownTable
from headgate.runtime.sources import loading
from headgate.runtime.sources.loading import choose_load
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.logged import logged, source_rows
from tests.postgres.warehouses import project
from tests.waiting import PATIENCE, eventually

TABLES = """
CREATE TABLE branches (id int PRIMARY KEY, city text);
CREATE TABLE accounts (id int PRIMARY KEY, branch int, balance int);
CREATE TABLE payments (id int PRIMARY KEY, account int, amount int, note text);
INSERT INTO branches SELECT i, 'c' || i FROM generate_series(0, 4) i;
INSERT INTO accounts SELECT i, i % 5, 100 FROM generate_series(1, 60) i;
INSERT INTO payments SELECT i, i % 60 + 1, i, repeat('x', 5000) FROM generate_series(1, 200) i;
"""
FLOWS = """
CREATE STREAMING TABLE branch;
CREATE FLOW branch_cdc AS AUTO CDC INTO branch FROM bank.branches KEYS (id) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW cities AS SELECT city, COUNT(*) AS n, SUM(balance) AS total
FROM bank.accounts a JOIN bank.branches b ON b.id = a.branch GROUP BY city;
CREATE MATERIALIZED VIEW paid AS SELECT a.branch, SUM(p.amount) AS amount
FROM bank.payments p JOIN bank.accounts a ON a.id = p.account GROUP BY a.branch;
"""
QUERIES = {
    "accounts": "SELECT * FROM bank.accounts",
    "payments": "SELECT id, account, amount, length(note) AS note FROM bank.payments",
    "cities": "SELECT * FROM cities",
    "paid": "SELECT * FROM paid",
    "branch": "SELECT id, city FROM branch WHERE __end_at IS NULL",
}
AT_THE_SOURCE = {
    "accounts": "SELECT * FROM accounts",
    "payments": "SELECT id, account, amount, length(note) FROM payments",
    "cities": "SELECT city, count(*), sum(balance) FROM accounts a JOIN branches b ON b.id = a.branch GROUP BY city",
    "paid": "SELECT branch, sum(amount) FROM payments p JOIN accounts a ON a.id = p.account GROUP BY branch",
    "branch": "SELECT id, city FROM branches",
}


_END_LOAD = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
               WHERE application_name LIKE '%first' AND datname = current_database()"""


class Gate:
    """Lets tables be read, and holds their rows back until it is opened; by default it is open."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_killing = False
        """Whether the server ends the next load's session while the load goes on."""
        self.read: list[tuple[str, ...]] = []
        """The groups whose rows were read, in order."""
        self._changed = threading.Condition()

    def __call__(self, dsn: str, snapshot: str, tables: Collection[PostgresTable], *rest: object, **more: Any) -> int:
        if self.is_killing:
            self.is_killing = False
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(_END_LOAD)
        rows = copy_tables(dsn, snapshot, tables, *rest, **more)  # type: ignore[arg-type]
        names = tuple(sorted(table.source_table.name for table in tables))
        with self._changed:
            self.read.append(names)
            self._changed.notify_all()
            while not self.held.isdisjoint(names):
                self._changed.wait(0.05)
                # A load that is stopped hears of it when it tells how far it is.
                more["progress"](Progress(rows, rows, None))
        return rows

    def wait_for(self, *names: str) -> None:
        """Until the rows of a group are read."""
        with self._changed:
            assert self._changed.wait_for(lambda: names in self.read, 10 * PATIENCE)

    def open(self, *names: str) -> None:
        with self._changed:
            self.held -= set(names)
            self._changed.notify_all()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Every table that no dimension reads is a group of its own."""
    made = Gate()
    monkeypatch.setattr(load, "copy_tables", made)
    monkeypatch.setattr(loading, "SMALL_BYTES", 0)
    yield made
    made.open(*made.held)


def answer(warehouse: headgate.Warehouse, name: str, **bound: object) -> set[tuple[object, ...]]:
    with warehouse.session().sql(QUERIES[name], **bound) as found:  # type: ignore[arg-type]
        return {tuple(row.values()) for row in found.to_arrow().to_pylist()}


def compare(warehouse: headgate.Warehouse, connection: psycopg.Connection, names: Collection[str]) -> None:
    for name in names:
        assert answer(warehouse, name) == set(connection.execute(AT_THE_SOURCE[name]).fetchall()), name


def change(connection: psycopg.Connection, chance: random.Random) -> None:
    """Some rows of every table come, change and go, those with large values too."""
    for _ in range(chance.randint(1, 8)):
        number = chance.randint(1, 200)
        match chance.randint(0, 6):
            case 0:
                connection.execute("UPDATE payments SET amount = amount + 1 WHERE id = %s", [number])
            case 1:
                connection.execute("DELETE FROM payments WHERE id = %s", [number])
            case 2:
                connection.execute(
                    "INSERT INTO payments VALUES (%s, %s, 7, 'new') ON CONFLICT (id) DO UPDATE SET note = 'again'",
                    [number, number % 60 + 1],
                )
            case 3:
                with connection.transaction():
                    connection.execute("UPDATE accounts SET balance = balance - 1 WHERE id = %s", [number % 60 + 1])
                    connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = %s", [number % 59 + 1])
            case 4:
                connection.execute("UPDATE branches SET city = 'd' || %s::text WHERE id = %s", [number, number % 5])
            case 5:
                free = "NOT EXISTS (SELECT FROM payments WHERE id = %s)"
                connection.execute(
                    f"UPDATE payments SET id = %s WHERE id = %s AND {free}", [number + 1000, number, number + 1000]
                )
            case 6:
                connection.execute("DELETE FROM accounts WHERE id = %s", [number % 60 + 1])


def test_a_query_waits_for_its_own_tables_only_and_is_told_what_it_waits_for(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path, gate: Gate
) -> None:
    connection.execute(TABLES)
    chance = random.Random(1)
    gate.held = {"payments"}
    settings = project(tmp_path, database, "log", ["branches", "accounts", "payments"], FLOWS)
    with headgate.open(settings) as warehouse:
        warehouse.load_first("bank.accounts")
        gate.wait_for("payments")
        assert gate.read == [("branches",), ("accounts",), ("payments",)]
        for _ in range(3):
            change(connection, chance)
            # Capture goes on for all tables, and what is loaded is answered.
            compare(warehouse, connection, ["accounts", "cities", "branch"])
        with pytest.raises(TooStale, match=r"bank\.payments is being loaded: bank: read 200 of about"):
            answer(warehouse, "payments", deadline="100ms")
        with pytest.raises(TooStale, match=r"bank\.payments is being loaded"):
            answer(warehouse, "paid", deadline="100ms", when_stale="serve", max_staleness="any")
        with pytest.raises(UnknownTable, match=r"no source table bank\.towns"):
            warehouse.load_first("bank.towns")
        found = warehouse.loads["bank"]
        assert found.unloaded == found.reading == ("payments",) and not found.waiting
        assert found.reason == "payments is the smallest that is left"
        # A flow that is made meanwhile waits, too, and gets the rows.
        warehouse.flow("dear", "SELECT id, amount FROM bank.payments WHERE amount > 100")
    # What is stopped goes on with what is missing.
    connection.execute("UPDATE branches SET city = 'Thun' WHERE id = 0")
    change(connection, chance)
    with headgate.open(settings) as warehouse:
        compare(warehouse, connection, ["accounts", "cities", "branch"])
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(answer, warehouse, "payments")
            eventually(lambda: warehouse.loads["bank"].waiting == {"payments": 1})
            gate.open("payments")
            assert waiting.result() == set(connection.execute(AT_THE_SOURCE["payments"]).fetchall())
        assert warehouse.loads == {}
        with warehouse.session().sql(QUERIES["paid"]) as found_answer:
            assert not found_answer.receipt.missed
        compare(warehouse, connection, QUERIES)
        with warehouse.sql("SELECT id, amount FROM dear") as found_answer:
            dear = {tuple(row.values()) for row in found_answer.to_arrow().to_pylist()}
        assert dear == set(connection.execute("SELECT id, amount FROM payments WHERE amount > 100").fetchall())
        warehouse.close(0)
    assert gate.read.count(("payments",)) == 2 and gate.read.count(("accounts",)) == 1
    # Jobs that were not folded are made again from the log.
    with headgate.open(settings) as warehouse:
        compare(warehouse, connection, QUERIES)
        history = "SELECT id, count(*) AS n FROM branch GROUP BY id"
        with warehouse.sql(history) as found_answer:
            assert sum(row["n"] for row in found_answer.to_arrow().to_pylist()) > 5
    assert len(gate.read) == 4


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_what_the_source_has_whatever_happens_during_the_loads(
    spark_sessions: SparkSessions,
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    gate: Gate,
    seed: int,
) -> None:
    connection.execute(TABLES)
    chance = random.Random(seed)
    settings = project(tmp_path, database, "log", ["branches", "accounts", "payments"], FLOWS)
    if seed:
        # Rows are read by executors, into files of the stream log.
        settings["limits"] = {"spark_load_bytes": "1 KiB"}
    gate.held = {"branches", "accounts", "payments"}

    def kill() -> None:
        gate.is_killing = True

    happening: list[Callable[[], object]] = [
        kill,
        lambda: connection.execute("ALTER TABLE payments ADD COLUMN IF NOT EXISTS more int"),
        lambda: None,
    ]
    chance.shuffle(happening)
    for table, happens, answered in (
        ("branches", happening[0], ["branch"]),
        ("accounts", happening[1], ["accounts", "cities", "branch"]),
        ("payments", happening[2], list(QUERIES)),
    ):
        with headgate.open(settings) as warehouse:
            change(connection, chance)
            happens()
            change(connection, chance)
            gate.open(table)
            compare(warehouse, connection, answered)
            change(connection, chance)
            compare(warehouse, connection, answered)
            warehouse.close(chance.choice([0, 10]))
    with headgate.open(settings) as warehouse:
        assert not warehouse.loads
        compare(warehouse, connection, QUERIES)


def test_a_table_that_cannot_be_read_stops_no_other_and_is_loaded_when_it_can(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(TABLES)
    connection.execute("CREATE TABLE odd (id int PRIMARY KEY, n numeric(5,2)); INSERT INTO odd VALUES (1, 'NaN')")
    tables = ["branches", "accounts", "payments", "odd"]
    with headgate.open(project(tmp_path, database, "log", tables, FLOWS)) as warehouse:
        compare(warehouse, connection, QUERIES)
        eventually(lambda: not warehouse.loads)
        with pytest.raises(FlowFailed, match=r"odd\.n has the value NaN"), warehouse.sql("SELECT * FROM bank.odd"):
            pass
        connection.execute("UPDATE odd SET n = 1")
        warehouse.refresh(table="bank.odd")
        with warehouse.sql("SELECT count(*) AS n FROM bank.odd") as found:
            assert found.to_arrow().to_pylist() == [{"n": 1}]


def test_changes_of_rows_that_are_read_at_that_moment_are_neither_lost_nor_doubled(
    database: str, connection: psycopg.Connection, tmp_path: Path, gate: Gate
) -> None:
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, 'x' FROM generate_series(1, 9) i"
    )
    gate.held = {"a"}
    with logged(database, tmp_path, "a", load=False) as source:
        connection.execute(
            "UPDATE a SET v = 'before' WHERE id = 1; DELETE FROM a WHERE id = 2; INSERT INTO a VALUES (10, 'x')"
        )
        source.catch_up()
        reading = threading.Thread(target=source.method.load, args=[["a"]])
        reading.start()
        gate.wait_for("a")
        connection.execute(
            "UPDATE a SET v = 'behind' WHERE id < 3; DELETE FROM a WHERE id = 4; UPDATE a SET id = 30 WHERE id = 3"
        )
        source.catch_up()
        gate.open("a")
        reading.join()
        source.catch_up()
        first = source.method.loads.found["a"]
        assert first.read_at is not None and first.entered_at is not None and first.read_at < first.entered_at
        assert source.replica("a") == source_rows(connection, "a")
    with logged(database, tmp_path, "a") as source:
        assert source.method.loads.found["a"].entered_at == first.entered_at
        assert source.replica("a") == source_rows(connection, "a")


def test_what_the_version_before_left_says_that_its_tables_are_loaded() -> None:
    column = {"name": "id", "type_oid": 23, "typmod": -1}
    table = {"oid": 7, "entry": 8, "columns": [column], "load": 99, "again": False, "problem": None}
    found = {"system": "1", "timeline": 1, "offset": 0, "told": 120, "tables": {"a": table}}
    state = TypeAdapter(LogState).validate_python(found)
    assert not state.tables["a"].is_waiting and state.tables["a"].entered_at is None
    again = given_up(state.tables["a"])
    assert (again.read_at, again.entered_at, again.is_waiting) == (99, 99, False)


def test_the_next_tables_are_those_with_history_then_those_put_first_then_those_most_wait_for() -> None:
    sizes = {"a": 50, "b": 10, "c": 40, "d": 500}
    assert choose_load(sizes, {"c", "d"}, (), {"a": 9}, 0).tables == ("c", "d")
    assert choose_load(sizes, (), ("d",), {"a": 9}, 0) == loading.LoadChoice(("d",), "d was put first")
    assert choose_load(sizes, (), (), {"a": 2, "c": 3}, 0) == loading.LoadChoice(("c",), "3 queries wait for c")
    assert choose_load(sizes, (), (), {}, 0).tables == ("b",)
    assert choose_load(sizes, (), (), {"c": 1}, 60).tables == ("c", "b")
    assert choose_load(sizes, {"a"}, (), {}, 100).tables == ("a", "b", "c")
