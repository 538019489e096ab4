"""The warehouse and the service as Prometheus reads them: text format 0.0.4, base units, `_total` for what only grows."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from headgate.capture.source import SourceStatus
from headgate.delta.changes import BEGINNING
from headgate.scheduling.history import Outcome
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.status import WarehouseStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_OUTCOMES: tuple[Outcome, ...] = ("ok", "stale", "failed", "cancelled")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[Mapping[str, str], float]


class QueryMetrics:
    """What became of the queries; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: Counter[Outcome] = Counter()
        self._met = 0
        self._phases = {phase: _Histogram() for phase in ("wait", "spark", "read")}

    def add(self, outcome: Outcome, receipt: Receipt | None) -> None:
        """A query that ended; it is stale if no answer could be made in time, or one from before was served."""
        with self._lock:
            self._outcomes[outcome] += 1
            if receipt is not None:
                self._met += not receipt.missed
                waited = receipt.waited
                self._phases["wait"].add(waited.capture + waited.queue)
                self._phases["spark"].add(waited.spark)
                self._phases["read"].add(waited.read)

    def write(self, page: MetricsPage) -> None:
        with self._lock:
            missed = self._outcomes["stale"]
            judged = self._met + missed
            page.add(
                "headgate_queries_total",
                "counter",
                "Queries that came to an end.",
                [({"outcome": outcome}, self._outcomes[outcome]) for outcome in _OUTCOMES],
            )
            page.add(
                "headgate_query_bound_met_ratio",
                "gauge",
                "Share of queries whose freshness bound was met.",
                [({}, self._met / judged if judged else float("nan"))],
            )
            page.add(
                "headgate_query_deadline_missed_total",
                "counter",
                "Queries without a fresh enough answer at their deadline.",
                [({}, missed)],
            )
            page.begin("headgate_query_seconds", "histogram", "Time of answered queries by phase.")
            for phase, histogram in self._phases.items():
                histogram.write(page, "headgate_query_seconds", {"phase": phase})


class _Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(_BOUNDS, value)] += 1
        self._sum += value

    def write(self, page: MetricsPage, name: str, labels: Mapping[str, str]) -> None:
        total = 0
        for bound, count in zip((*map(_number, _BOUNDS), "+Inf"), self._counts, strict=True):
            total += count
            page.sample(f"{name}_bucket", {**labels, "le": bound}, total)
        page.sample(f"{name}_sum", labels, self._sum)
        page.sample(f"{name}_count", labels, total)


class MetricsPage:
    """The text that is being written."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: Kind, text: str, samples: Iterable[Sample]) -> None:
        """A metric with its samples; without any it is left out."""
        found = list(samples)
        if found:
            self.begin(name, kind, text)
            for labels, value in found:
                self.sample(name, labels, value)

    def begin(self, name: str, kind: Kind, text: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def sample(self, name: str, labels: Mapping[str, str], value: float) -> None:
        shown = ",".join(f'{label}="{said.translate(_ESCAPES)}"' for label, said in labels.items())
        self._lines.append(f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}")

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def write_warehouse(page: MetricsPage, status: WarehouseStatus, newest_job: int) -> None:
    """Tables and jobs."""
    tables = [({"table": table.name}, table) for table in status.tables]
    lags = [(labels, table.lag.total_seconds()) for labels, table in tables if table.lag is not None]
    targets = [(labels, table.target_lag.total_seconds()) for labels, table in tables if table.target_lag is not None]
    failures = [(labels, table.failure is not None) for labels, table in tables]
    page.add("headgate_table_lag_seconds", "gauge", "Age of what a table holds of its sources.", lags)
    page.add("headgate_table_target_lag_seconds", "gauge", "Lag that a table is kept within.", targets)
    page.add("headgate_table_failed", "gauge", "1 while a table cannot go on because a flow failed.", failures)
    only: list[tuple[str, Kind, str, float]] = [
        ("headgate_jobs_total", "counter", "Jobs that were closed.", newest_job),
        ("headgate_jobs_incomplete", "gauge", "Closed jobs that some table has not reached.", len(status.closed)),
        ("headgate_job_open_rows", "gauge", "Captured changes that no job holds yet.", status.open.rows),
        ("headgate_job_open_transactions", "gauge", "Transactions that no job holds yet.", status.open.transactions),
        ("headgate_batches_total", "counter", "Batches run since the warehouse was opened.", status.executions),
        ("headgate_overlay_bytes", "gauge", "Changes that tables hold beside their files.", status.held_bytes),
        ("headgate_queries_waiting", "gauge", "Queries that wait for a job to be closed.", status.waiting),
        ("headgate_answers_open", "gauge", "Answers that hold a snapshot.", status.answers),
    ]
    for name, kind, text, value in only:
        page.add(name, kind, text, [({}, value)])


def write_sources(page: MetricsPage, sources: Mapping[str, SourceStatus]) -> None:
    """Capture."""
    named = [({"source": name}, status) for name, status in sources.items()]
    wal = [(labels, status.retained_wal) for labels, status in named if status.retained_wal is not None]
    limits = [(labels, status.log_limit) for labels, status in named if status.log_limit is not None]
    gears = [(labels, status.gear) for labels, status in named if status.gear is not None]
    page.add(
        "headgate_source_captured_timestamp_seconds",
        "gauge",
        "Instant up to which all that a source acknowledged is captured.",
        [(labels, status.captured.at.timestamp()) for labels, status in named if status.captured.at != BEGINNING],
    )
    page.add(
        "headgate_source_log_bytes",
        "gauge",
        "Bytes in a source's stream log.",
        [(labels, status.log_bytes) for labels, status in named],
    )
    page.add("headgate_source_log_limit_bytes", "gauge", "Bytes that the stream log may hold.", limits)
    page.add("headgate_source_retained_wal_bytes", "gauge", "Bytes of WAL that the server holds for capture.", wal)
    page.add(
        "headgate_source_gear",
        "gauge",
        "1 for the pace of capture that a source is in.",
        [({**labels, "gear": str(gear)}, 1) for labels, gear in gears],
    )
    page.add(
        "headgate_source_gear_period_seconds",
        "gauge",
        "Time between two looks at a source.",
        [(labels, gear.period.total_seconds()) for labels, gear in gears],
    )
    page.add(
        "headgate_source_trouble",
        "gauge",
        "1 while capture of a source is in trouble.",
        [(labels, status.trouble is not None or bool(status.problems)) for labels, status in named],
    )
    page.add(
        "headgate_source_requests_waiting",
        "gauge",
        "Requests that wait for what is not captured yet.",
        [(labels, status.waiting) for labels, status in named],
    )


def _number(value: float) -> str:
    return "NaN" if value != value else repr(float(value)).removesuffix(".0")
