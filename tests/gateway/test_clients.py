"""Clients that people use, over the gateway: what they ask of the catalog, and that their answers are right."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import pandas as pd
import pytest
import sqlalchemy as sa

from tests.gateway.serving import Shop
from tests.service.asking import ask as ask_http
from tests.waiting import eventually

needs_psql = pytest.mark.skipif(
    shutil.which("psql") is None, reason="psql is not installed; .ci/run installs it, and fails without it"
)


def psql(shop: Shop, *commands: str) -> str:
    arguments = [each for command in commands for each in ("-c", command)]
    environment = {**os.environ, "PGCONNECT_TIMEOUT": "30"}
    done = subprocess.run(
        ["psql", "-X", "-v", "ON_ERROR_STOP=1", shop.dsn, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_psql
def test_psql_describes_tables(shop: Shop) -> None:
    told = psql(
        shop,
        r"\d sales_per_item",
        r"\d+ shop.items",
        r"\dt shop.*",
        r"\dm",
        r"\dn",
        r"\l",
        r"\du",
        r"\df",
        r"\di *.*",
        "SELECT pg_get_viewdef('top_items'::regclass), 'top_items'::pg_catalog.regclass::pg_catalog.oid > 0",
    )
    assert 'Materialized view "public.sales_per_item"' in told
    assert '"sales_per_item_key" UNIQUE, btree (item)' in told
    assert 'Table "shop.items"' in told
    assert '"items_pkey" PRIMARY KEY, btree (id)' in told
    assert "timestamp with time zone" in told and "numeric(10,2)" in told and "text[]" in told
    assert "top_items      | materialized view" in told
    assert "JOIN sales_per_item s ON s.item = i.id" in told


@needs_psql
def test_psql_shows_and_copies(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    told = psql(
        shop,
        r"\x",
        "SELECT id, name FROM shop.items WHERE id = 1",
        f"\\copy (SELECT id, name FROM shop.items WHERE id < 50 ORDER BY id) TO '{file}' CSV HEADER",
    )
    assert "-[ RECORD 1 ]" in told and "Ölkanne" in told and "COPY 2" in told
    assert file.read_text() == "id,name\n1,Ölkanne\n2,tab\there\n"


@needs_psql
def test_psql_copies_rows_in(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "sales.csv"
    file.write_text("sale,item,qty\n601,4,5\n602,4,-5\n")
    told = psql(
        shop,
        f"\\copy shop.sales (sale, item, qty) FROM '{file}' CSV HEADER",
        "SELECT 'sum ' || sum(qty) FROM shop.sales WHERE item = 4",
    )
    assert "COPY 2" in told and "sum 0" in told


@needs_psql
def test_ctrl_c_in_psql_ends_the_query(shop: Shop) -> None:
    slow = "SELECT count(*) FROM generate_series(1, 3000000) a(x), generate_series(1, 3000000) b(y)"
    started = subprocess.Popen(
        ["psql", "-X", shop.dsn, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def running() -> bool:
        found = ask_http(shop.server.url, "GET", "/v1/status").json["queries"]
        return any("3000000" in query["text"] for query in found)

    eventually(running)
    started.send_signal(signal.SIGINT)
    _, problem = started.communicate(timeout=60)
    assert "canceling statement due to user request" in problem
    eventually(lambda: not running())


@needs_psql
def test_psql_tells_freshness(shop: Shop) -> None:
    told = psql(
        shop, "SET max_staleness = '10m'", "SHOW max_staleness", "SELECT count(*) FROM top_items", "SHOW receipt"
    )
    assert "10m" in told and "bound     at most 10" in told
    told = psql(
        shop, "SELECT table_schema, table_name, kind, data_timestamp IS NOT NULL AS is_known FROM headgate.tables"
    )
    assert " public       | top_items" in told and " shop         | items" in told


def test_sqlalchemy_reflects_and_pandas_reads(shop: Shop) -> None:
    engine = sa.create_engine(f"postgresql+psycopg://tester@127.0.0.1:{shop.port}/shop")
    found = sa.inspect(engine)
    assert set(found.get_schema_names()) >= {"public", "shop"}
    assert sorted(found.get_table_names(schema="shop")) == ["items", "sales"]
    assert set(found.get_materialized_view_names()) >= {"sales_per_item", "top_items"}
    assert found.get_pk_constraint("items", schema="shop")["constrained_columns"] == ["id"]
    assert found.get_indexes("sales_per_item")[0]["column_names"] == ["item"]
    assert found.get_foreign_keys("items", schema="shop") == []
    assert "shop.sales" in found.get_view_definition("sales_per_item")
    metadata = sa.MetaData()
    metadata.reflect(engine, schema="shop")
    kinds = [str(column.type) for column in metadata.tables["shop.items"].columns]
    assert kinds[:6] == ["BIGINT", "TEXT", "NUMERIC(10, 2)", "DOUBLE PRECISION", "TIMESTAMP", "DATE"]
    view = sa.Table("sales_per_item", sa.MetaData(), autoload_with=engine)
    frame = pd.read_sql(sa.select(view).where(view.c.item == 1), engine)
    assert frame.to_dict("records") == [{"item": 1, "qty": 7, "sales": 2}]
    engine.dispose()


def test_asyncpg(shop: Shop) -> None:
    async def ask() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=shop.port, user="tester", database="shop")
        try:
            row = await connection.fetchrow("SELECT * FROM shop.items WHERE id = $1", 1)
            assert row["price"] == Decimal("12.50") and row["tags"] == ["red", 'a "b"', None]
            assert row["added"] == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
            # An array's type is one that asyncpg looks up, by a recursive query of the catalog.
            found = await connection.fetch("SELECT id FROM shop.items WHERE id = ANY($1) ORDER BY id", [1, 2, 3])
            assert [row["id"] for row in found] == [1, 2]
            named = await connection.fetchval("SELECT id FROM shop.items WHERE name = ANY($1::text[])", ["Ölkanne"])
            assert named == 1
            assert await connection.fetchval("SELECT $1::numeric(10,2)[]", [Decimal("1.50"), None]) == [
                Decimal("1.50"),
                None,
            ]
            await connection.executemany(
                "INSERT INTO shop.sales (sale, item, qty) VALUES ($1, $2, $3)", [(501, 3, 1), (502, 3, -1)]
            )
        finally:
            await connection.close()

    asyncio.run(ask())


def test_asyncpg_takes_rows_by_cursors_and_copies(shop: Shop) -> None:
    async def ask() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=shop.port, user="tester", database="shop")
        try:
            async with connection.transaction(readonly=True):
                numbers = await connection.prepare("SELECT x FROM generate_series(1, $1::int) g(x) ORDER BY x")
                cursor = await numbers.cursor(10)
                assert [row["x"] for row in await cursor.fetch(3)] == [1, 2, 3]
                await cursor.forward(2)
                assert (await cursor.fetchrow())["x"] == 6
                assert [row["x"] for row in await cursor.fetch(100)] == [7, 8, 9, 10]
                every = [
                    row["x"] async for row in connection.cursor("SELECT x FROM generate_series(1, 7) g(x)", prefetch=3)
                ]
                assert sorted(every) == [1, 2, 3, 4, 5, 6, 7]
            file = io.BytesIO()
            await connection.copy_from_query(
                "SELECT id, name FROM shop.items WHERE id < 50 ORDER BY id", output=file, format="csv"
            )
            assert file.getvalue().decode() == "1,Ölkanne\n2,tab\there\n"
            await connection.copy_records_to_table(
                "sales", schema_name="shop", columns=["sale", "item", "qty"], records=[(503, 3, 2), (504, 3, -2)]
            )
            assert await connection.fetchval("SELECT sum(qty) FROM shop.sales WHERE item = 3") == 0
        finally:
            await connection.close()

    asyncio.run(ask())


def test_adbc(shop: Shop) -> None:
    with adbc.connect(f"postgresql://tester@127.0.0.1:{shop.port}/shop") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.items WHERE id < 50 ORDER BY id")
        rows = cursor.fetch_arrow_table().to_pylist()
        assert [row["name"] for row in rows] == ["Ölkanne", "tab\there"]
        assert rows[0]["image"] == b"\x00\xff" and rows[0]["tags"] == ["red", 'a "b"', None]
        cursor.execute("SELECT qty FROM sales_per_item WHERE item = $1", (1,))
        assert cursor.fetchall() == [(7,)]
        assert connection.adbc_get_table_schema("items", db_schema_filter="shop").names[0] == "id"


def test_pgcli(shop: Shop) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "pgcli"),
            "--less-chatty",
            "-h",
            "127.0.0.1",
            "-p",
            str(shop.port),
            "-u",
            "tester",
            "-d",
            "shop",
        ],
        input="select upper(name) || '!' as loud from shop.items where id = 1;\n\\dm\n",
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PAGER": "cat", "TERM": "dumb"},
    )
    assert "ÖLKANNE!" in done.stdout and "top_items" in done.stdout, done.stdout + done.stderr
    assert "not understood" not in done.stdout + done.stderr
