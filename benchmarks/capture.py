"""Capture: what it takes from the source, how fast it drains a backlog, and how far it lags.

    make bench NAME=capture SCALE=tiny|small|full

`drain_vs_pg_recvlogical` compares with PostgreSQL's own tool, which only copies the stream into a file: both drain the same
prepared WAL. `lag_p99_ms` is from a transaction's commit until it is durable in the stream log. `oltp_p95` is pgbench's
95th percentile at 60 % of the capacity that it has without capture, with a method attached that nobody asks
anything of, against no capture; the timestamp method's indexes count as its own. There, headgate's own threads only get what the
server and pgbench leave idle, as they would not share a machine; what the server does for capture has its full weight.
`oltp_p95.pg_recvlogical` is the same with PostgreSQL's own reader, `.server_side` with a reader that throws the stream away and
costs nothing itself, the least that any reader of the log takes, and `.control` with none, once more: what the figures are worth.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.oltp import TABLES, Oltp
from benchmarks.oltp_capture import METHODS, Attached, clean_up, open_method
from benchmarks.oltp_readers import Emptying, Receiving, receive
from benchmarks.report import in_turns, median, parse_scale, publish, say, seconds
from headgate.capture.gears.agent import Agent
from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log import LogMethod
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.clock import SystemClock
from headgate.config.gears import Gear, GearSettings

WAREHOUSES = {"tiny": 4, "small": 10, "full": 20}
DRAIN_ROUNDS = {"tiny": 1, "small": 3, "full": 5}
DRAIN_SECONDS = {"tiny": 2, "small": 15, "full": 60}
BULK_ROWS = {"tiny": 50_000, "small": 1_000_000, "full": 5_000_000}
LAG_SECONDS = {"tiny": 2, "small": 15, "full": 60}
PAIRS = {"tiny": 1, "small": 15, "full": 30}
PAIR_SECONDS = {"tiny": 2, "small": 4, "full": 8}
CAPACITY_RUNS = 5
SHARE_OF_CAPACITY = 0.6
LAG_SHARE = 0.3
EVERYTHING = 1 << 62

Made = TypeVar("Made")

TARGETS = {"drain_vs_pg_recvlogical": (">=", 0.3), "oltp_p95.log": ("<=", 1.10)}

BULK = """
INSERT INTO order_line (w_id, d_id, o_id, l_number, i_id, l_quantity, l_amount)
SELECT 0, %(part)s, n, 1, n %% 1000, n %% 10, n %% 100 FROM generate_series(1, %(rows)s::int) n
"""


def drain_figures(oltp: Oltp, kind: str, prepare: Callable[[str], None], rounds: int) -> dict[str, float]:
    """Both drain the WAL that `prepare` makes, each from as many slots as there are rounds."""
    database = f"drain_{kind}"
    dsn = oltp.create(database)
    names = [f"headgate_drain_{number}" for number in range(rounds)]
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place, oltp.server.connect(database) as connection:
        folder = Path(place)
        for name in names:
            log = LocalLog(folder / name)
            open_method("log", dsn, log, name).close()
            log.close()
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [f"plain_{name}"])
        prepare(database)
        lines, end = connection.execute(
            "SELECT count(*), pg_current_wal_insert_lsn()::text FROM order_line"
        ).fetchall()[0]
        # Something to read at the end, so that the tool sees that it is there.
        connection.execute("UPDATE warehouse SET w_tax = w_tax")
        left = iter(names), iter(names)

        def headgate() -> float:
            name = next(left[0])
            log = LocalLog(folder / name)
            took = seconds(lambda: _catch_up(dsn, log, name))
            _check_lines(log, lines)
            log.close()
            return took

        def tool() -> float:
            name = next(left[1])
            command = [*receive(oltp, database, f"plain_{name}", name, folder / "received"), "-E", end]
            took = seconds(lambda: subprocess.run(command, check=True, timeout=1800))
            (folder / "received").unlink()
            return took

        times = in_turns({"headgate": headgate, "pg_recvlogical": tool}, rounds)
        clean_up(oltp, database)
    oltp.drop(database)
    ours, theirs = median(times["headgate"]), median(times["pg_recvlogical"])
    return {"ratio": theirs / ours, "headgate_s": ours, "pg_recvlogical_s": theirs, "lines_per_s": lines / ours}


def _catch_up(dsn: str, log: LocalLog, name: str) -> None:
    method = open_method("log", dsn, log, name)
    assert isinstance(method, LogMethod)
    needed, number = method.sample().position, 0
    while method.captured < needed:
        number += 1
        task = method.plan(number)
        if task is not None:
            method.publish(method.read(task))
    method.close()


def _check_lines(log: LocalLog, expected: int) -> None:
    found = sum(each.rows.get("order_line", 0) for each in log.transactions(0, EVERYTHING))
    if found != expected:
        raise SystemExit(f"{found} of {expected} order lines were captured")


def small_transactions(oltp: Oltp, length: float) -> Callable[[str], None]:
    def prepare(database: str) -> None:
        oltp.run(database, length)

    return prepare


def bulk_transactions(oltp: Oltp, rows: int, parts: int = 5) -> Callable[[str], None]:
    def prepare(database: str) -> None:
        with oltp.server.connect(database) as connection:
            for part in range(parts):
                connection.execute(BULK, {"part": part, "rows": rows // parts})

    return prepare


class NotedLog(LogMethod):
    """Remembers when what was durable by then."""

    def __init__(self, *given: Any, log: LocalLog, **options: Any) -> None:
        self.noted: list[tuple[int, float]] = []
        self._stream_log = log
        super().__init__(*given, log=log, **options)

    def publish(self, batch: int) -> None:
        super().publish(batch)
        self.noted.append((self._stream_log.end, time.time()))


def lag_figures(oltp: Oltp, database: str, rate: float, length: float) -> dict[str, float]:
    """In the highest gear and in the lowest, at a steady rate."""
    found: dict[str, float] = {}
    highest, lowest = GearSettings().for_method("log").gears
    for name, gear in {"": highest, "_lowest_gear": lowest}.items():
        lags = _lags(oltp, database, gear, rate, length)
        found |= {f"lag_p99_ms{name}": float(np.percentile(lags, 99)), f"lag_p50_ms{name}": float(np.median(lags))}
    return found


def _lags(oltp: Oltp, database: str, gear: Gear, rate: float, length: float) -> npt.NDArray[np.float64]:
    """Milliseconds from commit to durable, per transaction."""
    oltp.reset(database)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        log = LocalLog(Path(place))
        definitions = [TableDefinition(table, table) for table in TABLES]
        dsn = oltp.server.dsn_of(database)
        method = NotedLog(dsn, "headgate_bench", definitions, log=log, clock=SystemClock())
        agent: Agent[int, int] = Agent(method, SystemClock(), GearSettings(gears=(gear,)))
        after = log.end
        oltp.run(database, length, rate=rate)
        agent.request(None, timedelta(seconds=60))
        agent.close()
        committed = log.transactions(after, EVERYTHING)
        log.close()
    clean_up(oltp, database)
    positions = np.array([position for position, _ in method.noted])
    times = np.array([at for _, at in method.noted])
    where = np.searchsorted(positions, [each.position for each in committed])
    committed_at = np.array([each.commit_at.timestamp() for each in committed])
    # The first tenth is the start of the load.
    late: npt.NDArray[np.float64] = (times[where] - committed_at)[len(where) // 10 :] * 1000
    return late


def attach(oltp: Oltp, database: str, name: str) -> Attached | Receiving | Emptying | None:
    match name:
        case "none" | "control":
            return None
        case "server_side":
            return Emptying(oltp, database)
        case "pg_recvlogical":
            return Receiving(oltp, database)
        case "log" | "trigger" | "timestamp":
            return yielding(partial(Attached, oltp, database, name))
    raise ValueError(name)


def oltp_figures(oltp: Oltp, database: str, pairs: int, length: float) -> dict[str, object]:
    """Without capture and with every reader, in rounds whose order rotates; `control` is without capture once more.

    Many short rounds: the machine's own ups and downs last for seconds.
    """
    compared = ("control", "server_side", "pg_recvlogical", *METHODS)
    variants = ("none", *compared)
    p95: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    rate = SHARE_OF_CAPACITY * median([capacity_of(oltp, database, length / 2) for _ in range(CAPACITY_RUNS)])
    for number in range(pairs):
        turn = number % len(variants)
        for name in (*variants[turn:], *variants[:turn]):
            oltp.reset(database)
            attached = attach(oltp, database, name)
            used = oltp.cpu_seconds()
            transactions = oltp.run(database, length, rate=rate)
            cpu[name].append((oltp.cpu_seconds() - used) / len(transactions))
            if attached is not None:
                attached.close()
            start = transactions.ended_at.min()
            p95[name].append(transactions.between(start + 0.15 * length, start + length).percentile(95))
            say(f"  {name:<14} p95 {p95[name][-1]:7.2f} ms   server {cpu[name][-1] * 1e3:6.3f} ms CPU a transaction")

    def against_none(values: dict[str, list[float]], percent: float = 50) -> dict[str, float]:
        return {name: float(np.percentile(np.divide(values[name], values["none"]), percent)) for name in compared}

    return {
        "oltp_p95": against_none(p95),
        "oltp_p95_lower_quartile": against_none(p95, 25),
        "oltp_p95_upper_quartile": against_none(p95, 75),
        "oltp_cpu": against_none(cpu),
        "oltp_p95_ms": {name: median(values) for name, values in p95.items()},
        "oltp_cpu_ms": {name: median(values) * 1e3 for name, values in cpu.items()},
        "oltp_rate_per_s": rate,
    }


def capacity_of(oltp: Oltp, database: str, length: float) -> float:
    """Transactions a second without capture, as many as there can be."""
    oltp.reset(database)
    transactions = oltp.run(database, length)
    return len(transactions) / float(np.ptp(transactions.ended_at))


def yielding(make: Callable[[], Made]) -> Made:
    """Makes something in a thread that runs only where nothing else wants to, and so do the threads that it starts."""

    def lower() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    with ThreadPoolExecutor(1, initializer=lower) as pool:
        return pool.submit(make).result()


def main() -> None:
    scale = parse_scale(__doc__ or "")
    with Oltp(WAREHOUSES[scale]) as oltp:
        say("draining a backlog")
        rounds = DRAIN_ROUNDS[scale]
        drains = {
            "small": drain_figures(oltp, "small", small_transactions(oltp, DRAIN_SECONDS[scale]), rounds),
            "bulk": drain_figures(oltp, "bulk", bulk_transactions(oltp, BULK_ROWS[scale]), rounds),
        }
        database, length = "shop", PAIR_SECONDS[scale]
        oltp.create(database)
        rate = LAG_SHARE * capacity_of(oltp, database, length)
        say(f"lag at {rate:.0f} transactions/s")
        lag = lag_figures(oltp, database, rate, LAG_SECONDS[scale])
        say("what an idle capture takes from the source")
        costs = oltp_figures(oltp, database, PAIRS[scale], length)
    worst = min(figures["ratio"] for figures in drains.values())
    results: dict[str, object] = {
        "drain_vs_pg_recvlogical": worst,
        "drain": drains,
        **lag,
        "lag_rate_per_s": rate,
        **costs,
    }
    publish("capture", scale, results, TARGETS)


if __name__ == "__main__":
    main()
