"""Constraints as they are written."""

from __future__ import annotations

import pytest

from headgate.errors import FlowError
from headgate.sql.statements import CreateStreamingTable, CreateView, parse_statements

VIEW = """CREATE MATERIALIZED VIEW orders (
  CONSTRAINT positive EXPECT (qty > 0 AND (price IS NOT NULL)) ON VIOLATION DROP ROW,
  CONSTRAINT known EXPECT (customer <> '(') ON VIOLATION FAIL UPDATE, CONSTRAINT `a b` EXPECT (qty < 9)
) COMMENT 'all' TBLPROPERTIES ('target_lag' = '5m', 'lookup_miss' = 'drop') AS
SELECT * FROM shop.orders -- the end"""


def test_constraints_are_read_and_counted_by_a_view() -> None:
    view, counted = parse_statements(VIEW, "orders.sql")
    assert isinstance(view, CreateView) and isinstance(counted, CreateView)
    assert [(each.name, each.condition, each.action) for each in view.expectations] == [
        ("positive", "qty > 0 AND (price IS NOT NULL)", "drop"),
        ("known", "customer <> '('", "fail"),
        ("a b", "qty < 9", "warn"),
    ]
    assert view.query_text == ("SELECT * FROM (SELECT * FROM shop.orders\n) WHERE (qty > 0 AND (price IS NOT NULL))")
    # A place in the query is the one in the file.
    place = view.query_where.within(view.query_text, view.query_text.index("shop.orders"))
    assert str(place) == "orders.sql:5:15"
    assert counted.name == "orders__expectations" and counted.properties == {"target_lag": "5m"}
    assert "FROM (SELECT * FROM shop.orders\n)" in counted.query_text and counted.expectations == ()


def test_without_dropped_rows_the_table_itself_is_counted() -> None:
    view, counted = parse_statements("CREATE MATERIALIZED VIEW v (CONSTRAINT c EXPECT (x)) AS SELECT 1 AS x", "v.sql")
    assert isinstance(view, CreateView) and view.query_text == "SELECT 1 AS x"
    assert isinstance(counted, CreateView)
    assert counted.query_text == "SELECT COUNT(CASE WHEN (x) THEN NULL ELSE 1 END) AS `c` FROM `v`"
    table, counted = parse_statements("CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (x)) COMMENT 'y'", "t.sql")
    assert isinstance(table, CreateStreamingTable) and table.comment == "y" and len(table.expectations) == 1
    assert isinstance(counted, CreateView) and counted.name == "t__expectations"


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("CONSTRAINT c EXPECT ()", "expected a condition"),
        ("CONSTRAINT c EXPECT ((x", "expected \\) after the condition"),
        ("CONSTRAINT c EXPECT x", "expected \\("),
        ("CONSTRAINT c CHECK (x)", "expected EXPECT"),
        ("x INT", "expected CONSTRAINT"),
        ("CONSTRAINT c EXPECT (x) ON VIOLATION IGNORE", "expected WARN"),
        ("CONSTRAINT c EXPECT (x, y)", "expected one condition"),
        ("CONSTRAINT c EXPECT (x FROM t)", "expected one condition"),
        ("CONSTRAINT c EXPECT (x AS y)", "not a condition on a row"),
        ("CONSTRAINT c EXPECT (x IN (SELECT 1))", "not a condition on a row"),
        ("CONSTRAINT c EXPECT (sum(x) OVER () > 1)", "not a condition on a row"),
        ("CONSTRAINT c EXPECT (x), CONSTRAINT C EXPECT (y)", "two constraints C"),
    ],
)
def test_what_is_wrong_with_a_constraint_is_told(written: str, what: str) -> None:
    with pytest.raises(FlowError, match=what) as problem:
        parse_statements(f"CREATE MATERIALIZED VIEW v ({written}) AS SELECT 1 AS x", "v.sql")
    assert problem.value.where is not None and problem.value.where.line == 1


@pytest.mark.parametrize("action", ["DROP ROW", "FAIL"])
def test_a_streaming_table_only_counts(action: str) -> None:
    with pytest.raises(FlowError, match="only counts violations"):
        parse_statements(f"CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (x) ON VIOLATION {action})", "t.sql")
