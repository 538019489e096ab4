"""Firstquery: how soon a service answers, and what the command line and HTTP add to a query.

    make bench NAME=firstquery SCALE=tiny|small|full

The warehouse is the shop of `benchmarks.shop` with one more flow, revenue by store; queries ask it for one store, at most an
hour stale, so that nothing has to be done for them but reading.

    first_answer_s      from starting `headgate run`, a process, on that warehouse until a query at bound 0 is answered
    cli_overhead_ms     `headgate query`, a process each time, less the same query in process; median of rounds
    http_qps            queries a second of 16 clients, threads of one process, of a service in another process ...
    inprocess_qps       ... and of 16 threads in that other process, without HTTP; the two take turns
    http_vs_inprocess   median of the rounds' ratios; the clients' processor time is on HTTP's side
    failed              queries without an answer, or with a wrong one, at 16 and at 128 clients over HTTP
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

import headgate
import headgate.client
from benchmarks.firstquery_clients import MAX_STALENESS, Ask, Asked, Rows, ask_for
from benchmarks.report import in_turns, median, parse_scale, publish, say, seconds
from benchmarks.shop import STORES, Shop, project
from benchmarks.spark import spark_settings
from headgate import Warehouse
from headgate.cli.running import RunningService, announced
from headgate.service import Server

LINES = {"tiny": 24_000, "small": 288_000, "full": 2_880_000}
STARTS = {"tiny": 1, "small": 5, "full": 5}
COMMANDS = {"tiny": 3, "small": 21, "full": 41}
ROUNDS = {"tiny": 1, "small": 7, "full": 9}
SECONDS = {"tiny": 2.0, "small": 8.0, "full": 20.0}
CLIENTS, MANY_CLIENTS = 16, 128

FLOW = """
CREATE MATERIALIZED VIEW store_revenue AS
SELECT store_sk, SUM(lines) AS lines, SUM(qty) AS qty FROM store_sales GROUP BY store_sk;
"""
TARGETS = {"cli_overhead_ms": ("<=", 300.0), "http_vs_inprocess": (">=", 0.8), "failed": ("<=", 0.0)}

Questions = Mapping[str, Rows]


def build(folder: Path, scale: str) -> Questions:
    """A project with a loaded warehouse in a folder; gives the queries that are asked, and their answers."""
    content = project(folder / "warehouse", folder / "flows", "bigint", spark_settings(scale, "2g"))
    (folder / "flows" / "store_revenue.sql").write_text(FLOW, encoding="utf-8")
    (folder / "headgate.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    say(f"loading {LINES[scale]:,} line items")
    with headgate.open(folder) as warehouse:
        Shop(LINES[scale]).load(warehouse.source("shop"))
        warehouse.refresh()
        warehouse.materialize()
        with warehouse.sql("SELECT store_sk, lines, qty FROM store_revenue") as answer:
            rows = answer.to_arrow().to_pylist()
    if len(rows) != STORES or sum(row["lines"] for row in rows) != LINES[scale]:
        raise SystemExit(f"the warehouse does not hold what was loaded: {rows}")
    return {f"SELECT store_sk, lines, qty FROM store_revenue WHERE store_sk = {row['store_sk']}": [row] for row in rows}


def first_answer(folder: Path, questions: Questions) -> float:
    """Seconds from the command to the answer."""
    text, expected = next(iter(questions.items()))
    began = time.perf_counter()
    with service(folder) as url, headgate.client.connect(url) as client, client.sql(text, max_staleness=0) as reply:
        rows = list(reply.rows())
        took = time.perf_counter() - began
    if rows != expected:
        raise SystemExit(f"{text} gave {rows}, not {expected}")
    say(f"  first answer after {took:.1f} s")
    return took


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """`headgate run`, from the command to its clean end; gives the address."""
    log = folder / "service.log"
    command = [sys.executable, "-m", "headgate", "run", "--project", str(folder), "--port", "0", "--json"]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the service did not start:\n{log.read_text()}")
        yield str(json.loads(line)["url"])
        process.send_signal(signal.SIGTERM)
        if process.wait(120) != 0:
            raise SystemExit(f"the service did not end well:\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()


class Warm:
    """A warehouse that is open in this process, and its service."""

    def __init__(self, folder: Path, warehouse: Warehouse, url: str, questions: Questions) -> None:
        self._folder = folder
        self._warehouse = warehouse
        self._url = url
        self._questions = questions
        self._text, self._expected = next(iter(questions.items()))

    def command(self) -> float:
        """Seconds of one `headgate query`."""
        asked = [self._text, "--project", str(self._folder), "--max-staleness", MAX_STALENESS, "--json"]
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "headgate", "query", *asked], capture_output=True, text=True)
        took = time.perf_counter() - began
        if done.returncode or json.loads(done.stdout) != self._expected:
            raise SystemExit(f"headgate query failed: {done.stdout}{done.stderr}")
        return took

    def query(self) -> float:
        """Seconds of the same in process."""
        return seconds(lambda: self._asking()(self._text))

    def in_process(self, for_seconds: float) -> float:
        """Queries a second of as many threads as there are clients."""
        asked = ask_for(for_seconds, [self._asking() for _ in range(CLIENTS)], self._questions)
        if asked.failed:
            raise SystemExit(f"{asked.failed} queries failed in process: {asked.problems}")
        return asked.qps

    def over_http(self, clients: int, for_seconds: float) -> Asked:
        """What clients in a process of their own have seen."""
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.firstquery_clients", self._url, str(clients), str(for_seconds)],
            input=json.dumps(self._questions),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        asked = Asked(**json.loads(done.stdout))
        for problem in asked.problems:
            say(f"  failed: {problem}")
        return asked

    def _asking(self) -> Ask:
        session = self._warehouse.session()

        def ask(text: str) -> Rows:
            with session.sql(text, max_staleness=MAX_STALENESS) as answer:
                rows: Rows = answer.to_arrow().to_pylist()
                return rows

        return ask


def warm_figures(warm: Warm, scale: str) -> dict[str, object]:
    say("warming up")
    warm.in_process(SECONDS[scale])
    asked = [warm.over_http(CLIENTS, SECONDS[scale])]
    say(f"{COMMANDS[scale]} commands")
    took = in_turns({"command": warm.command, "query": warm.query}, COMMANDS[scale])
    overheads = [command - query for command, query in zip(took["command"], took["query"], strict=True)]
    say(f"{CLIENTS} clients, {ROUNDS[scale]} rounds")

    def over_http() -> float:
        asked.append(warm.over_http(CLIENTS, SECONDS[scale]))
        return asked[-1].qps

    rates = in_turns({"http": over_http, "in_process": lambda: warm.in_process(SECONDS[scale])}, ROUNDS[scale])
    ratios = [http / alone for http, alone in zip(rates["http"], rates["in_process"], strict=True)]
    say(f"{MANY_CLIENTS} clients")
    many = warm.over_http(MANY_CLIENTS, SECONDS[scale])
    return {
        "cli_overhead_ms": 1000 * median(overheads),
        "http_qps": median(rates["http"]),
        "inprocess_qps": median(rates["in_process"]),
        "http_vs_inprocess": median(ratios),
        "failed": sum(each.failed for each in asked) + many.failed,
        "command_ms": 1000 * median(took["command"]),
        "query_ms": 1000 * median(took["query"]),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "many_clients_qps": many.qps,
        "queries": sum(each.answered for each in asked) + many.answered,
    }


def run(scale: str) -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-firstquery-") as place:
        folder = Path(place)
        questions = build(folder, scale)
        say(f"{STARTS[scale]} starts of the service")
        starts = [first_answer(folder, questions) for _ in range(STARTS[scale])]
        with (
            headgate.open(folder) as warehouse,
            Server(warehouse, port=0) as server,
            # As `headgate run` does it, so that `headgate query` finds the service by its project.
            announced(warehouse.project.storage, RunningService(server.url, os.getpid())),
        ):
            figures = warm_figures(Warm(folder, warehouse, server.url, questions), scale)
    publish("firstquery", scale, {"first_answer_s": median(starts), **figures}, TARGETS)


if __name__ == "__main__":
    run(parse_scale(__doc__ or ""))
