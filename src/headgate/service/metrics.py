"""The warehouse and the service as Prometheus reads them: what is observed when Prometheus asks, and counts of what became
of the queries. Base units; one sample per table and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from headgate.capture.source import SourceStatus
from headgate.delta.changes import BEGINNING
from headgate.runtime.sources.loading import SourceLoad
from headgate.runtime.sources.range_progress import RangesLoaded
from headgate.scaling.scaler import PartSize
from headgate.scheduling.history import Outcome
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.scaling import ScalingStatus
from headgate.scheduling.status import TableStatus, WarehouseStatus
from headgate.scheduling.warehouse import Warehouse
from headgate.service.restarts import Restarts

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_OUTCOMES: tuple[Outcome, ...] = ("ok", "stale", "failed", "cancelled")


class MetricsRegistry(CollectorRegistry):
    """The metrics of one service. The library's switch for the samples that tell when a counter began holds for the whole
    process, which may be someone else's; here these samples are left out."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics in the format that suits an Accept header, and the type of that format."""
        try:
            encode, content_type = choose_encoder(accept)
        except TypeError:  # the library cannot compare the version that the header names
            encode, content_type = choose_encoder("")
        return encode(self), content_type


class QueryMetrics:
    """What became of the queries; used from one thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._met = self._judged = 0
        self._ended = Counter(
            "headgate_queries_total", "Queries that ended, by outcome.", ["outcome"], registry=registry
        )
        self._met_ratio = Gauge(
            "headgate_query_bound_met_ratio", "Share of queries whose freshness bound was met.", registry=registry
        )
        self._missed = Counter(
            "headgate_query_deadline_missed_total",
            "Queries without a fresh enough answer at their deadline.",
            registry=registry,
        )
        self._seconds = Histogram(
            "headgate_query_seconds",
            "Time of answered queries by phase.",
            ["phase"],
            buckets=_BOUNDS,
            registry=registry,
        )
        self._ranges = Counter(
            "headgate_query_ranges_total",
            "Key ranges of tables that answers derive from: read, of these brought forward, others left behind.",
            ["course"],
            registry=registry,
        )
        for course in ("read", "brought_forward", "left_behind"):
            self._ranges.labels(course)
        self._met_ratio.set(float("nan"))
        for outcome in _OUTCOMES:
            self._ended.labels(outcome)
        for phase in ("wait", "spark", "read"):
            self._seconds.labels(phase)

    def add(self, outcome: Outcome, receipt: Receipt | None) -> None:
        """A query that ended; it is stale if no answer could be made in time, or one from before was served."""
        self._ended.labels(outcome).inc()
        if outcome == "stale":
            self._missed.inc()
        is_met = receipt is not None and not receipt.missed
        if is_met or outcome == "stale":
            self._met, self._judged = self._met + is_met, self._judged + 1
            self._met_ratio.set(self._met / self._judged)
        if receipt is not None:
            waited = receipt.waited
            self._seconds.labels("wait").observe(waited.capture + waited.queue)
            self._seconds.labels("spark").observe(waited.spark)
            self._seconds.labels("read").observe(waited.read)
            for each in receipt.ranges:
                self._ranges.labels("read").inc(len(each.read))
                self._ranges.labels("brought_forward").inc(each.brought_forward)
                self._ranges.labels("left_behind").inc(each.left_behind)


class WarehouseCollector:
    """The warehouse at the moment when it is asked."""

    def __init__(self, warehouse: Callable[[], Warehouse], restarts: Restarts) -> None:
        self._warehouse = warehouse
        self._restarts = restarts

    def collect(self) -> Iterator[Metric]:
        warehouse = self._warehouse()
        status = warehouse.status
        yield from warehouse_metrics(status, warehouse.newest_job, self._restarts.count)
        if status.scaling is not None:
            yield from scaling_metrics(status.scaling)
        yield from source_metrics({name: source.status for name, source in warehouse.sources.items()})
        yield from load_metrics(warehouse.loads)


def warehouse_metrics(status: WarehouseStatus, newest_job: int, restarts: int = 0) -> Iterator[Metric]:
    """Tables and jobs, and Spark."""
    for name, text, measure in _OF_TABLES:
        yield _gauge(name, text, "table", ((table.name, measure(table)) for table in status.tables))
    violations = GaugeMetricFamily(
        "headgate_table_violations",
        "Rows of a table's query that violate a constraint, those that are dropped included.",
        labels=["table", "constraint", "action"],
    )
    for table in status.tables:
        for each in table.expectations:
            if each.violations is not None:
                violations.add_metric([table.name, each.name, each.action], each.violations)
    yield violations
    yield CounterMetricFamily("headgate_jobs_total", "Jobs that were closed.", newest_job)
    yield CounterMetricFamily(
        "headgate_batches_total", "Batches run since the warehouse was opened.", status.executions
    )
    ways = CounterMetricFamily(
        "headgate_batch_ways_total",
        "Batches with changes since the warehouse was opened: narrow, wide or recomputed.",
        labels=["way"],
    )
    for way, count in status.ways.items():
        ways.add_metric([way], count)
    yield ways
    yield CounterMetricFamily(
        "headgate_answers_from_kept_total", "Answers that came from kept ones.", status.answers_from_kept
    )
    yield CounterMetricFamily("headgate_spark_restarts_total", "Times that Spark died and was started again.", restarts)
    for name, text, value in (
        ("headgate_jobs_incomplete", "Closed jobs that some table has not reached.", len(status.closed)),
        ("headgate_job_open_rows", "Captured changes that no job holds yet.", status.open.rows),
        ("headgate_job_open_transactions", "Transactions that no job holds yet.", status.open.transactions),
        ("headgate_overlay_bytes", "Changes that tables hold beside their files.", status.held_bytes),
        ("headgate_queries_waiting", "Queries that wait for a job to be closed.", status.waiting),
        ("headgate_answers_open", "Answers that hold a snapshot.", status.answers),
        ("headgate_answers_kept", "Answers that are moved on from job to job.", status.kept_answers),
        ("headgate_answers_kept_bytes", "Memory that kept answers take.", status.kept_answers_bytes),
        ("headgate_subscriptions_open", "Subscriptions that are open.", status.subscriptions),
        ("headgate_spark_lost", "1 when Spark has to be started again.", status.spark_lost is not None),
    ):
        yield GaugeMetricFamily(name, text, value)


def scaling_metrics(status: ScalingStatus) -> Iterator[Metric]:
    """The sizes of the parts."""
    for name, text, measure in _OF_PARTS:
        yield _gauge(name, text, "part", ((part, measure(found)) for part, found in status.parts.items()))
    changed = CounterMetricFamily("headgate_part_changes", "Changes of a part's size since the start.", labels=["part"])
    for part in status.parts:
        changed.add_metric([part], status.changed.get(part, 0))
    yield changed
    yield GaugeMetricFamily("headgate_executors", "Executors that Spark has.", status.executors)
    yield GaugeMetricFamily("headgate_executor_hours", "Executor hours of today (UTC).", status.executor_hours)


def source_metrics(sources: Mapping[str, SourceStatus]) -> Iterator[Metric]:
    """Capture."""
    for name, text, measure in _OF_SOURCES:
        yield _gauge(name, text, "source", ((source, measure(status)) for source, status in sources.items()))
    pace = GaugeMetricFamily(
        "headgate_source_gear", "1 for the gear that capture of a source is in.", labels=["source", "gear"]
    )
    for source, status in sources.items():
        if status.gear is not None:
            pace.add_metric([source, str(status.gear)], 1)
    yield pace


def load_metrics(loads: Mapping[str, SourceLoad]) -> Iterator[Metric]:
    """Tables that are loaded range by range."""
    found = [(f"{source}.{table}", each) for source, load in loads.items() for table, each in load.ranges.items()]
    for name, text, measure in _OF_LOADS:
        yield _gauge(name, text, "table", ((table, measure(each)) for table, each in found))


def _gauge(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    """One sample for each whose value is known."""
    gauge = GaugeMetricFamily(name, text, labels=[label])
    for of, value in values:
        if value is not None:
            gauge.add_metric([of], value)
    return gauge


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


_OF_TABLES: tuple[tuple[str, str, Callable[[TableStatus], float | None]], ...] = (
    ("headgate_table_lag_seconds", "Age of what a table holds of its sources.", lambda table: _seconds(table.lag)),
    (
        "headgate_table_target_lag_seconds",
        "Lag that a table is kept within.",
        lambda table: _seconds(table.target_lag),
    ),
    (
        "headgate_table_failed",
        "1 while a table cannot go on because a flow failed.",
        lambda table: table.failure is not None,
    ),
    ("headgate_table_ranges", "Key ranges of a table.", lambda table: max(1, len(table.ranges))),
    (
        "headgate_table_ranges_uneven",
        "Key ranges of a table that lag behind its furthest one.",
        lambda table: sum(job < max(table.ranges.values()) for job in table.ranges.values()),
    ),
    (
        "headgate_table_ranges_missing",
        "Key ranges of a table that nobody can read: given up, or not there yet.",
        lambda table: len(table.missing),
    ),
)

_OF_PARTS: tuple[tuple[str, str, Callable[[PartSize], float | None]], ...] = (
    ("headgate_part_size", "Tasks that a part may run; of executors, how many are asked for.", lambda part: part.size),
    ("headgate_part_load_ratio", "What a part has to do, as a share of its limit.", lambda part: part.load),
    ("headgate_part_limiting", "1 while a part ought to grow and cannot.", lambda part: part.is_limiting),
)

_OF_LOADS: tuple[tuple[str, str, Callable[[RangesLoaded], float | None]], ...] = (
    ("headgate_load_ranges", "Ranges of a table that is being loaded.", lambda load: load.count),
    ("headgate_load_ranges_loaded", "Ranges of it that are loaded.", lambda load: load.read),
    ("headgate_load_ranges_waiting", "Ranges of it that queries wait for.", lambda load: len(load.waiting)),
    ("headgate_load_rows", "Rows of it that are loaded.", lambda load: load.rows),
    ("headgate_load_rows_per_second", "Rows of it that are loaded a second.", lambda load: load.rate),
    (
        "headgate_load_remaining_seconds",
        "Time until all of it is loaded, about.",
        lambda load: _seconds(load.remaining),
    ),
)

_OF_SOURCES: tuple[tuple[str, str, Callable[[SourceStatus], float | None]], ...] = (
    (
        "headgate_source_captured_timestamp_seconds",
        "Instant up to which all that a source acknowledged is captured.",
        lambda status: None if status.captured.at == BEGINNING else status.captured.at.timestamp(),
    ),
    ("headgate_source_log_bytes", "Bytes in a source's stream log.", lambda status: status.log_bytes),
    ("headgate_source_log_limit_bytes", "Bytes that the stream log may hold.", lambda status: status.log_limit),
    (
        "headgate_source_unloaded_tables",
        "Tables of a source whose first rows are not read yet.",
        lambda status: len(status.unloaded),
    ),
    (
        "headgate_source_loading_rows",
        "Rows read by running initial loads.",
        lambda status: None if status.loading is None else status.loading.rows,
    ),
    (
        "headgate_source_loading_estimated_rows",
        "First rows that these tables have, about.",
        lambda status: None if status.loading is None else status.loading.estimated,
    ),
    (
        "headgate_source_loading_remaining_seconds",
        "Time until these tables are read, about.",
        lambda status: None if status.loading is None else _seconds(status.loading.remaining),
    ),
    (
        "headgate_source_partitions",
        "Partitions of a source's elastic queue.",
        lambda status: None if status.queue is None else len(status.queue.partitions),
    ),
    (
        "headgate_source_partition_deviation_ratio",
        "How unevenly what waits is spread over the partitions; 0 is even.",
        lambda status: None if status.queue is None else status.queue.deviation / 100,
    ),
    (
        "headgate_source_retained_wal_bytes",
        "Bytes of WAL that the server holds for capture.",
        lambda status: status.retained_wal,
    ),
    (
        "headgate_source_gear_period_seconds",
        "Time between two looks at a source.",
        lambda status: None if status.gear is None else status.gear.period.total_seconds(),
    ),
    (
        "headgate_source_trouble",
        "1 while capture of a source is in trouble.",
        lambda status: status.trouble is not None or bool(status.problems),
    ),
    (
        "headgate_source_requests_waiting",
        "Requests that wait for what is not captured yet.",
        lambda status: status.waiting,
    ),
)
