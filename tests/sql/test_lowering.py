"""A lowered query gives what Spark gives for the query as written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.dataflow.flow import MaterializedView
from headgate.dataflow.graph import Fragment, Node
from headgate.dataflow.reference import plain_sql
from headgate.errors import Location
from headgate.sql.lower import lower_view
from headgate.sql.names import substituted
from headgate.sql.references import TableReference, TableText, read_tables
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP, create_views, view_name
from tests.sql.queries import EQUIVALENTS, FRAGMENTS, INCREMENTAL, LOOKUPS


@pytest.fixture(scope="module")
def shop(spark: SparkSession) -> Iterator[SparkSession]:
    create_views(spark)
    yield spark


def lowered(query: str) -> MaterializedView:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "flows/v.sql")
    assert isinstance(statement, CreateView)
    return lower_view(statement, SHOP)


def relation(table: str, hidden: tuple[str, ...]) -> str:
    names = SHOP.tables[table.casefold()].names + hidden
    return f"(SELECT {', '.join(names)} FROM {view_name(table.casefold())})"


def as_written(query: str) -> str:
    return over_shop(read_tables(query, Location("query"), hidden_of))


def hidden_of(table: str) -> tuple[str, ...]:
    return SHOP.hidden(table) if table.casefold() in SHOP.tables else ()


def over_shop(query: TableText) -> str:
    """The query over the shop's rows."""

    def found(table: TableReference) -> str | None:
        return relation(table.name, table.hidden) if table.name.casefold() in SHOP.tables else None

    return query.replaced(found).text


def from_graph(node: Node) -> str:
    return plain_sql(node, lambda table: relation(table, SHOP.hidden(table)))


def result_sql(view: MaterializedView) -> str:
    if isinstance(view.result, Fragment):
        return substituted(view.result.sql, {name: f"({from_graph(node)})" for name, node in view.result.inputs})
    return from_graph(view.result)


def rows(frame: DataFrame) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in frame.collect())


def check(spark: SparkSession, query: str, equivalent: str | None = None) -> MaterializedView:
    view = lowered(query)
    expected, actual = spark.sql(as_written(equivalent or query)), spark.sql(result_sql(view))
    assert tuple(actual.columns) == view.outputs
    assert [kind for _, kind in actual.dtypes] == [kind for _, kind in expected.dtypes]
    assert rows(actual) == rows(expected)
    return view


@pytest.mark.parametrize("query", INCREMENTAL)
def test_an_incremental_query_lowers_to_a_graph_with_the_same_result(shop: SparkSession, query: str) -> None:
    assert isinstance(check(shop, query).result, Node)


@pytest.mark.parametrize(("query", "equivalent"), EQUIVALENTS)
def test_a_query_that_spark_cannot_unnest_gives_what_its_equivalent_gives(
    shop: SparkSession, query: str, equivalent: str
) -> None:
    assert isinstance(check(shop, query, equivalent).result, Node)


@pytest.mark.parametrize("query", FRAGMENTS)
def test_what_is_not_incremental_runs_as_written_over_its_inputs(shop: SparkSession, query: str) -> None:
    result = check(shop, query).result
    assert isinstance(result, Fragment)
    assert result.reasons


def test_a_scalar_subquery_with_two_rows_fails_as_in_spark(shop: SparkSession) -> None:
    view = lowered("SELECT a, (SELECT e FROM s.u WHERE u.a = t.a) AS e FROM s.t")
    with pytest.raises(PySparkException, match="more than one row"):
        shop.sql(result_sql(view)).collect()


@pytest.mark.parametrize(("query", "equivalent"), LOOKUPS)
def test_a_lookup_finds_the_version_that_was_valid(shop: SparkSession, query: str, equivalent: str) -> None:
    assert isinstance(check(shop, query, equivalent).result, Node)
