"""The service under queries that are too large, too long or cannot be ended: it goes on."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headgate.capture.postgres.private_server import PostgresServer
from tests.cli.processes import Served, is_alive, java_of, start, worker_of
from tests.cli.serving import ENDLESS, asked, assert_ends, is_running, query, revenue
from tests.service.asking import ask
from tests.soak.soaking import children, resident_bytes
from tests.waiting import eventually

pytestmark = pytest.mark.slow

HUGE = "SELECT repeat('x', 100000) AS x FROM range(200000)"


@pytest.fixture
def url(served: Served) -> Iterator[str]:
    """After every test the service answers rightly, and nothing is left of its answers."""
    process, url = served
    yield url
    assert process.poll() is None
    assert revenue(url) == [[10]]
    scratch = Path(str(process.args[5])) / "warehouse" / "_headgate" / "scratch"  # type: ignore[index]
    eventually(lambda: not [file for file in scratch.rglob("*") if file.is_file()])


def test_an_answer_with_too_many_bytes_is_refused(url: str) -> None:
    heard = query(url, HUGE)
    assert heard.status == 400 and "more than 256.0 MiB, which is the service's limit" in heard.error["what"], heard
    assert '"limit"' in heard.error["hint"]
    assert query(url, HUGE, limit=3).json["rows"] == [["x" * 100_000]] * 3


def test_an_answer_with_too_many_rows_is_refused(url: str) -> None:
    heard = query(url, "SELECT id FROM range(1000001)")
    assert heard.status == 400 and "more than 1,000,000 rows" in heard.error["what"]


def test_a_value_that_no_memory_holds_fails_its_query_alone(url: str) -> None:
    heard = query(url, "SELECT repeat(CAST(id AS STRING), 2000000000) AS x FROM range(10)")
    assert heard.status == 400 and "more memory than Spark has" in heard.error["what"] and heard.error["hint"]


def test_a_large_answer_arrives_whole_and_in_order(url: str) -> None:
    sql = "SELECT id, CAST(id AS STRING) AS text FROM range(0, 300000, 1, 7) ORDER BY id DESC"
    heard = ask(url, "POST", "/v1/query", {"sql": sql, "format": "arrow"}, seconds=120)
    rows = pa.ipc.open_stream(heard.body).read_all()
    assert rows.column("id").to_pylist() == list(range(299_999, -1, -1))
    assert rows.column("text").to_pylist() == [str(number) for number in range(299_999, -1, -1)]


def test_many_large_queries_at_once_take_no_more_memory_than_one(served: Served, url: str) -> None:
    pids = [worker_of(served[0]), java_of(served[0])]
    before = [resident_bytes(pid) for pid in pids]
    most = list(before)
    with ThreadPoolExecutor(16) as threads:
        asked = [threads.submit(query, url, HUGE) for _ in range(16)]
        while not all(each.done() for each in asked):
            most = [max(was, resident_bytes(pid)) for was, pid in zip(most, pids, strict=True)]
            time.sleep(0.1)
    assert {each.result().status for each in asked} == {400}
    # The Java process has a heap of 2 GiB, which it may fill with garbage.
    assert most[0] - before[0] < 256 << 20 and most[1] < 3 << 30, (before, most)


def test_a_client_that_goes_takes_its_tasks_with_it(url: str) -> None:
    with asked(url, ENDLESS):
        pass
    eventually(lambda: not is_running(url), 30)


def test_a_small_query_does_not_wait_for_a_large_one(url: str) -> None:
    with asked(url, ENDLESS):
        assert revenue(url) == [[10]]
        assert is_running(url)
    eventually(lambda: not is_running(url), 30)


def test_the_deadline_ends_reading_too(url: str) -> None:
    heard = query(url, ENDLESS, deadline="1s")
    assert heard.status == 504 and heard.error["kind"] == "TooStale"
    assert re.search(r"could not be read within 1 s: it took .*read \d", heard.error["what"]), heard
    assert "WHEN STALE" in heard.error["hint"]


def test_a_service_whose_parent_is_killed_ends(served: Served) -> None:
    process, _ = served
    left = [worker_of(process), java_of(process)]
    process.kill()
    process.wait()
    eventually(lambda: not any(map(is_alive, left)))


def test_a_service_whose_database_hangs_is_ended(tmp_path: Path) -> None:
    with PostgresServer() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE sales (id bigint PRIMARY KEY)")
        source = f"{{type: postgres, dsn: '{server.dsn}', tables: {{sales: }}}}"
        (tmp_path / "headgate.yml").write_text(f"name: shop\nstorage: warehouse\nsources:\n  shop: {source}\n")
        process, _ = start(tmp_path)
        try:
            with frozen(server):
                assert_ends(process, signal.SIGTERM)
        finally:
            process.kill()
            process.wait()


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Inside the block the server's processes do nothing."""
    first = int((server.data / "postmaster.pid").read_text().split()[0])
    pids = [first, *map(int, children(first))]

    def tell(number: int) -> None:
        for pid in pids:
            # Backends may have ended meanwhile.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    tell(signal.SIGSTOP)
    try:
        yield
    finally:
        tell(signal.SIGCONT)
