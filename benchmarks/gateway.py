"""The gateway: PostgreSQL's protocol against HTTP and against PostgreSQL itself. Clients are a process of their own.

make bench NAME=gateway SCALE=tiny|small|full

wire_vs_http          small queries per second of 16 psycopg clients over those of 16 HTTP clients, in turns
rows_vs_postgres      all rows of a table of 8 columns fetched by psycopg: seconds from a PostgreSQL 15 over seconds from here
connect_ms            median time to connect, without a password, and to leave
idle_connection_kb    what each of the connections that are held adds to the service's resident memory
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import headgate
from benchmarks.report import median, parse_scale, publish, say
from benchmarks.spark import spark_settings
from headgate import Warehouse
from headgate.capture.postgres.private_server import PostgresServer
from headgate.gateway.endpoint import Gateway
from headgate.service import Server
from headgate.service.listening import listen

ROWS = {"tiny": 20_000, "small": 1_000_000, "full": 1_000_000}
SECONDS = {"tiny": 0.5, "small": 4.0, "full": 10.0}
ROUNDS = {"tiny": 1, "small": 5, "full": 5}
HELD = {"tiny": 100, "small": 500, "full": 500}
TARGETS = {"wire_vs_http": (">=", 1.0), "rows_vs_postgres": (">=", 0.3)}
COLUMNS = {
    "id": "bigint",
    "item": "int",
    "qty": "int",
    "price": "decimal(12,2)",
    "weight": "double",
    "name": "string",
    "sold_at": "timestamp",
    "day": "date",
}
POSTGRES = (
    "CREATE TABLE sales AS SELECT x::bigint AS id, (x % 1000)::int AS item, (x % 7)::int AS qty, (x % 9999 / 100.0)::numeric(12,2) "
    "AS price, "
    "(x / 8.0)::float8 AS weight, 'item ' || x % 1000 AS name, timestamptz '2026-01-01' + x * interval '1 second' AS sold_at, "
    "date '2026-01-01' + x % 365 AS day FROM generate_series(1, {rows}) x"
)


def open_shop(folder: Path, scale: str) -> Warehouse:
    return headgate.open(
        {
            "name": "shop",
            "storage": str(folder / "warehouse"),
            "spark": spark_settings(scale, "2g"),
            "sources": {"shop": {"type": "producer", "tables": {"sales": {"columns": COLUMNS, "key": ["id"]}}}},
            "background": {"system_jobs": False},
        }
    )


def fill(warehouse: Warehouse, rows: int) -> None:
    from decimal import Decimal

    began = datetime(2026, 1, 1, tzinfo=UTC)
    with headgate.connect(warehouse, tables=["sales"]) as connection:
        cursor = connection.cursor()
        for first in range(1, rows + 1, 100_000):
            numbers = range(first, min(rows + 1, first + 100_000))
            cursor.insert(
                "sales",
                pa.table(
                    {
                        "id": pa.array(numbers, pa.int64()),
                        "item": pa.array([x % 1000 for x in numbers], pa.int32()),
                        "qty": pa.array([x % 7 for x in numbers], pa.int32()),
                        "price": pa.array([Decimal(x % 9999) / 100 for x in numbers], pa.decimal128(12, 2)),
                        "weight": pa.array([x / 8 for x in numbers]),
                        "name": pa.array([f"item {x % 1000}" for x in numbers]),
                        "sold_at": pa.array([began + timedelta(seconds=x) for x in numbers], pa.timestamp("us", "UTC")),
                        "day": pa.array([(began + timedelta(days=x % 365)).date() for x in numbers], pa.date32()),
                    }
                ),
            )
            connection.commit()
    warehouse.refresh()
    warehouse.materialize()


def client(*arguments: object) -> dict[str, float]:
    """What a process of clients measured."""
    command = [sys.executable, "-m", "benchmarks.gateway_clients", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(scale: str, folder: Path) -> dict[str, object]:
    rows, seconds, rounds = ROWS[scale], SECONDS[scale], ROUNDS[scale]
    with PostgresServer() as postgres, open_shop(folder, scale) as warehouse:
        say(f"filling {rows:,} rows")
        postgres.execute(POSTGRES.format(rows=rows))  # type: ignore[arg-type]
        fill(warehouse, rows)
        gateway = Gateway(listen("127.0.0.1", 0), "unused", is_open=True)
        with Server(warehouse, port=0, endpoints=[gateway]) as server:
            address = f"host=127.0.0.1 port={gateway.port} user=bench dbname=shop"
            client("rows", address, rows, "shop.sales")  # warm up
            wire, http, ratios, here, there = (list[float]() for _ in range(5))
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                sides = [(http, "http", server.url), (wire, "wire", address)]
                for found, kind, place in sides if number % 2 == 0 else reversed(sides):
                    found.append(client(kind, place, seconds)["queries_per_second"])
                ratios.append(wire[-1] / http[-1])
                there.append(client("rows", postgres.dsn, rows, "sales")["seconds"])
                here.append(client("rows", address, rows, "shop.sales")["seconds"])
            held = client("held", address, HELD[scale], _process_id())
    return {
        "wire_vs_http": median(ratios),
        "rows_vs_postgres": median([there[place] / here[place] for place in range(rounds)]),
        "wire_queries_per_second": median(wire),
        "http_queries_per_second": median(http),
        "rows_seconds": median(here),
        "postgres_rows_seconds": median(there),
        "rows": rows,
        **held,
    }


def _process_id() -> int:
    import os

    return os.getpid()


def main() -> None:
    scale = parse_scale(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        results = measure(scale, Path(place))
    publish("gateway", scale, results, TARGETS)


if __name__ == "__main__":
    main()
