"""What tests ask of a service that is a process, and how the process ends."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.service.asking import Heard, ask
from tests.waiting import PATIENCE, eventually

ENDLESS = "SELECT SUM(hash(id)) AS n FROM range(0, 2000000000000, 1, 20000)"
BACKTRACKING = "'" + "(.*)" * 8 + "b$'"
STUCK_PLAN = f"SELECT repeat('a', 900) RLIKE {BACKTRACKING} AS x"
STUCK_TASK = f"SELECT COUNT(*) AS n FROM range(2) WHERE concat(repeat('a', 900), id) RLIKE {BACKTRACKING}"
"""An expression that takes ages inside one row: Spark looks only between rows whether it is to stop."""


def query(url: str, sql: str, **fields: object) -> Heard:
    return ask(url, "POST", "/v1/query", {"sql": sql, **fields}, seconds=120)


def revenue(url: str) -> list[list[object]]:
    found: list[list[object]] = query(url, "SELECT SUM(sales) AS sales FROM revenue").json["rows"]
    return found


def is_running(url: str) -> bool:
    return bool(ask(url, "GET", "/v1/status").json["queries"])


@contextmanager
def asked(url: str, sql: str) -> Iterator[None]:
    """Inside the block a query of another client is being read; at its end the client goes away."""
    place = urlsplit(url)
    with closing(http.client.HTTPConnection(str(place.hostname), place.port)) as connection:
        connection.request("POST", "/v1/query", json.dumps({"sql": sql}))
        eventually(lambda: "reading" in [each["phase"] for each in ask(url, "GET", "/v1/status").json["queries"]])
        yield


def assert_ends(process: subprocess.Popen[Any], number: int) -> None:
    process.send_signal(number)
    process.wait(PATIENCE)
