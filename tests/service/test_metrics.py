"""Metrics in Prometheus' format."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from headgate.capture.queue_status import PartitionStatus, QueueStatus
from headgate.capture.source import SourceFreshness, SourceStatus
from headgate.config.gears import Gear
from headgate.delta.changes import BEGINNING, JobId
from headgate.scheduling.receipt import Waited
from headgate.scheduling.status import ClosedJob, OpenJob, TableStatus, WarehouseStatus
from headgate.service.metrics import MetricsRegistry, QueryMetrics, source_metrics, warehouse_metrics
from tests.service.prometheus import Family, read_metrics
from tests.service.scripted import AT, RECEIPT

STATUS = WarehouseStatus(
    at=AT,
    open=OpenJob(JobId(8), 12, 3),
    closed=(ClosedJob(JobId(7), AT, ("slow",)),),
    complete=JobId(6),
    tables=(
        TableStatus("shop.sales", JobId(7), AT, timedelta(seconds=1.5), None, None),
        TableStatus('odd"name\\\n', JobId(6), AT, timedelta(0), timedelta(minutes=5), "it failed"),
        TableStatus("new", JobId(0), None, None, None, None),
    ),
    captured={},
    waiting=2,
    answers=4,
    executions=20,
    held_bytes=1 << 40,
    actions=(),
    ways={"narrow": 18, "wide": 2, "recompute": 0},
)


class Observed:
    """A collector of what was observed before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def told(metrics: Iterable[Metric]) -> dict[str, Family]:
    """What a client reads of metrics."""
    registry = MetricsRegistry()
    registry.register(Observed(metrics))
    return read_metrics(registry.page()[0].decode())


def test_tables_and_jobs_are_told() -> None:
    found = told(warehouse_metrics(STATUS, 7, restarts=2))
    assert found["headgate_spark_restarts_total"].kind == "counter"
    assert found["headgate_spark_restarts_total"].value() == 2
    assert found["headgate_table_lag_seconds"].value(table="shop.sales") == 1.5
    assert found["headgate_table_lag_seconds"].value(table='odd"name\\\n') == 0
    assert len(found["headgate_table_lag_seconds"].samples) == 2
    assert found["headgate_table_target_lag_seconds"].value(table='odd"name\\\n') == 300
    assert found["headgate_table_failed"].value(table="shop.sales") == 0
    assert found["headgate_table_failed"].value(table='odd"name\\\n') == 1
    assert found["headgate_jobs_total"].kind == "counter" and found["headgate_jobs_total"].value() == 7
    assert found["headgate_batch_ways_total"].value(way="wide") == 2
    assert found["headgate_jobs_incomplete"].value() == 1
    assert found["headgate_job_open_rows"].value() == 12 and found["headgate_job_open_transactions"].value() == 3
    assert found["headgate_overlay_bytes"].value() == 1 << 40
    assert found["headgate_queries_waiting"].value() == 2 and found["headgate_answers_open"].value() == 4


def test_sources_are_told_and_what_is_unknown_is_left_out() -> None:
    gear = Gear(period=timedelta(milliseconds=20), workers=2)
    full = SourceStatus(SourceFreshness(9, AT), 1000, 4096, {}, OSError("gone"), gear, "busy", 3, 5 << 20, 1 << 30)
    plain = SourceStatus(SourceFreshness(0, BEGINNING), 0, None, {})
    found = told(source_metrics({"shop": full, "etl": plain}))
    assert found["headgate_source_log_bytes"].value(source="shop") == 1000
    assert found["headgate_source_log_bytes"].value(source="etl") == 0
    assert found["headgate_source_retained_wal_bytes"].value(source="shop") == 5 << 20
    assert found["headgate_source_gear"].value(source="shop", gear="20ms×2") == 1
    assert found["headgate_source_gear_period_seconds"].value(source="shop") == 0.02
    assert found["headgate_source_trouble"].value(source="shop") == 1
    assert found["headgate_source_trouble"].value(source="etl") == 0
    halves = (PartitionStatus(2, 0, 1 << 31, 300, 3), PartitionStatus(3, 1 << 31, 1 << 32, 100, 1))
    queue = QueueStatus(halves, 4, 7, 50.0, "stay: 2 partitions fit what waits", None)
    found = told(source_metrics({"shop": full, "etl": replace(plain, queue=queue)}))
    assert found["headgate_source_partitions"].value(source="etl") == 2
    assert found["headgate_source_partition_deviation_ratio"].value(source="etl") == 0.5
    for name in ("partitions", "partition_deviation_ratio"):
        assert len(found[f"headgate_source_{name}"].samples) == 1
    assert found["headgate_source_captured_timestamp_seconds"].value(source="shop") == AT.timestamp()
    for name in ("retained_wal_bytes", "log_limit_bytes", "gear", "captured_timestamp_seconds"):
        assert len(found[f"headgate_source_{name}"].samples) == 1


def test_queries_are_counted_by_outcome_and_phase() -> None:
    registry = MetricsRegistry()
    metrics = QueryMetrics(registry)
    for seconds in (0.005, 0.0051, 400.0):
        metrics.add("ok", replace(RECEIPT, waited=Waited(queue=seconds, capture=0.0, spark=0.5, read=0.02)))
    metrics.add("stale", replace(RECEIPT, missed=True))
    metrics.add("stale", None)
    metrics.add("failed", None)
    metrics.add("ok", None)
    found = read_metrics(registry.page()[0].decode())
    total = found["headgate_queries_total"]
    counted = {outcome: total.value(outcome=outcome) for outcome in ("ok", "stale", "failed", "cancelled")}
    assert counted == {"ok": 4, "stale": 2, "failed": 1, "cancelled": 0}
    assert found["headgate_query_bound_met_ratio"].value() == 3 / 5
    assert found["headgate_query_deadline_missed_total"].value() == 2
    phases = found["headgate_query_seconds"]
    assert phases.kind == "histogram"
    buckets = [phases.value("_bucket", phase="wait", le=bound) for bound in ("0.005", "0.01", "300.0", "+Inf")]
    assert buckets == [1, 3, 3, 4]
    assert phases.value("_count", phase="wait") == 4
    assert math.isclose(phases.value("_sum", phase="spark"), 3 * 0.5 + RECEIPT.waited.spark)


def test_without_a_query_there_is_no_ratio() -> None:
    registry = MetricsRegistry()
    QueryMetrics(registry)
    assert math.isnan(read_metrics(registry.page()[0].decode())["headgate_query_bound_met_ratio"].value())


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "application/openmetrics-text"),
        ("application/openmetrics-text;version=newest", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_asked_for_and_its_samples_are_the_same(accept: str, content_type: str) -> None:
    registry = MetricsRegistry()
    registry.register(Observed(warehouse_metrics(STATUS, 7)))
    QueryMetrics(registry).add("ok", RECEIPT)
    page, answered = registry.page(accept)
    assert answered.startswith(content_type)
    read = read_openmetrics if "openmetrics" in answered else read_plain
    samples = {sample.name for metric in read(page.decode()) for sample in metric.samples}
    assert {"headgate_queries_total", "headgate_query_seconds_bucket", "headgate_table_lag_seconds"} <= samples
    assert not [name for name in samples if name.endswith("_created")]


def test_another_table_costs_one_sample_per_metric_of_tables() -> None:
    more = replace(STATUS, tables=(*STATUS.tables, replace(STATUS.tables[1], name="more")))
    before, after = (list(warehouse_metrics(status, 7)) for status in (STATUS, more))
    grown = {new.name: len(new.samples) - len(old.samples) for old, new in zip(before, after, strict=True)}
    assert set(grown.values()) == {0, 1}
    assert all(name.startswith("headgate_table_") for name, by in grown.items() if by)
