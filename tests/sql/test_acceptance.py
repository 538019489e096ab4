"""What Spark accepts as a SELECT over the tables is accepted: as a query, and as a flow with the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headgate.dataflow.flow import MaterializedView
from headgate.dataflow.graph import Node
from headgate.errors import DefiniteError, Location
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.flows import Planner
from headgate.runtime.spark.parser import SparkParser
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog
from headgate.sql.guard import require_select
from headgate.sql.positions import SyntaxProblem
from headgate.sql.references import TableText, read_tables
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP, create_views, view_name
from tests.sql.features import FEATURES, INCREMENTAL_FEATURES
from tests.sql.test_guard import REFUSALS
from tests.sql.test_lowering import hidden_of, over_shop, result_sql, rows

QUERY = Location("query")


@pytest.fixture(scope="module")
def shop(spark: SparkSession) -> Iterator[SparkSession]:
    create_views(spark)
    yield spark


@pytest.fixture(scope="module")
def planner(shop: SparkSession) -> Planner:
    catalog = WarehouseCatalog()
    for name, table in SHOP.tables.items():
        schema = shop.table(view_name(name)).schema
        visible = StructType([schema[column] for column in table.names])
        hidden = StructType([schema[column] for column in table.hidden])
        catalog.add(TableEntry(name, visible, hidden, table.key, table.versioned, table.fragment))
    return Planner(Analyses(lambda: shop), catalog, lambda _: None)


def planned(planner: Planner, query: str) -> MaterializedView:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "v.sql")
    assert isinstance(statement, CreateView)
    flow = planner.plan(planner.lower(statement), {}).flow
    assert isinstance(flow, MaterializedView)
    return flow


def as_query(shop: SparkSession, query: str) -> TableText:
    """The query as a reader takes it."""
    try:
        require_select(query)
        return read_tables(query, QUERY, hidden_of)
    except SyntaxProblem:
        return SparkParser(shop).read(query, QUERY, hidden_of)


def answer(shop: SparkSession, query: str) -> DataFrame:
    return shop.sql(over_shop(as_query(shop, query)))


def kept(shop: SparkSession, flow: MaterializedView) -> DataFrame:
    return shop.sql(result_sql(flow))


@pytest.mark.parametrize("query", FEATURES)
def test_a_query_of_spark_is_accepted_as_a_query_and_as_a_flow(
    shop: SparkSession, planner: Planner, query: str
) -> None:
    asked, flow = answer(shop, query), kept(shop, planned(planner, query))
    assert [kind for _, kind in flow.dtypes] == [kind for _, kind in asked.dtypes]
    assert rows(flow) == rows(asked)


@pytest.mark.parametrize("query", INCREMENTAL_FEATURES)
def test_what_can_be_kept_is_kept(shop: SparkSession, planner: Planner, query: str) -> None:
    view = planned(planner, query)
    assert isinstance(view.result, Node)
    assert rows(kept(shop, view)) == rows(answer(shop, query))


ESCAPES = [
    "SELECT sum(a) OVER w FROM s.t WINDOW w AS (PARTITION BY mine(a))",
    "FROM s.t |> SET a = mine(b)",
    "FROM s.t |> EXTEND mine(b) AS z",
    "FROM s.t |> AGGREGATE mine(b) AS z GROUP BY a",
    "FROM s.t |> WHERE EXISTS (SELECT mine(a) FROM s.u)",
    "FROM s.t |> JOIN parquet.`/x` ON true",
    "FROM s.t |> UNION ALL (SELECT * FROM a.b.c)",
    "FROM s.t |> PIVOT (max(mine(b)) FOR a IN (1, 2))",
    "FROM s.t, LATERAL (SELECT mine(t.a)) |> LIMIT 1",
    "FROM s.t |> WHERE a IN (SELECT mine(a) FROM s.u)",
    "FROM s.t |> WHERE mine(a) IN (SELECT a FROM s.u)",
    "FROM (VALUES (mine(1))) v |> LIMIT 1",
    "FROM s.t |> ORDER BY mine(a) |> LIMIT mine(1)",
    "WITH w AS (SELECT mine(a) FROM s.t) FROM w |> LIMIT 1",
    "FROM s.t LATERAL VIEW mine(a) x AS y |> LIMIT 1",
    "FROM s.t LATERAL VIEW explode(array(mine(a))) x AS y |> LIMIT 1",
    "FROM mine(1) |> LIMIT 1",
    "FROM s.t WITH ('a' = 'b') |> LIMIT 1",
    "FROM s.t |> SELECT transform(array(a), x -> mine(x)) AS z",
    "FROM s.t |> SELECT count(*) FILTER (WHERE mine(a)) AS z",
    "FROM s.t |> SELECT sum(a) OVER (ORDER BY mine(a)) AS z",
    "FROM s.t |> SELECT mask('x', lowerChar => mine('y')) AS z",
    "FROM s.t |> SELECT CASE WHEN mine(a) THEN 1 END AS z",
    "FROM s.t |> SELECT * EXCEPT (a), mine(a) AS z",
    "FROM s.t |> SELECT TRANSFORM(a) USING 'cat'",
]
"""A function that is not allowed, a file or a catalog, in every place that only Spark's parser reads."""


@pytest.mark.parametrize("query", ESCAPES)
def test_nothing_hides_in_a_plan(shop: SparkSession, query: str) -> None:
    with pytest.raises(DefiniteError, match=r"^query:1:\d+: (?!cannot read this SQL)"):
        SparkParser(shop).read(query, QUERY)


READ_BY_SPARK = (
    "FROM t |> WHERE a > 1",
    "SELECT 1 -- \\\n , secret FROM t",
    "SELECT /* /* */ reflect(a, b) /* */ */ 1 FROM t",
    "SELECT /*+ f('*/') */ 1 -- '",
    "SELECT /*+ A */ /*+ reflect(a, b) */ 1",
)
"""Texts that Spark reads in one way, which is harmless: what looks like code is a comment or a hint."""


@pytest.mark.parametrize("query", [query for query, _ in REFUSALS if query not in READ_BY_SPARK])
def test_sparks_parser_lets_nothing_through_that_is_refused(shop: SparkSession, query: str) -> None:
    with pytest.raises(DefiniteError) as refusal:
        SparkParser(shop).read(query, QUERY)
    assert refusal.value.hint
