"""Clients of `benchmarks.gateway`, as a process of their own; each kind prints what it measured as JSON.

python -m benchmarks.gateway_clients wire DSN SECONDS | http URL SECONDS | rows DSN ROWS TABLE | held DSN COUNT PID
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

CLIENTS = 16
_ITEMS = 997


def ask_all(connect: Callable[[], Callable[[int], int]], seconds: float) -> dict[str, float]:
    """Queries per second of all clients together; each answer is looked at."""
    asks = [connect() for _ in range(CLIENTS)]
    for ask in asks:
        ask(1)
    counts = [0] * CLIENTS
    until = time.monotonic() + seconds

    def work(place: int) -> None:
        while time.monotonic() < until:
            number = 1 + (counts[place] * CLIENTS + place) % _ITEMS
            assert asks[place](number) == number
            counts[place] += 1

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=[place]) for place in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"queries_per_second": sum(counts) / (time.monotonic() - began)}


def wire_client(dsn: str) -> Callable[[int], int]:
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute("SET max_staleness = 'any'")

    def ask(number: int) -> int:
        row = connection.execute(f"SELECT id, name FROM shop.sales WHERE id = {number}").fetchone()  # type: ignore[arg-type]
        assert row is not None
        return int(row[0])

    return ask


def http_client(url: str) -> Callable[[int], int]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def ask(number: int) -> int:
        body = {"sql": f"SELECT id, name FROM shop.sales WHERE id = {number}", "max_staleness": "any", "format": "json"}
        connection.request("POST", "/v1/query", json.dumps(body), {"Content-Type": "application/json"})
        return int(json.loads(connection.getresponse().read())["rows"][0][0])

    return ask


def rows(dsn: str, count: int, table: str) -> dict[str, float]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        began = time.perf_counter()
        found = len(connection.execute(f"SELECT * FROM {table}").fetchall())  # type: ignore[arg-type]
        took = time.perf_counter() - began
    assert found == count, f"{found} rows"
    return {"seconds": took}


def held(dsn: str, count: int, process: int) -> dict[str, float]:
    def resident() -> int:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
        assert found is not None
        return int(found[1])

    times = []
    for _ in range(30):
        began = time.perf_counter()
        psycopg.connect(dsn).close()
        times.append((time.perf_counter() - began) * 1000)
    before = resident()
    connections = [psycopg.connect(dsn) for _ in range(count)]
    after = resident()
    assert connections[-1].execute("SELECT id FROM shop.sales WHERE id = 1").fetchone() == (1,)
    for connection in connections:
        connection.close()
    return {
        "connect_ms": statistics.median(times),
        "idle_connection_kb": (after - before) / count,
        "connections_held": count,
    }


def main() -> None:
    kind, address, *more = sys.argv[1:]
    match kind:
        case "wire":
            found = ask_all(lambda: wire_client(address), float(more[0]))
        case "http":
            found = ask_all(lambda: http_client(address), float(more[0]))
        case "rows":
            found = rows(address, int(more[0]), more[1])
        case _:
            found = held(address, int(more[0]), int(more[1]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
