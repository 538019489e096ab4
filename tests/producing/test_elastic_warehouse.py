"""A warehouse whose stream is an elastic queue: many writers, readers at bound 0, kills, backups, wide batches."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import headgate
import headgate.client
from headgate import Warehouse
from headgate.capture.elastic.log import ElasticLog
from headgate.errors import DefiniteError, Fenced
from headgate.producing import Connection
from headgate.producing.dbapi import DataError, InterfaceError, OperationalError
from headgate.producing.remote import RemoteChannel
from headgate.producing.remote_values import Address
from headgate.runtime.recovery.backup import restore
from headgate.service import Server
from tests.faults.processes import start
from tests.producing.depot import rows_of
from tests.producing.many import PRODUCERS, ROWS, project

pytestmark = pytest.mark.usefixtures("spark_sessions")


def connect(warehouse: Warehouse, *tables: str) -> Connection:
    return headgate.connect(warehouse, tables=tables, paramstyle="qmark")


def queue_of(warehouse: Warehouse) -> ElasticLog:
    log = warehouse.sources["etl"].log
    assert isinstance(log, ElasticLog)
    return log


def blocks_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "warehouse/_headgate/streams/etl/blocks").iterdir())


def test_eight_producers_and_a_reader_that_sees_every_acknowledged_commit(tmp_path: Path) -> None:
    commits, half = 10, 5
    between = set()
    """How many commits were acknowledged when readers looked."""
    acknowledged = [0] * PRODUCERS

    def listen(number: int, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip().isdigit():
                acknowledged[number] = int(line)

    with headgate.open(project(tmp_path)) as warehouse:
        children = [start("tests.producing.many", tmp_path, number, commits, half) for number in range(PRODUCERS)]
        heard = [threading.Thread(target=listen, args=each) for each in enumerate(children)]
        for thread in heard:
            thread.start()
        is_over = is_released = False
        while not is_over:
            is_over = not any(thread.is_alive() for thread in heard)
            before = list(acknowledged)
            with warehouse.sql("SELECT p, n FROM totals", max_staleness="0s") as answer:
                seen = {row["p"]: row["n"] for row in answer.to_arrow().to_pylist()}
            between.add(sum(before))
            if before == [half] * PRODUCERS and not is_released:
                is_released = True
                for child in children:
                    assert child.stdin is not None
                    child.stdin.write("\n")
                    child.stdin.flush()
            for number, count in enumerate(before):
                assert seen.get(number, 0) >= ROWS * count
                assert seen.get(number, 0) % ROWS == 0
        assert [child.wait() for child in children] == [0] * PRODUCERS
        assert seen == dict.fromkeys(range(PRODUCERS), ROWS * commits)
        assert half * PRODUCERS in between, "readers looked between commits"
        for child in children:
            child.communicate()
        warehouse.materialize()
        assert blocks_in(tmp_path) == [], "consumed segments are deleted"


def test_transactions_by_parts_partitions_and_wide_batches(tmp_path: Path) -> None:
    """Several writers and tables, two updates of a key in one transaction and in two, read by reference after a split.

    The second writer makes its segments itself, as one on another machine does."""
    producers = {"host": "127.0.0.1", "port": 0}
    with headgate.open(project(tmp_path, limits={"way": "wide"}, producers=producers)) as warehouse:
        queue = queue_of(warehouse)
        address = Address.read(tmp_path / "warehouse/_headgate/producers.json")
        away = RemoteChannel(replace(address, socket="/nowhere/socket"), "etl")
        with (
            connect(warehouse, "t0", "t1") as first,
            Connection(away, ["t2"], paramstyle="qmark") as second,
        ):
            for number in range(6):
                if number == 2:
                    queue.split(1)
                mine, other = first.cursor(), second.cursor()
                mine.execute("INSERT INTO t0 VALUES (?, ?)", (number, number))
                mine.execute("UPDATE t0 SET v = ? WHERE k = ?", (10 * number, number))
                mine.execute("INSERT INTO t1 VALUES (?, ?)", (number, number))
                other.execute("INSERT INTO t2 VALUES (?, ?)", (number, 7))
                first.commit()
                second.commit()
            mine.execute("UPDATE t0 SET v = 31 WHERE k = 3")
            first.commit()
        batches = [queue.next_batch(table, 0, queue.end) for table in ("t0", "t1", "t2")]
        read = {place.partition for batch in batches for place in batch.frames}
        assert len(read) == 3, "the parent and both daughters have something"
        assert rows_of(warehouse, "SELECT k, v FROM etl.t0") == [(n, 10 * n + (n == 3)) for n in range(6)]
        assert rows_of(warehouse, "SELECT p, n, v FROM totals") == [(0, 6, 151), (1, 6, 15), (2, 6, 42)]


def test_processes_put_the_parts_of_one_transaction(tmp_path: Path) -> None:
    with headgate.open(project(tmp_path)) as warehouse:
        with connect(warehouse, "t0") as loader:
            transaction = loader.begin_parts()
            workers = [start("tests.producing.many", tmp_path, number, "part", transaction) for number in (1, 2)]
            for worker in workers:
                worker.communicate()
                assert worker.returncode == 0
            with pytest.raises(DataError, match=r"has 2 parts, and 3 were announced.*put part 0"):
                loader.commit_parts(transaction, 3)
            assert rows_of(warehouse, "SELECT k, v FROM etl.t0") == []
            with headgate.connect(warehouse, tables=["t0"], paramstyle="qmark", part=(transaction, 0)) as own:
                own.cursor().execute("INSERT INTO t0 VALUES (?, ?)", (0, 0))
                own.commit()
                own.cursor().execute("INSERT INTO t0 VALUES (?, ?)", (9, 9))
                with pytest.raises(InterfaceError, match="part 0 was put already"):
                    own.commit()
                own.rollback()
            assert loader.commit_parts(transaction, 3) is not None
            assert rows_of(warehouse, "SELECT k, v FROM etl.t0") == [(0, 2), (2, 1), (3, 2)]
            # The loader knows what others wrote.
            cursor = loader.cursor()
            cursor.execute("UPDATE t0 SET v = 7 WHERE k = 3")
            assert cursor.rowcount == 1
            unfinished = loader.begin_parts()
            worker = start("tests.producing.many", tmp_path, PRODUCERS, "part", unfinished)
            worker.communicate()
            assert worker.returncode == 0
            assert len(blocks_in(tmp_path)) == 4, "three parts that were committed, and one"
        assert rows_of(warehouse, "SELECT p, n, v FROM totals") == [(0, 3, 10)]
        warehouse.materialize()
        assert len(blocks_in(tmp_path)) == 1, (
            "of what was consumed only the segment is left that the owner still writes"
        )


def test_a_crashed_owner_goes_on_with_what_was_committed_and_a_former_owner_is_fenced(tmp_path: Path) -> None:
    former = headgate.open(project(tmp_path))
    child = start("tests.producing.many", tmp_path, 0, 3)
    assert child.communicate()[0].split()[-1] == "closed"
    loader = connect(former, "t3")
    transaction = loader.begin_parts()
    with headgate.connect(former, tables=["t3"], paramstyle="qmark", part=(transaction, 0)) as part:
        part.cursor().execute("INSERT INTO t3 VALUES (1, 1)")
    assert len(blocks_in(tmp_path)) == 2
    # The former owner is paused: it did not close, and another one takes over.
    with headgate.open(project(tmp_path), takeover=True) as warehouse:
        assert len(blocks_in(tmp_path)) == 1, "what nobody committed is removed"
        assert rows_of(warehouse, "SELECT p, n FROM totals") == [(0, 9)]
        with pytest.raises(OperationalError, match="another process"):
            loader.commit_parts(transaction, 1)
        with pytest.raises(Fenced):
            queue_of(former).open_segment()
        with connect(warehouse, "t1") as connection:
            connection.cursor().execute("INSERT INTO t1 VALUES (1, 1)")
        assert rows_of(warehouse, "SELECT p, n FROM totals") == [(0, 9), (1, 1)]
    with suppress(Fenced):
        former.close()


def test_partitions_are_split_and_merged_through_the_service(tmp_path: Path) -> None:
    sources = {**project(tmp_path)["sources"], "plain": {"type": "producer"}}  # type: ignore[dict-item]
    with (
        headgate.open(project(tmp_path, sources=sources)) as warehouse,
        Server(warehouse, port=0) as server,
        headgate.client.connect(server.url) as client,
    ):
        assert [each["id"] for each in client.split_partition("etl", 1)["partitions"]] == [2, 3]
        found = client.status()["sources"]
        assert [each["id"] for each in found["etl"]["queue"]["partitions"]] == [2, 3]
        assert found["plain"]["queue"] is None
        assert [each["id"] for each in client.merge_partitions("etl", 2, 3)["partitions"]] == [4]
        for mistake, said in (
            (lambda: client.split_partition("etl", 3), r"no partition 3.*its partitions are 4"),
            (lambda: client.split_partition("web", 3), "there is no source web"),
            (lambda: client.split_partition("plain", 1), r"has no partitions.*stream: elastic"),
        ):
            with pytest.raises(DefiniteError, match=said):
                mistake()


def test_a_backup_has_the_blocks_that_wait(tmp_path: Path) -> None:
    with headgate.open(project(tmp_path / "first")) as warehouse:
        queue_of(warehouse).split(1)
        with connect(warehouse, "t0") as connection:
            for number in range(4):
                connection.cursor().execute("INSERT INTO t0 VALUES (?, ?)", (number, 1))
                connection.commit()
            assert rows_of(warehouse, "SELECT p, n FROM totals") == [(0, 4)]
            warehouse.backup(tmp_path / "copy")
            connection.cursor().execute("INSERT INTO t0 VALUES (9, 1)")
    restore(tmp_path / "copy", tmp_path / "again/warehouse")
    with headgate.open(project(tmp_path / "again")) as warehouse:
        assert len(queue_of(warehouse).partitions) == 2
        assert rows_of(warehouse, "SELECT p, n FROM totals") == [(0, 4)]
