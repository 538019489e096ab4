"""What planning a flow costs: one analysis by Spark, and none for a flow that stays what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.flows import FlowPlan, Planner
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog
from headgate.sql.statements import CreateView, parse_statements

SALES = """
CREATE MATERIALIZED VIEW sales AS
SELECT l.item, sum(l.qty) AS qty, avg(p.rate) AS rate, max(l.qty) AS most FROM s.lines l
LEFT JOIN s.prices p ON p.item = l.item AND p.rate > l.qty WHERE l.qty > 0 GROUP BY l.item;
"""
TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT sum(qty) AS qty FROM sales;"
OTHERS = "CREATE MATERIALIZED VIEW others AS SELECT DISTINCT rate FROM s.prices;"


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that Spark was given."""
    texts: list[str] = []
    sql = SparkSession.sql

    def told(self: SparkSession, text: str, *arguments: Any, **named: Any) -> DataFrame:
        texts.append(text)
        return sql(self, text, *arguments, **named)

    monkeypatch.setattr(SparkSession, "sql", told)
    yield texts


def tables(quantity: str = "INT") -> WarehouseCatalog:
    catalog = WarehouseCatalog()
    lines = StructType.fromDDL(f"line INT, item INT, qty {quantity}")
    catalog.add(TableEntry("s.lines", lines, StructType(), ("line",)))
    catalog.add(TableEntry("s.prices", StructType.fromDDL("item INT, rate DOUBLE"), StructType(), None))
    return catalog


def planned(
    spark: SparkSession, catalog: WarehouseCatalog, text: str, before: Planner | None = None
) -> tuple[dict[str, FlowPlan], Planner]:
    planner = Planner(Analyses(lambda: spark), catalog, lambda _: None, before)
    plans: dict[str, FlowPlan] = {}
    for view in parse_statements(text, "flows.sql"):
        assert isinstance(view, CreateView)
        plan = planner.plan(planner.lower(view), {name: each.fingerprint for name, each in plans.items()})
        catalog.add(plan.entry)
        plans[plan.name] = plan
    return plans, planner


def test_the_types_of_all_operators_of_a_flow_take_one_analysis(spark: SparkSession, analyses: list[str]) -> None:
    plans, _ = planned(spark, tables(), SALES)
    assert len(analyses) == 1
    (view,) = plans["sales"].views
    assert view.graph.types[view.graph.root] == {"item": "int", "qty": "bigint", "rate": "double", "most": "int"}
    assert set(view.graph.recomputed.values()) == {"avg(p__rate) of double"}


def test_a_flow_whose_text_and_tables_stay_is_not_planned_again(spark: SparkSession, analyses: list[str]) -> None:
    first, planner = planned(spark, tables(), SALES + TOTALS)
    analyses.clear()
    second, planner = planned(spark, tables(), SALES + TOTALS + OTHERS, planner)
    assert len(analyses) == 1
    assert {name: plan.fingerprint for name, plan in second.items() if name in first} == {
        name: plan.fingerprint for name, plan in first.items()
    }
    analyses.clear()
    third, planner = planned(spark, tables(), SALES.replace("> 0", "> 1") + TOTALS + OTHERS, planner)
    # What reads a changed flow has the same graph over another one.
    assert len(analyses) == 1
    assert [name for name in third if third[name].fingerprint != second[name].fingerprint] == ["sales", "totals"]


def test_a_flow_over_a_table_with_other_types_is_planned_again_and_so_are_its_readers(
    spark: SparkSession, analyses: list[str]
) -> None:
    first, planner = planned(spark, tables(), SALES + TOTALS + OTHERS)
    analyses.clear()
    second, _ = planned(spark, tables("DECIMAL(10,2)"), SALES + TOTALS + OTHERS, planner)
    assert len(analyses) == 2
    assert second["totals"].entry.schema.simpleString() == "struct<qty:decimal(30,2)>"
    assert [name for name in first if first[name].fingerprint != second[name].fingerprint] == ["sales", "totals"]
