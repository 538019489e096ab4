"""The protocol against clients that do it wrong, leave, or wait; without Spark, since none of this is about rows."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import re
import socket
import ssl
import struct
import subprocess
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headgate.errors import Cancelled, DefiniteError
from headgate.gateway.endpoint import Gateway
from headgate.gateway.queries import Work
from headgate.runtime.spark.partitions import AnswerPart, Batches
from headgate.service import Server, ServiceLimits
from headgate.service.listening import listen
from headgate.service.queries import QueryRequest
from headgate.warehouse.roles import Roles
from tests.gateway.serving import Shop, served
from tests.seed import SEED
from tests.service.scripted import ScriptedSession, ScriptedWarehouse
from tests.waiting import eventually

LONG = pa.table({"text": ["x" * 1000] * 100_000})


def scripted(session: ScriptedSession, text: str) -> pa.Table:
    if "wait" in text:
        session.wait()
    if "wrong" in text:
        raise DefiniteError("it is wrong", hint="do it right")
    return LONG if "long" in text else pa.table({"number": [1]})


@contextmanager
def serving(
    folder: Path, limits: ServiceLimits | None = None, token: str | None = None
) -> Iterator[tuple[Shop, ScriptedWarehouse]]:
    warehouse = ScriptedWarehouse(scripted, storage=folder)
    with served(warehouse.as_warehouse, limits, token) as shop:
        yield shop, warehouse


def raw(shop: Shop, data: bytes, *, reads: bool = True) -> bytes:
    """What a client that sends just these bytes gets, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", shop.port), timeout=30) as client:
        client.sendall(data)
        if not reads:
            return b""
        client.shutdown(socket.SHUT_WR)
        found = b""
        while part := client.recv(65536):
            found += part
        return found


def startup(**parameters: str) -> bytes:
    body = (
        struct.pack("!I", 196_608)
        + b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items())
        + b"\0"
    )
    return struct.pack("!I", len(body) + 4) + body


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def test_malformed_and_oversized_messages_end_the_connection_only(tmp_path: Path) -> None:
    choose = random.Random(SEED)
    limits = ServiceLimits(client=timedelta(seconds=2), request_bytes=100_000)
    with serving(tmp_path, limits) as (shop, _):
        begun = startup(user="a", database="b")
        assert b"invalid length" in raw(shop, struct.pack("!I", 1 << 30))
        assert b"08P01" in raw(shop, struct.pack("!II", 8, 12345))
        assert b"the limit is 100,000" in raw(shop, begun + b"Q" + struct.pack("!I", 200_000))
        assert b"08P01" in raw(shop, begun + message(b"\xff", b""))
        assert b"08P01" in raw(shop, begun + message(b"D", b""))
        assert b"08P01" in raw(shop, begun + message(b"B", b"\0\0\0\1\0\0\xff\xff"))
        assert b"08P01" in raw(shop, begun + message(b"P", b"\xff\xfe\0SELECT 1\0\0\0"))
        for _ in range(60):
            noise = choose.randbytes(choose.randrange(200))
            raw(shop, noise if choose.random() < 0.5 else begun + noise, reads=choose.random() < 0.5)
            whole = begun + message(b"Q", b"SELECT 1\0")
            raw(shop, whole[: choose.randrange(len(whole))])
        with psycopg.connect(shop.dsn) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_changed_bytes_in_a_conversation_end_the_connection_only(tmp_path: Path) -> None:
    choose = random.Random(SEED)
    bind = (
        b"\0"
        + b"one\0"
        + struct.pack("!hhihh", 0, 1, 2, 0, 0).replace(struct.pack("!i", 2), struct.pack("!i", 1) + b"7", 1)
    )
    whole = (
        startup(user="a", database="b", options="-c max_staleness=10m")
        + message(b"P", b"one\0SELECT number + $1::int\0" + struct.pack("!hI", 1, 23))
        + message(b"B", bind)
        + message(b"D", b"P\0")
        + message(b"E", b"\0" + struct.pack("!i", 0))
        + message(b"C", b"Sone\0")
        + message(b"S", b"")
        + message(b"Q", b"BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH ALL c; COMMIT\0")
        + message(b"X", b"")
    )
    with serving(tmp_path, ServiceLimits(client=timedelta(seconds=2), request_bytes=100_000)) as (shop, warehouse):
        for _ in range(80):
            changed = bytearray(whole)
            for _ in range(choose.randrange(1, 6)):
                changed[choose.randrange(len(changed))] = choose.randrange(256)
            raw(shop, bytes(changed[: choose.randrange(1, len(changed) + 1)]))
        eventually(lambda: shop.gateway.clients == 0)
        assert warehouse.open_answers == 0
        with psycopg.connect(shop.dsn) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_five_hundred_connections_are_held(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceLimits(connections=501)) as (shop, _), contextlib.ExitStack() as held:
        for _ in range(500):
            client = held.enter_context(socket.create_connection(("127.0.0.1", shop.port), timeout=60))
            client.sendall(startup(user="a"))
        eventually(lambda: shop.gateway.clients == 500)
        with psycopg.connect(shop.dsn) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                psycopg.connect(shop.dsn)


def resident_bytes() -> int:
    """Without pages of files, which the system takes back when it needs them."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_large_answers_are_sent_in_bounded_memory(tmp_path: Path) -> None:
    """Eight clients get 64 MB each, and eight more have stopped taking theirs."""
    batch = pa.record_batch({"text": ["x" * 1000] * 16_384})
    file = tmp_path / "large.arrow"
    with pa.ipc.new_stream(str(file), batch.schema) as stream:
        for _ in range(4):
            stream.write_batch(batch)
    rows = 4 * batch.num_rows

    def large(session: ScriptedSession, text: str) -> Batches:
        return Batches(batch.schema, [AnswerPart(rows, 4 * batch.nbytes, file)], 1 << 40)

    warehouse = ScriptedWarehouse(large, storage=tmp_path)
    asked = startup(user="a") + message(b"Q", b"SELECT large\0")
    with (
        served(warehouse.as_warehouse, ServiceLimits(rows=1 << 40, bytes=1 << 40)) as shop,
        contextlib.ExitStack() as held,
    ):

        def clients(count: int) -> list[socket.socket]:
            found = [
                held.enter_context(socket.create_connection(("127.0.0.1", shop.port), timeout=60)) for _ in range(count)
            ]
            for client in found:
                client.sendall(asked)
            return found

        def take(client: socket.socket, wanted: int) -> None:
            while wanted > 0:
                wanted -= len(client.recv(min(wanted, 1 << 18)))

        take(clients(1)[0], rows * 1000)  # what is loaded once is loaded now
        before = resident_bytes()
        stopped = clients(8)
        for client in stopped:
            take(client, 1 << 20)
        largest = 0
        for client in clients(8):
            take(client, rows * 1000 // 2)
            largest = max(largest, resident_bytes() - before)
            take(client, rows * 1000 // 2)
        # All rows of the sixteen would be a gigabyte.
        assert largest < 160 << 20, f"{largest >> 20} MB"
        assert warehouse.open_answers == 0


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_hundreds_of_connections_come_and_go(tmp_path: Path) -> None:
    with serving(tmp_path) as (shop, _):
        tracemalloc.start()
        try:
            before = 0
            for number in range(3):
                polite = [psycopg.connect(shop.dsn) for _ in range(50)]
                dying = [socket.create_connection(("127.0.0.1", shop.port), timeout=30) for _ in range(50)]
                for client in dying:
                    client.sendall(startup(user="a"))
                eventually(lambda: shop.gateway.clients == 100)
                for client in polite:
                    client.close()
                for client in dying:
                    # As if its machine had died: the connection is reset.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                del polite, dying, client
                eventually(lambda: shop.gateway.clients == 0)
                if number == 1:
                    before = traced_bytes()
            # What sessions hold goes a moment after their connections.
            eventually(lambda: traced_bytes() - before < 1 << 20)
        finally:
            tracemalloc.stop()
    limits = ServiceLimits(connections=2)
    with (
        serving(tmp_path, limits) as (shop, _),
        psycopg.connect(shop.dsn),
        psycopg.connect(shop.dsn),
        pytest.raises(psycopg.OperationalError, match="too many clients"),
    ):
        psycopg.connect(shop.dsn)


def test_a_client_that_leaves_or_cancels_ends_its_query(tmp_path: Path) -> None:
    with serving(tmp_path) as (shop, warehouse):
        client = psycopg.connect(shop.dsn, autocommit=True)

        def ask() -> None:
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("SELECT wait")

        thread = threading.Thread(target=ask)
        thread.start()
        assert warehouse.waiting.acquire(timeout=30)
        client.cancel_safe()
        thread.join(30)
        assert warehouse.cancelled == 1
        client.close()
        with socket.create_connection(("127.0.0.1", shop.port), timeout=30) as leaving:
            leaving.sendall(startup(user="a") + message(b"Q", b"SELECT wait\0"))
            assert warehouse.waiting.acquire(timeout=30)
        eventually(lambda: warehouse.cancelled == 2)


def test_rows_on_their_way_are_cancelled(tmp_path: Path) -> None:
    with serving(tmp_path) as (shop, _), psycopg.connect(shop.dsn, autocommit=True) as client:
        with client.cursor() as cursor, cursor.copy("COPY (SELECT long) TO STDOUT") as copy:
            copy.read()
            client.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                for _ in copy:
                    pass
        with client.cursor() as cursor:
            rows = cursor.stream("SELECT long")
            next(rows)
            client.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                list(rows)
        assert client.execute("SELECT 1").fetchall() == [(1,)]


def test_queries_are_counted_by_their_outcome(tmp_path: Path) -> None:
    with serving(tmp_path) as (shop, _), psycopg.connect(shop.dsn, autocommit=True) as client:
        client.execute("SELECT 1")
        with pytest.raises(psycopg.Error):
            client.execute("SELECT wrong")
        ended = shop.gateway._service.queries._metrics._ended
        assert [ended.labels(outcome)._value.get() for outcome in ("ok", "failed")] == [1, 1]


def test_copies_and_cursors_have_no_limit_of_size(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceLimits(rows=1_000)) as (shop, _), psycopg.connect(shop.dsn) as client:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="1,000 rows"):
            client.execute("SELECT long")
        client.rollback()
        with client.cursor() as cursor, cursor.copy("COPY (SELECT long) TO STDOUT") as copy:
            assert sum(bytes(part).count(b"\n") for part in copy) == LONG.num_rows
        with client.cursor("declared") as cursor:
            cursor.execute("SELECT long")
            assert len(cursor.fetchall()) == LONG.num_rows


def test_work_that_changes_something_is_waited_for() -> None:
    async def changed() -> str:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Exception] = loop.create_future()
        over.set_result(Cancelled("enough"))
        done: asyncio.Future[str] = loop.create_future()
        loop.call_later(0.3, done.set_result, "committed")
        work = Work("1", "COMMIT", datetime.now(UTC), lambda: None)
        return await QueryRequest(work, loop.time() - 1, 0.0, over, must_end=True).work(done)

    assert asyncio.run(changed()) == "committed"


def test_a_slow_reader_holds_nobody_up_and_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceLimits(client=timedelta(seconds=1))) as (shop, warehouse):
        with socket.create_connection(("127.0.0.1", shop.port), timeout=30) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(startup(user="slow") + message(b"Q", b"SELECT long\0"))
            with psycopg.connect(shop.dsn) as other:
                assert other.execute("SELECT 1").fetchall() == [(1,)]
            eventually(lambda: shop.gateway.clients == 0)
        assert warehouse.open_answers == 0


def test_roles_connect_with_their_token(tmp_path: Path) -> None:
    (tmp_path / "_headgate").mkdir()
    roles = Roles(tmp_path)
    with serving(tmp_path, token="the-own-token") as (shop, _):
        token = roles.add("analyst", "read")
        roles.set("analyst", "max_staleness", "10m")
        address = f"host=127.0.0.1 port={shop.port} dbname=x"
        with psycopg.connect(f"{address} user=analyst password={token} options='-c deadline=5s'") as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
            assert connection.execute("SHOW max_staleness").fetchone() == ("10m",)
            assert connection.execute("SHOW deadline").fetchone() == ("5s",)
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="administer"):
                connection.execute("CREATE MATERIALIZED VIEW x AS SELECT 1")
        with psycopg.connect(f"{address} user=administrator password=the-own-token") as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        for user in ("analyst", "nobody", "administrator"):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(f"{address} user={user} password=wrong")
        with pytest.raises(psycopg.OperationalError, match="unrecognized configuration parameter"):
            psycopg.connect(f"{address} user=analyst password={token} options='-c nothing=1'")


def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 "
        f"-keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    warehouse = ScriptedWarehouse(scripted, storage=tmp_path)
    gateway = Gateway(listen("127.0.0.1", 0), "made-up", is_open=True, tls=context)
    with Server(warehouse.as_warehouse, port=0, endpoints=[gateway]):
        address = f"host=127.0.0.1 port={gateway.port} user=a sslrootcert={certificate}"
        with psycopg.connect(f"{address} sslmode=verify-full") as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        with psycopg.connect(f"{address} sslmode=disable") as connection:
            assert not connection.pgconn.ssl_in_use


def test_settings(tmp_path: Path) -> None:
    with serving(tmp_path) as (shop, _), psycopg.connect(shop.dsn) as connection:
        connection.execute("SET max_staleness = '10m'")
        connection.execute("SET dialect = spark")
        assert connection.execute("SHOW dialect").fetchone() == ("spark",)
        connection.rollback()
        assert connection.execute("SHOW dialect").fetchone() == ("postgres",)
        for wrong in (
            "SET max_staleness = 'soon'",
            "SET dialect = oracle",
            "SET nothing = 1",
            "SET client_encoding = 'LATIN1'",
        ):
            with pytest.raises(psycopg.Error):
                connection.execute(wrong)
            connection.rollback()
        for said, zone in (
            ("'gmt-3'", "Etc/GMT-3"),
            ("-5", "Etc/GMT+5"),
            ("'europe/berlin'", "Europe/Berlin"),
            ("'Z'", "UTC"),
        ):
            connection.execute(f"SET TIME ZONE {said}")  # type: ignore[arg-type]
            assert connection.execute("SHOW TIME ZONE").fetchone() == (zone,)
        connection.rollback()
        connection.execute("SET LOCAL TimeZone = 'Europe/Berlin'")
        connection.execute("SET LOCAL max_staleness = '3m'")
        assert connection.execute("SHOW TimeZone").fetchone() == ("Europe/Berlin",)
        connection.commit()
        assert connection.execute("SHOW TimeZone").fetchone() == ("UTC",)
        assert connection.info.parameter_status("TimeZone") == "UTC"
        connection.execute("SAVEPOINT a")
        with pytest.raises(psycopg.Error, match="it is wrong"):
            connection.execute("SELECT wrong")
        connection.execute("ROLLBACK TO SAVEPOINT a")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
