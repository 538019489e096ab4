"""Dashboard and alerts ask for metrics and labels that the service has."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from click.testing import CliRunner

from headgate.capture.source import SourceFreshness, SourceStatus
from headgate.cli.alert_rules import GENERAL
from headgate.cli.main import cli
from headgate.config.gears import Gear
from headgate.delta.changes import JobId
from headgate.scheduling.expectations import ExpectationStatus
from headgate.scheduling.status import ClosedJob, OpenJob, TableStatus, WarehouseStatus
from headgate.service.metrics import MetricsRegistry, QueryMetrics, source_metrics, warehouse_metrics
from tests.deploy.manifests import DEPLOY, expressions
from tests.service.scripted import AT, RECEIPT

STATUS = WarehouseStatus(
    at=AT,
    open=OpenJob(JobId(2), 1, 1),
    closed=(ClosedJob(JobId(1), AT, ("revenue",)),),
    complete=JobId(0),
    tables=(
        TableStatus(
            "revenue",
            JobId(0),
            AT,
            timedelta(seconds=1),
            timedelta(minutes=5),
            None,
            (ExpectationStatus("positive", "total > 0", "warn", 1, JobId(0)),),
        ),
    ),
    captured={},
    waiting=0,
    answers=0,
    executions=1,
    held_bytes=1,
    actions=(),
    ways={"narrow": 1},
)
SOURCE = SourceStatus(
    SourceFreshness(1, AT), 1, 2, {}, gear=Gear(period=timedelta(seconds=1)), retained_wal=1, retained_wal_limit=2
)
SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""
EXPRESSIONS = list(expressions())


def service_metrics() -> dict[str, set[str]]:
    """Every series that the service can have, with its labels."""
    registry = MetricsRegistry()
    QueryMetrics(registry).add("ok", RECEIPT)
    found: dict[str, set[str]] = {}
    for metric in (*warehouse_metrics(STATUS, 1), *source_metrics({"shop": SOURCE}), *registry.collect()):
        for sample in metric.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


METRICS = service_metrics()


@pytest.mark.parametrize(("where", "expression", "text"), EXPRESSIONS, ids=[each[0] for each in EXPRESSIONS])
def test_an_expression_asks_for_what_there_is(where: str, expression: str, text: str) -> None:
    names = set(re.findall(r"headgate_\w+", expression))
    assert names <= METRICS.keys()
    assert names or "up{" in expression
    known = SCRAPED.union(*(METRICS[name] for name in names))
    selected = re.findall(r'(\w+)\s*=~?\s*"', expression)
    grouped = re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression)))
    shown = re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text)
    assert {*selected, *grouped, *shown} <= known
    assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_the_dashboard_has_what_an_operator_looks_for() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "headgate.json").read_text())
    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    # Some metrics are for alerts and closer looks alone.
    left_out = {name for name in METRICS if name not in shown}
    assert left_out == {
        "headgate_job_open_transactions",
        "headgate_source_captured_timestamp_seconds",
        "headgate_spark_lost",
        "headgate_spark_restarts_total",
    }
    (services,) = [each for each in dashboard["templating"]["list"] if each["name"] == "instance"]
    (asked,) = re.findall(r"headgate_\w+", services["query"]["query"])
    assert asked in METRICS
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


FLOWS = """
CREATE MATERIALIZED VIEW revenue (
    CONSTRAINT positive EXPECT (total > 0) ON VIOLATION DROP,
    CONSTRAINT `says "so"` EXPECT (item <> '\\n'), CONSTRAINT whole EXPECT (item IS NOT NULL) ON VIOLATION FAIL
) TBLPROPERTIES ('target_lag' = '90s') AS SELECT item, SUM(price) AS total FROM shop.sales GROUP BY item;
CREATE MATERIALIZED VIEW lazy AS SELECT item FROM shop.sales;
"""


def generated(folder: Path) -> dict[str, Any]:
    (folder / "flows").mkdir()
    (folder / "flows" / "shop.sql").write_text(FLOWS)
    source = {"type": "postgres", "dsn": "", "capture": "log", "retained_wal": "4GiB", "tables": {"sales": {}}}
    project = {
        "name": "shop",
        "storage": "./warehouse",
        "libraries": [{"glob": {"include": "flows/**"}}],
        "sources": {"shop": source},
    }
    (folder / "headgate.yml").write_text(yaml.safe_dump(project))
    written = CliRunner().invoke(cli, ["alerts", "--project", str(folder)], catch_exceptions=False)
    assert written.exit_code == 0, written.output
    found: dict[str, Any] = yaml.safe_load(written.stdout)
    return found


def test_alerts_are_made_from_the_bounds_of_a_project(tmp_path: Path) -> None:
    general, own = generated(tmp_path)["groups"]
    alerts = [(rule["alert"], rule["expr"], rule.get("for")) for rule in own["rules"]]
    assert alerts == [
        ("HeadgateTableBehind", 'headgate_table_lag_seconds{table="revenue"} > 180', "1m30s"),
        ("HeadgateConstraintViolated", 'headgate_table_violations{table="revenue", constraint="positive"} > 0', "5m"),
        (
            "HeadgateConstraintViolated",
            'headgate_table_violations{table="revenue", constraint="says \\"so\\""} > 0',
            "5m",
        ),
        ("HeadgateRetainedWal", 'headgate_source_retained_wal_bytes{source="shop"} > 2147483648', "5m"),
    ]
    # A rule of the project stands in place of the general one.
    assert {rule["alert"] for rule in general["rules"]} == {rule["alert"] for rule in GENERAL} - {
        "HeadgateTableBehind",
        "HeadgateRetainedWal",
    }
    for rule in (*general["rules"], *own["rules"]):
        promql_parser.parse(rule["expr"])
        assert set(re.findall(r"headgate_\w+", rule["expr"])) <= METRICS.keys()
        assert rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"].keys() == {"summary", "action"}
    selected = {name for rule in own["rules"] for name in re.findall(r"(\w+)=", rule["expr"])}
    assert selected == {"table", "constraint", "source"}


def test_the_alerts_of_any_warehouse_are_those_that_the_command_writes() -> None:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    assert group["rules"] == list(GENERAL)


@pytest.mark.parametrize(("where", "expression", "text"), EXPRESSIONS, ids=[each[0] for each in EXPRESSIONS])
def test_an_expression_is_promql(where: str, expression: str, text: str) -> None:
    # Grafana fills in its variables first.
    promql_parser.parse(re.sub(r"\$\w+", "x", expression.replace("$__rate_interval", "5m")))


def test_no_two_panels_lie_on_each_other() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "headgate.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_prometheus_asks_with_a_token_and_takes_the_alerts() -> None:
    settings = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert all((DEPLOY / file).is_file() for file in settings["rule_files"])
    (scraped,) = settings["scrape_configs"]
    assert scraped["authorization"]["type"] == "Bearer"
    jobs = {job for _, expression, _ in EXPRESSIONS for job in re.findall(r'job="(\w+)"', expression)}
    assert jobs == {scraped["job_name"]}
