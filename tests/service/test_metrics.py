"""Metrics in Prometheus' format."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

from headgate.capture.source import Freshness, SourceStatus
from headgate.config.gears import Gear
from headgate.delta.changes import BEGINNING, JobId
from headgate.scheduling.receipt import Waited
from headgate.scheduling.status import ClosedJob, OpenJob, TableStatus, WarehouseStatus
from headgate.service.metrics import MetricsPage, QueryMetrics, write_sources, write_warehouse
from tests.service.prometheus import read_metrics
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
)


def test_tables_and_jobs_are_told() -> None:
    page = MetricsPage()
    write_warehouse(page, STATUS, 7)
    found = read_metrics(str(page))
    assert found["headgate_table_lag_seconds"].value(table="shop.sales") == 1.5
    assert found["headgate_table_lag_seconds"].value(table='odd"name\\\n') == 0
    assert len(found["headgate_table_lag_seconds"].samples) == 2
    assert found["headgate_table_target_lag_seconds"].value(table='odd"name\\\n') == 300
    assert found["headgate_table_failed"].value(table="shop.sales") == 0
    assert found["headgate_table_failed"].value(table='odd"name\\\n') == 1
    assert found["headgate_jobs_total"].kind == "counter" and found["headgate_jobs_total"].value() == 7
    assert found["headgate_jobs_incomplete"].value() == 1
    assert found["headgate_job_open_rows"].value() == 12 and found["headgate_job_open_transactions"].value() == 3
    assert found["headgate_overlay_bytes"].value() == 1 << 40
    assert found["headgate_queries_waiting"].value() == 2 and found["headgate_answers_open"].value() == 4


def test_sources_are_told_and_what_is_unknown_is_left_out() -> None:
    page = MetricsPage()
    gear = Gear(period=timedelta(milliseconds=20), workers=2)
    full = SourceStatus(Freshness(9, AT), 1000, 4096, {}, OSError("gone"), gear, "busy", 3, 5 << 20, 1 << 30)
    plain = SourceStatus(Freshness(0, BEGINNING), 0, None, {})
    write_sources(page, {"shop": full, "etl": plain})
    found = read_metrics(str(page))
    assert found["headgate_source_log_bytes"].value(source="shop") == 1000
    assert found["headgate_source_log_bytes"].value(source="etl") == 0
    assert found["headgate_source_retained_wal_bytes"].value(source="shop") == 5 << 20
    assert found["headgate_source_gear"].value(source="shop", gear="20ms×2") == 1
    assert found["headgate_source_gear_period_seconds"].value(source="shop") == 0.02
    assert found["headgate_source_trouble"].value(source="shop") == 1
    assert found["headgate_source_trouble"].value(source="etl") == 0
    assert found["headgate_source_captured_timestamp_seconds"].value(source="shop") == AT.timestamp()
    for name in ("retained_wal_bytes", "log_limit_bytes", "gear", "captured_timestamp_seconds"):
        assert len(found[f"headgate_source_{name}"].samples) == 1


def test_queries_are_counted_by_outcome_and_phase() -> None:
    metrics = QueryMetrics()
    for seconds in (0.005, 0.0051, 400.0):
        metrics.add("ok", replace(RECEIPT, waited=Waited(queue=seconds, capture=0.0, spark=0.5, read=0.02)))
    metrics.add("stale", replace(RECEIPT, missed=True))
    metrics.add("stale", None)
    metrics.add("failed", None)
    metrics.add("ok", None)
    page = MetricsPage()
    metrics.write(page)
    found = read_metrics(str(page))
    total = found["headgate_queries_total"]
    counted = {outcome: total.value(outcome=outcome) for outcome in ("ok", "stale", "failed", "cancelled")}
    assert counted == {"ok": 4, "stale": 2, "failed": 1, "cancelled": 0}
    assert found["headgate_query_bound_met_ratio"].value() == 3 / 5
    assert found["headgate_query_deadline_missed_total"].value() == 2
    phases = found["headgate_query_seconds"]
    assert phases.kind == "histogram"
    buckets = [phases.value("_bucket", phase="wait", le=bound) for bound in ("0.005", "0.01", "300", "+Inf")]
    assert buckets == [1, 3, 3, 4]
    assert phases.value("_count", phase="wait") == 4
    assert math.isclose(phases.value("_sum", phase="spark"), 3 * 0.5 + RECEIPT.waited.spark)


def test_without_a_query_there_is_no_ratio() -> None:
    page = MetricsPage()
    QueryMetrics().write(page)
    assert math.isnan(read_metrics(str(page))["headgate_query_bound_met_ratio"].value())
