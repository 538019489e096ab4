"""The SQL of the documentation really runs: the flows of docs/sql.md are kept, and every query of any page is answered from them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest

import headgate
from headgate.cli.statements import split
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.warehouse import Warehouse
from tests.docs.markdown import ROOT, Block, blocks
from tests.docs.shop import checked_flows, is_flows, write_project

QUERIES = [block for block in blocks("sql") if not block.kind and not is_flows(block)]
ITEMS = {1: ("tea", "drinks", ["hot"]), 2: ("cake", "food", ["sweet", "large"]), 3: ("juice", "drinks", [])}


@pytest.fixture(scope="module")
def shop(spark_sessions: SparkSessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The warehouse of the page, with a few sales in it."""
    now = datetime.now(UTC)
    with headgate.open(write_project(tmp_path_factory.mktemp("docs") / "shop")) as warehouse:
        source = warehouse.source("shop")
        with source.transaction(initial=True) as transaction:
            for number, (name, category, tags) in ITEMS.items():
                transaction.insert("items", {"id": number, "name": name, "category": category, "tags": tags})
            transaction.insert("customers", {"id": 1, "name": "Ada", "city": "London", "changed_at": now})
        with source.transaction() as transaction:
            for number in range(12):
                sale = {"id": number, "item_id": number % 3 + 1, "customer_id": 1, "quantity": 1, "sold_at": now}
                transaction.insert("sales", {**sale, "price": Decimal(number)})
        warehouse.refresh()
        yield warehouse


def test_the_flows_have_the_rows_that_they_say(shop: Warehouse) -> None:
    assert shop.failures == ()
    drinks = Decimal(0 + 3 + 6 + 9 + 2 + 5 + 8 + 11)
    rows = {row.category: (row.sales, row.revenue) for row in shop.sql("SELECT * FROM sales_by_category").collect()}
    assert rows == {"drinks": (8, drinks), "food": (4, Decimal(1 + 4 + 7 + 10))}
    assert [row.item for row in shop.sql("SELECT item FROM top_items").collect()] == ["juice", "cake", "tea"]
    assert shop.sql("SELECT COUNT(*) AS n FROM best_per_category").collect()[0].n == 6
    assert shop.sql("SELECT COUNT(*) AS n FROM tagged").collect()[0].n == 3
    assert shop.sql("SELECT COUNT(*) AS n FROM recent").collect()[0].n == 12
    assert shop.sql("SELECT lowest, highest FROM price_range WHERE item_id = 1").collect() == [(Decimal(0), Decimal(9))]
    # Above the mean of their item, and drinks.
    assert sorted(row.id for row in shop.sql("SELECT id FROM big_sales").collect()) == [6, 8, 9, 11]


def test_they_are_kept_as_is_said(shop: Warehouse) -> None:
    for flow in checked_flows():
        explained = shop.explain(flow.name)
        assert (flow.name, explained.is_incremental) == (flow.name, flow.how != "partly incremental")
        assert shop.table(flow.name).to_arrow().num_rows > 0


@pytest.mark.parametrize("block", [pytest.param(block, id=str(block)) for block in QUERIES])
def test_a_query_of_the_documentation_is_answered(shop: Warehouse, block: Block) -> None:
    session = shop.session()
    statements, rest = split(block.text)
    answers = [session.sql(statement).collect() for statement in [*statements, rest] if statement.strip()]
    assert answers
    assert all(answers)


def test_there_are_queries_in_the_documentation() -> None:
    assert {block.page for block in QUERIES} >= {ROOT / "docs" / "sql.md", ROOT / "docs" / "queries.md"}
