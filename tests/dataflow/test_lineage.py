"""Which columns a column is made of."""

from __future__ import annotations

import pytest

from headgate.dataflow.graph import Fragment
from headgate.dataflow.lineage import value_columns
from headgate.sql.lower import lower_view
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a + 1 AS x FROM s.t WHERE b > 1", {"s.t.a"}),
        ("SELECT SUM(b * d) AS x, a FROM s.t GROUP BY a", {"s.t.b", "s.t.d"}),
        ("SELECT t.c || u.f AS x FROM s.t t JOIN s.u u ON t.a = u.a", {"s.t.c", "s.u.f"}),
        ("SELECT a AS x FROM s.t UNION ALL SELECT e FROM s.u", {"s.t.a", "s.u.e"}),
        ("SELECT row_number() OVER (PARTITION BY a ORDER BY b) AS x FROM s.t", {"s.t.a", "s.t.b"}),
        ("SELECT x FROM (SELECT a, MAX(c) AS x FROM s.t GROUP BY a) JOIN s.u USING (a)", {"s.t.c"}),
        ("SELECT w AS x FROM s.t LATERAL VIEW explode(split(c, ' ')) AS w", {"s.t.c"}),
        ("SELECT COUNT(*) AS x FROM s.t", set()),
        ("SELECT 1 AS x FROM s.t", set()),
    ],
)
def test_a_column_is_made_of_what_its_values_are_computed_from(query: str, expected: set[str]) -> None:
    (view,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "v.sql")
    assert isinstance(view, CreateView)
    result = lower_view(view, SHOP).result
    assert not isinstance(result, Fragment)
    assert {f"{table}.{column}" for table, column in value_columns(result, "x")} == expected
