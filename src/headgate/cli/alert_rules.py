"""Prometheus' alert rules for a project: those that every warehouse needs, and one for each bound that its files state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from headgate.config.durations import format_duration, parse_duration
from headgate.config.settings import Project
from headgate.config.sources import PostgresSourceSettings
from headgate.sql.expectations import COUNTED
from headgate.sql.statements import TARGET_LAG, CreateStreamingTable, CreateView, Statement

Rule = dict[str, Any]

_BEHIND = "HeadgateTableBehind"
_RETAINED = "HeadgateRetainedWal"
_LEAST = timedelta(minutes=1)
"""How long a table is late before somebody is told, at least."""
_BEHIND_ACTION = "headgate history shows what takes the time; more cores, or a longer target_lag"
_RETAINED_ACTION = (
    "end transactions that run for long there; is headgate's disk full or slow? Beyond retained_wal the slot is dropped"
)


def _rule(alert: str, expr: str, severity: str, summary: str, action: str, lasting: str | None = None) -> Rule:
    found: Rule = {"alert": alert, "expr": expr}
    if lasting is not None:
        found["for"] = lasting
    return {**found, "labels": {"severity": severity}, "annotations": {"summary": summary, "action": action}}


GENERAL: tuple[Rule, ...] = (
    _rule(
        "HeadgateDown",
        'up{job="headgate"} == 0',
        "page",
        "headgate does not answer, or is still opening its warehouse",
        "look at its log. While it is down, servers that are captured by their log keep WAL for it",
        "5m",
    ),
    _rule(
        "HeadgateSourceTrouble",
        "headgate_source_trouble == 1",
        "page",
        "capture of {{ $labels.source }} is in trouble",
        "headgate status says what and what to do",
        "5m",
    ),
    _rule(
        _RETAINED,
        "headgate_source_retained_wal_bytes > 10 * 1024^3",
        "page",
        "the server of {{ $labels.source }} keeps {{ $value | humanize1024 }}B of WAL for headgate",
        _RETAINED_ACTION,
        "5m",
    ),
    _rule(
        "HeadgateTableFailed",
        "headgate_table_failed == 1",
        "page",
        "the table {{ $labels.table }} cannot go on",
        "headgate status names flow, file and line; correct it, then headgate resume",
        "1m",
    ),
    _rule(
        "HeadgateSparkRestarts",
        "increase(headgate_spark_restarts_total[1h]) > 1",
        "ticket",
        "Spark died more than once within an hour, and was started again",
        "headgate status says why; mostly Spark needs more memory, or the machine has too little",
    ),
    _rule(
        _BEHIND,
        "headgate_table_lag_seconds > 2 * headgate_table_target_lag_seconds",
        "ticket",
        "the table {{ $labels.table }} is {{ $value | humanizeDuration }} old, more than twice its target_lag",
        _BEHIND_ACTION,
        "10m",
    ),
    _rule(
        "HeadgateBoundsMissed",
        "sum by (instance) (rate(headgate_query_deadline_missed_total[15m]))"
        ' / sum by (instance) (rate(headgate_queries_total{outcome=~"ok|stale"}[15m])) > 0.05',
        "ticket",
        "{{ $value | humanizePercentage }} of the queries had no fresh enough answer at their deadline",
        "their receipts in headgate history say where the time went",
        "15m",
    ),
    _rule(
        "HeadgateStreamLogFull",
        "headgate_source_log_bytes > headgate_source_log_limit_bytes",
        "ticket",
        "the stream log of {{ $labels.source }} is beyond its limit, and capture slows down soon",
        "a table that cannot take the changes holds it: headgate status names it",
        "10m",
    ),
)
"""Of any warehouse; `deploy/alerts.yml` has them, too."""


def alert_rules(project: Project, statements: Sequence[Statement]) -> dict[str, Any]:
    """The rules file. A rule of the project stands in place of the general one."""
    own = [*_of_tables(statements), *_of_sources(project)]
    replaced = {rule["alert"] for rule in own}
    groups = [{"name": "headgate", "rules": [rule for rule in GENERAL if rule["alert"] not in replaced]}]
    if own:
        groups.append({"name": f"headgate of {project.name}", "rules": own})
    return {"groups": groups}


def _of_tables(statements: Sequence[Statement]) -> Iterator[Rule]:
    for each in statements:
        if isinstance(each, CreateView) and TARGET_LAG in each.properties and not each.name.endswith(COUNTED):
            yield _behind(each.name, parse_duration(each.properties[TARGET_LAG]))
        if isinstance(each, CreateView | CreateStreamingTable):
            for expectation in each.expectations:
                # One that fails a job is told by the table that cannot go on.
                if expectation.action != "fail":
                    yield _violated(each.name, expectation.name, expectation.condition, expectation.action)


def _behind(table: str, target: timedelta) -> Rule:
    lasting = format_duration(max(target, _LEAST))
    return _rule(
        _BEHIND,
        f"headgate_table_lag_seconds{{table={_text(table)}}} > {2 * target.total_seconds():g}",
        "ticket",
        f"the table {table} is {{{{ $value | humanizeDuration }}}} old; its target_lag is {format_duration(target)}",
        _BEHIND_ACTION,
        lasting,
    )


def _violated(table: str, constraint: str, condition: str, action: str) -> Rule:
    fate = "dropped" if action == "drop" else "kept"
    return _rule(
        "HeadgateConstraintViolated",
        f"headgate_table_violations{{table={_text(table)}, constraint={_text(constraint)}}} > 0",
        "ticket",
        f"{{{{ $value }}}} rows of {table} violate {constraint} and are {fate}",
        f"EXPECT ({condition}): see which rows do not satisfy it, and correct them at their source",
        "5m",
    )


def _of_sources(project: Project) -> Iterator[Rule]:
    for name, source in project.sources.items():
        if isinstance(source, PostgresSourceSettings) and source.retained_wal is not None:
            yield _rule(
                _RETAINED,
                f"headgate_source_retained_wal_bytes{{source={_text(name)}}} > {source.retained_wal // 2}",
                "page",
                f"the server of {name} keeps {{{{ $value | humanize1024 }}}}B of WAL for headgate, more than half of retained_wal",
                _RETAINED_ACTION,
                "5m",
            )


def _text(value: str) -> str:
    """As PromQL writes a string."""
    return json.dumps(value, ensure_ascii=False)
