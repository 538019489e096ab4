"""Producers and readers of one warehouse: each row is seen exactly once, at one consistent cut, and nothing rests on what could be lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pygrametl
import pytest
from deltalake import DeltaTable
from pygrametl.tables import CachedDimension, FactTable
from pyspark.sql import DataFrame

import headgate
import headgate.client
from headgate import Warehouse
from headgate.errors import DefiniteError, ProducerBusy
from headgate.producing import Connection, OnDemand
from headgate.runtime.stages.procedures import Call, Procedure
from headgate.service import Server
from headgate.warehouse.roles import Roles
from tests.producing.depot import elastic, open_depot, project, rows_of

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("spark_sessions")


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[Warehouse]:
    with open_depot(tmp_path) as warehouse:
        yield warehouse


def producer(warehouse: Warehouse, **options: object) -> Connection:
    return headgate.connect(warehouse, tables=["sales", "customers"], paramstyle="qmark", **options)  # type: ignore[arg-type]


def test_rows_are_seen_as_soon_as_they_are_committed(depot: Warehouse) -> None:
    with depot.source("shop").transaction() as transaction:
        transaction.insert("items", {"id": 1, "name": "nail"})
    with producer(depot) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO sales VALUES (?, ?, ?)", (1, 1, 10))
        cursor.execute("INSERT INTO sales (sale, item, amount) VALUES (2, 1, 20)")
        assert rows_of(depot, "SELECT * FROM etl.sales") == []
        connection.commit()
        assert rows_of(depot, "SELECT * FROM etl.sales") == [(1, 1, 10), (2, 1, 20)]
        assert rows_of(depot, "SELECT * FROM sold") == [(1, 2, 30)]
        assert rows_of(depot, "SELECT * FROM named") == [(1, "nail"), (2, "nail")]
        cursor.insert("sales", pa.table({"sale": [3, 4], "item": [1, 2], "amount": [5, 6]}))
        connection.rollback()
        cursor.insert("sales", [(5, 1, 1), (5, 1, 1)])
        connection.commit()
        assert rows_of(depot, "SELECT * FROM sold") == [(1, 4, 32)]


def test_a_role_that_can_produce_fills_tables_through_the_service(depot: Warehouse) -> None:
    roles = Roles(depot.project.storage)
    loader, analyst = roles.add("loader", "produce"), roles.add("analyst", "read")
    with Server(depot, port=0) as server:
        with headgate.connect(server.url, token=loader, tables=["sales"], paramstyle="qmark") as connection:
            connection.cursor().execute("INSERT INTO sales VALUES (?, ?, ?)", (1, 1, 10))
            connection.commit()
        assert rows_of(depot, "SELECT * FROM etl.sales") == [(1, 1, 10)]
        for token in (analyst, None):
            with pytest.raises(DefiniteError, match=r"needs a role that can produce|asks for a token"):
                headgate.connect(server.url, token=token, tables=["sales"])
        with headgate.client.connect(server.url, loader) as client:
            assert client.sql("SELECT * FROM etl.sales").to_arrow().num_rows == 1


def test_one_commit_makes_all_its_tables_visible(depot: Warehouse) -> None:
    """Scalar rows of a producer's table, a dimension's row, rows that a query gave, and a new table."""
    with producer(depot) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE archive (sale INT NOT NULL, item INT, PRIMARY KEY (sale))")
        cursor.execute("INSERT INTO sales VALUES (1, 1, 10)")
        connection.commit()
        cursor.execute("INSERT INTO archive SELECT sale, item FROM etl.sales")
        cursor.execute("INSERT INTO customers VALUES (7, 'Ann')")
        assert rows_of(depot, "SELECT * FROM etl.archive") == rows_of(depot, "SELECT * FROM etl.customers") == []
        connection.commit()
        assert rows_of(depot, "SELECT * FROM etl.archive") == [(1, 1)]
        assert rows_of(depot, "SELECT * FROM etl.customers") == [(7, "Ann")]
        cursor.execute("UPDATE customers SET name = 'Bea' WHERE id = 7")
        assert cursor.rowcount == 1
        cursor.execute("SELECT name FROM customers WHERE id = 7")
        assert cursor.fetchone() == ("Bea",)
        connection.commit()
        assert rows_of(depot, "SELECT name FROM etl.customers") == [("Bea",)]
        cursor.execute("DELETE FROM customers WHERE id = ?", (7,))
        connection.commit()
        assert rows_of(depot, "SELECT * FROM etl.customers") == []


def test_tables_that_were_made_and_dropped_are_so_after_opening_again(tmp_path: Path) -> None:
    with open_depot(tmp_path) as depot, producer(depot) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE kept (id INT PRIMARY KEY, note STRING)")
        cursor.execute("CREATE TABLE gone (id INT)")
        cursor.execute("INSERT INTO kept VALUES (1, 'x')")
        cursor.execute("DROP TABLE gone")
        connection.commit()
    with open_depot(tmp_path) as depot:
        assert rows_of(depot, "SELECT * FROM etl.kept") == [(1, "x")]
        assert "etl.gone" not in depot.tables
        with producer(depot) as connection:
            connection.cursor().execute("CREATE TABLE gone (id BIGINT PRIMARY KEY)")
            connection.cursor().execute("INSERT INTO gone VALUES (5)")
        assert rows_of(depot, "SELECT * FROM etl.gone") == [(5,)]


def test_a_bound_pulls_only_what_it_needs(depot: Warehouse) -> None:
    with producer(depot, policy=OnDemand()) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO sales VALUES (1, 1, 10)")
        connection.commit()
        assert connection.archives == 1
        with depot.sql("SELECT COUNT(*) AS n FROM etl.sales", max_staleness="1h") as answer:
            assert answer.collect()[0].n == 0
        assert connection.archives == 1
        assert rows_of(depot, "SELECT COUNT(*) FROM etl.sales") == [(1,)]
        assert connection.archives == 0


def test_rows_in_memory_are_in_the_ledger_only_once_they_are_durable(tmp_path: Path) -> None:
    with open_depot(tmp_path) as depot, producer(depot, durable=False) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO sales VALUES (1, 1, 10)")
        connection.commit()
        assert rows_of(depot, "SELECT * FROM sold") == [(1, 1, 10)]
        log = depot.sources["etl"].log
        assert log.durable < log.end
        ledger = DeltaTable(tmp_path / "warehouse" / "_headgate" / "ledger")
        before = ledger.to_pyarrow_table().num_rows
        cursor.execute("INSERT INTO sales VALUES (2, 1, 10)")
        connection.commit()
        assert rows_of(depot, "SELECT * FROM sold") == [(1, 2, 20)]
        ledger.update_incremental()
        assert ledger.to_pyarrow_table().num_rows == before
        depot.materialize()
        assert log.durable == log.end
        ledger.update_incremental()
        assert ledger.to_pyarrow_table().num_rows > before


def test_procedures_and_subscribers_hear_only_of_rows_that_are_durable(tmp_path: Path) -> None:
    ends: list[tuple[int, int]] = []
    heard: list[tuple[int, int, int]] = []

    def hear(changes: DataFrame, call: Call) -> None:
        log = opened.sources["etl"].log
        ends.append((log.durable, log.end))
        heard.extend((row.sale, row.item, row.amount) for row in changes.collect())

    bell = Procedure("bell", "etl.sales", hear, writes=["bell"])
    with headgate.open(project(tmp_path), procedures=[bell]) as opened, producer(opened, durable=False) as connection:
        log = opened.sources["etl"].log
        connection.cursor().execute("INSERT INTO sales VALUES (1, 1, 10)")
        connection.commit()
        assert log.durable < log.end
        opened.refresh()
        assert heard == [(1, 1, 10)]
        with opened.subscribe("sold", opened.newest_job, max_staleness="any") as followed:
            connection.cursor().execute("INSERT INTO sales VALUES (2, 1, 10)")
            connection.commit()
            assert rows_of(opened, "SELECT * FROM sold") == [(1, 2, 20)] and log.durable < log.end
            piece = followed.next(60)
            assert piece is not None and piece.rows.num_rows == 2 and log.durable == log.end
    assert ends and all(durable == end for durable, end in ends)


def test_a_commit_that_is_more_than_memory_may_hold_goes_through_files(tmp_path: Path) -> None:
    """Of a table with a key and of one without, whose equal rows all count."""
    with (
        open_depot(tmp_path, limits={"unwritten_bytes": 2_000, "transaction_bytes": 2_000}) as depot,
        producer(depot, durable=False) as connection,
    ):
        cursor = connection.cursor()
        cursor.execute("INSERT INTO sales VALUES (1, 1, 10)")
        connection.commit()
        cursor.insert("sales", [(sale % 50, sale % 2, 1) for sale in range(4_000)])
        cursor.insert("customers", [(number, f"customer {number}") for number in range(1_000)])
        connection.commit()
        assert depot.sources["etl"].log.read("sales", 1, 2).files
        cursor.execute("UPDATE customers SET name = 'Bea' WHERE id = 7")
        connection.commit()
        assert rows_of(depot, "SELECT * FROM sold") == [(0, 2_000, 2_000), (1, 2_001, 2_010)]
        assert rows_of(depot, "SELECT COUNT(*), COUNT(DISTINCT sale), SUM(amount) FROM etl.sales") == [
            (4_001, 50, 4_010)
        ]
        assert rows_of(depot, "SELECT COUNT(*), MAX(id), COUNT_IF(name = 'Bea') FROM etl.customers") == [
            (1_000, 999, 1)
        ]
        depot.materialize()
        assert rows_of(depot, "SELECT * FROM sold") == [(0, 2_000, 2_000), (1, 2_001, 2_010)]
        assert rows_of(depot, "SELECT COUNT(*), SUM(amount) FROM etl.sales") == [(4_001, 4_010)]


def test_a_commit_can_wait_for_the_table(depot: Warehouse) -> None:
    with producer(depot, durable=False) as connection:
        connection.cursor().executemany("INSERT INTO sales VALUES (?, ?, ?)", [(n, n % 3, 1) for n in range(500)])
        connection.commit(materialize=True)
        found = DeltaTable(depot.location("etl.sales")).to_pyarrow_table()
        assert sorted(found.column("sale").to_pylist()) == list(range(500))


def test_what_derives_from_a_materialized_table_goes_on_after_opening_again(tmp_path: Path) -> None:
    for number, sold in enumerate([[(1, 1, 10)], [(1, 2, 20)]], 1):
        with open_depot(tmp_path) as depot:
            with producer(depot) as connection:
                connection.cursor().execute("INSERT INTO sales VALUES (?, 1, 10)", (number,))
                connection.commit(materialize=True)
            # Not asked for before the warehouse is closed, the first time.
            assert number == 1 or rows_of(depot, "SELECT * FROM sold") == sold
    with open_depot(tmp_path) as depot:
        assert rows_of(depot, "SELECT * FROM sold") == [(1, 2, 20)]
        assert rows_of(depot, "SELECT * FROM etl.sales") == [(1, 1, 10), (2, 1, 10)]


def test_rows_move_from_the_overlay_to_the_table(depot: Warehouse) -> None:
    """Examples 3.5 and 3.6: before, the reader gets them from memory; after, from the table; never from both."""
    table = depot.replica("etl.sales").main
    with producer(depot, durable=False) as connection:
        connection.cursor().insert("sales", [(1, 1, 1), (2, 2, 2)])
        connection.commit()
        assert rows_of(depot, "SELECT sale FROM etl.sales") == [(1,), (2,)]
        assert (table.rows, table.base_through < table.through) == (0, True)
        numbers = rows_of(depot, "SELECT __row_number, sale FROM etl.sales")
        assert [sale for _, sale in numbers] == [1, 2]
        connection.commit(materialize=True)
        assert (table.rows, table.base_through < table.through) == (2, False)
        assert rows_of(depot, "SELECT __row_number, sale FROM etl.sales") == numbers
        connection.cursor().insert("sales", [(3, 3, 3), (4, 4, 4)])
        connection.commit()
        assert rows_of(depot, "SELECT sale FROM etl.sales") == [(1,), (2,), (3,), (4,)]
        assert table.rows == 2


def test_an_etl_framework_fills_a_star(depot: Warehouse) -> None:
    """pygrametl unchanged, over a real warehouse; flows over its tables follow."""
    target = pygrametl.ConnectionWrapper(connection=headgate.connect(depot, tables=["sales", "customers"]))
    try:
        customers = CachedDimension("customers", "id", ["name"])
        sales = FactTable("sales", ["sale", "item"], ["amount"])
        for number in range(200):
            customer = customers.ensure({"name": f"customer {number % 7}"})
            sales.insert({"sale": number, "item": customer, "amount": 5})
        target.commit()
        assert rows_of(depot, "SELECT COUNT(*), MAX(id) FROM etl.customers") == [(7, 7)]
        assert rows_of(depot, "SELECT SUM(sales), SUM(amount) FROM sold") == [(200, 1000)]
    finally:
        target.close()
        pygrametl._alltables.clear()


def test_each_row_is_seen_once_while_tables_are_materialized(depot: Warehouse) -> None:
    """Example 5.1: a reader keeps what it began with, whatever is committed or moved meanwhile; several readers at once."""
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        last = 0
        try:
            while not done.is_set():
                with depot.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT sale) AS d FROM etl.sales") as answer:
                    first, again = answer.collect()[0], answer.collect()[0]
                    assert first == again and first.n == first.d and first.n % 10 == 0
                    assert first.n >= last
                    last = first.n
        except BaseException as error:
            failures.append(error)

    def materialize() -> None:
        try:
            while not done.is_set():
                depot.materialize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=each) for each in (read, read, materialize)]
    for thread in threads:
        thread.start()
    with producer(depot, durable=False) as connection:
        for number in range(25):
            connection.cursor().insert("sales", [(number * 10 + each, 1, 1) for each in range(10)])
            connection.commit()
            if failures:
                break
        assert rows_of(depot, "SELECT COUNT(*) FROM etl.sales") == [(250,)]
    done.set()
    for thread in threads:
        thread.join()
    assert not failures


def run(folder: Path, mode: str, commits: int) -> tuple[subprocess.Popen[str], str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.producing.depot", str(folder), mode, str(commits)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_a_kill_loses_nothing_that_was_durable_and_tells_what_was_not(tmp_path: Path) -> None:
    for mode in ("durable", "memory", "elastic"):
        process, told = run(tmp_path / mode, mode, 6)
        assert told.split()[0] == "12"
        process.send_signal(signal.SIGKILL)
        process.wait()
        reopened = elastic(tmp_path / mode) if mode == "elastic" else project(tmp_path / mode)
        with headgate.open(reopened, takeover=True) as depot:
            left = rows_of(depot, "SELECT SUM(sales) FROM sold")
            alarms = depot.sources["etl"].status.alarms
            if mode != "memory":
                assert left == [(12,)] and not alarms
            else:
                assert left == [(None,)]
                assert "12 rows of 6 commits were lost" in alarms[0]
            with producer(depot) as connection:
                connection.cursor().execute("INSERT INTO sales VALUES (99, 9, 9)")
            assert (9, 1, 9) in rows_of(depot, "SELECT * FROM sold")


def test_a_producer_in_another_process(tmp_path: Path) -> None:
    """The same connect line, given the project: the open warehouse is found."""
    text = f"""
import headgate
from tests.producing.depot import project
from pathlib import Path
with headgate.connect(project(Path({str(tmp_path)!r})), tables=["sales", "customers"], paramstyle="qmark") as connection:
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO sales VALUES (?, ?, ?)", [(n, 1, 1) for n in range(1000)])
    cursor.execute("INSERT INTO customers VALUES (1, 'Ann')")
    connection.commit()
    cursor.execute("SELECT MAX(id) FROM customers")
    print(cursor.fetchone()[0])
    cursor.execute("SELECT COUNT(*) FROM etl.sales")
    print(cursor.fetchone()[0])
    try:
        cursor.execute("INSERT INTO customers VALUES (1, 'Bea')")
    except connection.IntegrityError as error:
        print("refused")
    connection.rollback()
    cursor.execute("INSERT INTO sales VALUES (5000, 1, 1)")
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with open_depot(tmp_path) as depot:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.stdout.split(), done.returncode) == (["1", "1000", "refused"], -signal.SIGKILL), done.stderr
        assert rows_of(depot, "SELECT COUNT(*), MAX(sale) FROM etl.sales") == [(1000, 999)]
        with producer(depot) as connection, pytest.raises(ProducerBusy, match="customers is written by process"):
            depot.producer_source("etl").attach("another").claim(["customers"])
        assert connection is not None


def test_a_second_producer_gets_a_clear_error(depot: Warehouse) -> None:
    with producer(depot), pytest.raises(headgate.producing.dbapi.OperationalError, match=r"etl\.\w+ is written by"):
        producer(depot)


def test_connecting_opens_a_warehouse_that_nobody_has_open(tmp_path: Path) -> None:
    with headgate.connect(project(tmp_path), tables=["sales"], paramstyle="qmark") as connection:
        connection.cursor().execute("INSERT INTO sales VALUES (1, 1, 1)")
        connection.commit()
    with open_depot(tmp_path) as depot:
        assert rows_of(depot, "SELECT * FROM etl.sales") == [(1, 1, 1)]


def test_a_bound_shows_lazy_commits_of_another_process(tmp_path: Path) -> None:
    """They wait until a reader needs them; the producer hears of it with its next commit."""
    text = f"""
import sys
import headgate
from headgate.producing import OnDemand
from tests.producing.depot import project
from pathlib import Path
with headgate.connect(
    project(Path({str(tmp_path)!r})), tables=["sales"], paramstyle="qmark", policy=OnDemand(), durable=False
) as connection:
    for number in range(4):
        connection.cursor().execute("INSERT INTO sales VALUES (?, 1, 1)", (number,))
        connection.commit()
        print(connection.archives, flush=True)
        if number >= 2:
            sys.stdin.readline()
"""
    with open_depot(tmp_path) as depot:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        child = subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None and child.stdout is not None
        assert [child.stdout.readline().strip() for _ in range(3)] == ["1", "2", "3"]
        with depot.sql("SELECT COUNT(*) AS n FROM etl.sales", max_staleness="1h") as answer:
            assert answer.collect()[0].n == 0
        assert rows_of(depot, "SELECT COUNT(*) FROM etl.sales") == [(3,)]
        assert rows_of(depot, "SELECT COUNT(*) FROM etl.sales") == [(3,)]
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline().strip() == "1"
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait() == 0
