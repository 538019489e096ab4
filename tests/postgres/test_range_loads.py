"""Tables that are loaded range by range from a real server: answers are what the source had at their job, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headgate
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.replication import ReplicationStream
from headgate.errors import DefiniteError, FlowFailed, TooStale
from headgate.runtime.sources import loading
from headgate.runtime.sources.range_loads import RangeLoads
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse.statistics import DataFile
from tests.postgres.warehouses import project
from tests.seed import SEED
from tests.waiting import eventually

EXAMPLES = int(os.environ.get("HEADGATE_EXAMPLES", 1))
KEYS = 80
TABLES = f"""
CREATE TABLE facts (k bigint, n int, v int, note text, PRIMARY KEY (k, n));
CREATE TABLE tick (id int PRIMARY KEY, n int);
INSERT INTO facts SELECT i % {KEYS}, i / {KEYS}, i, repeat('x', 3000) FROM generate_series(0, {3 * KEYS - 1}) i;
INSERT INTO tick VALUES (1, 0);
"""
FLOWS = "CREATE MATERIALIZED VIEW summed AS SELECT k, SUM(v) AS s, COUNT(*) AS c FROM bank.facts GROUP BY k;"
Rows = dict[tuple[int, int], tuple[int | None, int]]
"""By key the value, and how long the note is."""


class Bank:
    """The source, and what it had after each of its transactions: the one that made tick n."""

    def __init__(self, connection: psycopg.Connection, choice: random.Random) -> None:
        self._connection = connection
        self._choice = choice
        self._lock = threading.Lock()
        self.states: list[Rows] = []
        connection.execute(TABLES.encode())
        self._note()

    def _note(self) -> None:
        rows = self._connection.execute("SELECT k, n, v, length(note) FROM facts").fetchall()
        self.states.append({(k, n): (v, note) for k, n, v, note in rows})

    def change(self) -> None:
        choice = self._choice
        with self._lock:
            with self._connection.transaction():
                for _ in range(choice.randint(1, 6)):
                    k, n = choice.randrange(KEYS), choice.randrange(4)
                    match choice.randrange(6):
                        case 0:
                            self._connection.execute("DELETE FROM facts WHERE k = %s AND n = %s", [k, n])
                        case 1:
                            move = "UPDATE facts SET k = %s WHERE k = %s AND n = %s AND NOT EXISTS"
                            other = choice.randrange(KEYS)
                            self._connection.execute(
                                f"{move} (SELECT FROM facts WHERE k = %s AND n = %s)".encode(), [other, k, n, other, n]
                            )
                        case 2 | 3:
                            self._connection.execute("UPDATE facts SET v = v + 7 WHERE k = %s AND n < 3", [k])
                        case _:
                            self._connection.execute(
                                "INSERT INTO facts VALUES (%s, %s, %s, 'new') ON CONFLICT (k, n) DO UPDATE SET v = -1",
                                [k, n, choice.randrange(99)],
                            )
                self._connection.execute("UPDATE tick SET n = n + 1")
            self._note()

    def alter(self, statement: str) -> None:
        with self._lock:
            self._connection.execute(statement.encode())


class Crash:
    """What lay on the disk at a step, as a kill leaves it: the server hears nothing from then on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.warehouse: Any = None
        self._folder = folder
        self._is_dead = False
        confirm = ReplicationStream.confirm

        def unless_dead(stream: ReplicationStream, lsn: int, *, reply: bool = False) -> None:
            if not self._is_dead:
                confirm(stream, lsn, reply=reply)

        monkeypatch.setattr(ReplicationStream, "confirm", unless_dead)

    def step(self, step: str) -> None:
        if self.left == 0 and not self._is_dead:
            self._is_dead = True
            method = None if self.warehouse is None else self.warehouse._engine.sources["bank"]._method
            # A kill leaves one moment of the log and of what is noted beside it.
            with nullcontext() if method is None else method._lock, suppress(shutil.Error):
                shutil.copytree(self._folder / "warehouse", self._folder / "copy")
        if self.left is not None:
            self.left -= 1

    def restore(self) -> None:
        if self._is_dead:
            shutil.rmtree(self._folder / "warehouse")
            (self._folder / "copy").rename(self._folder / "warehouse")
        self._is_dead, self.left, self.warehouse = False, None, None


class Groups(list[Callable[[], None]]):
    """What is done while groups are read, one for each."""

    is_killing = False
    """Whether the server ends the session that holds the next group's snapshot."""


_END_LOAD = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
               WHERE application_name LIKE '%first' AND datname = current_database()"""


@pytest.fixture
def choice() -> random.Random:
    return random.Random(f"ranges of a server {SEED}")


@pytest.fixture
def bank(connection: psycopg.Connection, choice: random.Random) -> Bank:
    return Bank(connection, choice)


@pytest.fixture
def groups(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Groups]:
    """What is done while the next groups are read, behind their positions; none is read before there is something for it."""
    waiting = Groups()
    run = RangeLoads._run

    def between(self: RangeLoads, *given: object) -> list[DataFile]:
        if waiting.is_killing:
            waiting.is_killing = False
            connection.execute(_END_LOAD)
        found = run(self, *given)  # type: ignore[arg-type]
        is_stopped = given[-1]
        while not waiting and not is_stopped():  # type: ignore[operator]
            time.sleep(0.01)
        if waiting:
            waiting.pop(0)()
        return found

    monkeypatch.setattr(RangeLoads, "_run", between)
    monkeypatch.setattr(RangeLoads, "most", 1)
    monkeypatch.setattr(loading, "_RETRY_SECONDS", 0.1)
    with server.connect("test") as connection:
        yield waiting


def settings(folder: Path, dsn: str, flows: str = FLOWS) -> dict[str, object]:
    found = project(folder, dsn, "log", ["facts", "tick"], flows)
    return {**found, "limits": {"spark_load_bytes": "16 KiB", "rows_per_file": 20, "small_table_rows": 1}}


def ask(warehouse: headgate.Warehouse, bank: Bank, low: int, high: int, view: bool, **bound: object) -> None:
    """Compares a range of keys with what the source had at the answer's tick."""
    columns, table = ("k, s, c", "summed") if view else ("k, n, v, length(note) AS l", "bank.facts")
    text = f"SELECT (SELECT n FROM bank.tick) AS tick, {columns} FROM {table} WHERE k >= {low} AND k < {high}"
    with warehouse.session().sql(text, **({"max_staleness": "0s", "deadline": "60s"} | bound)) as answer:  # type: ignore[arg-type]
        found = [tuple(row.values()) for row in answer.to_arrow().to_pylist()]
    if not found:
        return
    state = {key: value for key, value in bank.states[int(found[0][0])].items() if low <= key[0] < high}
    if view:
        expected: Sequence[tuple[object, ...]] = [
            (k, sum(v or 0 for (other, _), (v, _) in state.items() if other == k), sum(key[0] == k for key in state))
            for k in {key[0] for key in state}
        ]
    else:
        expected = [(*key, *value) for key, value in state.items()]
    assert sorted(row[1:] for row in found) == sorted(expected)


def unread(warehouse: headgate.Warehouse) -> int:
    return len(warehouse._engine.replicas.stages["bank.facts"].unread)


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_answers_are_what_the_source_had_at_their_job_whatever_happens_during_the_load(
    spark_sessions: SparkSessions,
    database: str,
    bank: Bank,
    choice: random.Random,
    groups: Groups,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    choice.seed(f"ranges of a server {SEED} {number}")
    crash = Crash(tmp_path, monkeypatch)
    altered = [
        lambda: bank.alter("ALTER TABLE facts ADD COLUMN more int"),
        lambda: bank.alter("ALTER TABLE facts ADD COLUMN other int DEFAULT 5"),
    ]
    is_begun = False
    for attempt in range(4):
        if attempt < 2:
            crash.left = choice.randint(0, 12)
        with headgate.open(settings(tmp_path, database), step=crash.step) as warehouse:
            crash.warehouse = warehouse
            if not is_begun:
                assert unread(warehouse) == 4, "a large table has ranges by itself"
                is_begun = True
            for _ in range(choice.randint(1, 3)):
                bank.change()
                if altered and choice.random() < 0.15:
                    altered.pop()()
                groups.is_killing = choice.random() < 0.3
                groups += [bank.change] * choice.randint(1, 2)
                low = choice.randrange(KEYS)
                ends = threading.Event()
                feeding = threading.Thread(target=feed, args=[groups, bank, ends])
                feeding.start()
                try:
                    ask(warehouse, bank, low, low + choice.randint(1, 30), choice.random() < 0.5)
                finally:
                    ends.set()
                    feeding.join()
            warehouse.close(choice.choice([0, 10]))
        groups.clear()
        crash.restore()
    with headgate.open(settings(tmp_path, database)) as warehouse:
        groups += [bank.change] * 20
        eventually(lambda: not unread(warehouse) and not warehouse.loads)
        bank.change()
        for view in (True, False):
            ask(warehouse, bank, 0, KEYS, view)


def feed(groups: Groups, bank: Bank, ends: threading.Event) -> None:
    """While somebody waits, groups are read, each with changes behind it."""
    while not ends.wait(0.05):
        if not groups:
            groups.append(bank.change)


def test_a_query_that_takes_what_there_is_gets_the_loaded_ranges_and_hears_what_is_missing(
    spark_sessions: SparkSessions,
    database: str,
    connection: psycopg.Connection,
    bank: Bank,
    groups: Groups,
    tmp_path: Path,
) -> None:
    with headgate.open(settings(tmp_path, database)) as warehouse:
        low, high = bounds(warehouse)[2:4]
        with pytest.raises(DefiniteError, match=r"all ranges of bank\.facts can hold rows for which n = 1 is true"):
            warehouse.load_first("bank.facts WHERE n = 1")
        warehouse.load_first(f"bank.facts WHERE k >= {low} AND k < {high}")
        # The first group, one range, may have been chosen before that.
        groups += [bank.change, bank.change]
        eventually(lambda: unread(warehouse) <= 2 and warehouse.loads["bank"].ranges["facts"].rate)
        stage = warehouse._engine.replicas.stages["bank.facts"]
        loaded = sorted({0, 1, 2, 3} - stage.unread)
        assert 2 in loaded
        loads = warehouse.loads["bank"].ranges["facts"]
        assert (loads.count, loads.read) == (4, len(loaded)) and loads.rows > 0 and loads.rate and loads.remaining
        for text in ("SELECT k FROM bank.facts", "SELECT k FROM summed"):
            with warehouse.sql(text, max_staleness="0s", deadline="6s", when_stale="serve") as answer:
                found = {row["k"] for row in answer.to_arrow().to_pylist()}
                read = next(each for each in answer.receipt.ranges if each.table == text.split()[-1])
            missing = [stage.target.range_map.name(number) for number in sorted(stage.unread)]
            assert answer.receipt.missed and read.missing == tuple(missing)
            assert f"lacks {', '.join(missing)}, not loaded yet" in str(answer.receipt.why_missed)
            map_ = stage.target.range_map
            expected = {key[0] for key in bank.states[-1] if map_.of(key[0]) in loaded}
            assert found == expected
        with pytest.raises(TooStale, match=r"bank\.facts \(. of 4 ranges are loaded\)"):
            ask(warehouse, bank, 0, KEYS, view=False, deadline="100ms")
        # A value that has no counterpart stops the table, and what is loaded goes on.
        connection.execute("ALTER TABLE facts ADD COLUMN odd numeric(5, 2); UPDATE facts SET odd = 'NaN'")
        groups += [bank.change] * 9
        eventually(lambda: "facts" in warehouse._engine.sources["bank"].problems)
        with pytest.raises(FlowFailed, match=r"has the value NaN"):
            ask(warehouse, bank, 0, KEYS, view=False)
        connection.execute("UPDATE facts SET odd = 1")
        warehouse.refresh(table="bank.facts")
        assert not unread(warehouse)
        for view in (True, False):
            ask(warehouse, bank, 0, KEYS, view)


def bounds(warehouse: headgate.Warehouse) -> list[object]:
    return [None, *warehouse._engine.replicas.stages["bank.facts"].target.range_map.bounds]


def test_tables_whose_ranges_cannot_be_read_by_themselves_are_loaded_whole(
    spark_sessions: SparkSessions, database: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    filled = "SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 400) i"
    connection.execute(
        'CREATE TABLE words (w char(9) PRIMARY KEY, v text); CREATE TABLE bytes (w text COLLATE "C" PRIMARY KEY, v text);'
        "CREATE TABLE days (d date PRIMARY KEY, v text); CREATE TABLE parts (d timestamptz, i int, v text, PRIMARY KEY (d, i))"
        " PARTITION BY RANGE (d); CREATE TABLE part PARTITION OF parts DEFAULT;"
        f"INSERT INTO words {filled}; INSERT INTO bytes {filled}; CREATE TABLE branches (id int PRIMARY KEY, v text);"
        f"INSERT INTO days SELECT date '2026-01-01' + s.i, s.repeat FROM ({filled}) s;"
        f"INSERT INTO parts SELECT timestamptz '2026-01-01' + make_interval(hours => s.i), s.i, s.repeat FROM ({filled}) s;"
        f"INSERT INTO branches {filled}; ANALYZE".encode()
    )
    tables = ["words", "bytes", "days", "parts", "branches"]
    flows = (
        "CREATE STREAMING TABLE branch;"
        "CREATE FLOW branch_cdc AS AUTO CDC INTO branch FROM bank.branches KEYS (id) STORED AS SCD TYPE 2;"
    )
    found = {**project(tmp_path, database, "log", tables, flows), "limits": {"spark_load_bytes": "16 KiB"}}
    with headgate.open(found) as warehouse:
        stages = warehouse._engine.replicas.stages
        assert {name for name, stage in stages.items() if stage.by_range} == {"bank.bytes", "bank.days", "bank.parts"}
        for table in tables:
            with warehouse.sql(f"SELECT count(*) AS n, count(DISTINCT v) AS d FROM bank.{table}") as answer:
                assert answer.to_arrow().to_pylist() == [{"n": 400, "d": 400}]
        eventually(lambda: not warehouse.loads)
