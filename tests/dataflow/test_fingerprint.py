"""Which parts of flows compute the same."""

from __future__ import annotations

import pytest

from headgate.dataflow.fingerprint import describe, equal_parts, fingerprint, row_fingerprint
from headgate.dataflow.graph import Fragment, Join, Node, scanned_tables
from headgate.dataflow.sharing import is_worth_sharing, shared_parts
from headgate.sql.lower import lower_view
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP


def graph(query: str) -> Node:
    (view,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "v.sql")
    assert isinstance(view, CreateView)
    result = lower_view(view, SHOP).result
    assert not isinstance(result, Fragment)
    return result


@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("SELECT a, b FROM s.t WHERE b > 1", "SELECT x.b AS y, x.a AS z FROM s.t x WHERE x.b > 1"),
        ("SELECT t.a, u.f FROM s.t t JOIN s.u u ON t.a = u.a", "SELECT p.a, q.f FROM s.u q JOIN s.t p ON q.a = p.a"),
        ("SELECT a, SUM(b) AS n FROM s.t GROUP BY a", "SELECT SUM(r.b) AS m, r.a AS k FROM s.t r GROUP BY r.a"),
        (
            "SELECT a, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM s.t",
            "SELECT row_number() OVER (PARTITION BY x.a ORDER BY x.b) AS m, x.a FROM s.t x",
        ),
    ],
)
def test_names_and_the_order_of_columns_and_sides_do_not_matter(query: str, other: str) -> None:
    assert fingerprint(graph(query)) == fingerprint(graph(other))


@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("SELECT a FROM s.t WHERE b > 1", "SELECT a FROM s.t WHERE b > 2"),
        ("SELECT a + b AS x FROM s.t", "SELECT a * b AS x FROM s.t"),
        ("SELECT x * 2 AS y FROM (SELECT a + 1 AS x FROM s.t)", "SELECT a + 1 * 2 AS y FROM s.t"),
        ("SELECT a, SUM(b) AS n FROM s.t GROUP BY a", "SELECT a, SUM(b) AS n FROM s.t WHERE b > 0 GROUP BY a"),
        (
            "SELECT t.a, u.f FROM s.t t JOIN s.u u ON t.a = u.a",
            "SELECT t.a, u.f FROM s.t t LEFT JOIN s.u u ON t.a = u.a",
        ),
        ("SELECT x.a FROM s.t x JOIN s.t y ON x.a = y.b", "SELECT y.a FROM s.t x JOIN s.t y ON x.a = y.b"),
        ("SELECT a FROM s.t UNION ALL SELECT a FROM s.u", "SELECT a FROM s.t UNION ALL SELECT e FROM s.u"),
        (
            "SELECT a, n FROM (SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM s.t) WHERE b > 1",
            "SELECT a, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM s.t WHERE b > 1",
        ),
    ],
)
def test_what_computes_something_else_has_another_fingerprint(query: str, other: str) -> None:
    assert fingerprint(graph(query)) != fingerprint(graph(other))


def test_rows_are_the_same_whichever_columns_are_read_of_them() -> None:
    one = graph("SELECT t.b, t.c FROM s.t t JOIN s.u u ON t.a = u.a WHERE u.f = 'x'")
    other = graph("SELECT y.f AS shown FROM s.t x JOIN s.u y ON x.a = y.a WHERE y.f = 'x'")
    assert row_fingerprint(one) == row_fingerprint(other)
    assert fingerprint(one) != fingerprint(other)


def test_the_largest_parts_that_flows_have_in_common_are_found() -> None:
    joined = "FROM s.t t JOIN s.u u ON t.a = u.a"
    flows = {
        "sums": graph(f"SELECT u.f, SUM(t.b) AS n {joined} GROUP BY u.f"),
        "maxima": graph(f"SELECT u.f, MAX(t.b) AS n {joined} GROUP BY u.f HAVING MAX(t.b) > 3"),
        "rows": graph(f"SELECT t.a, t.c {joined}"),
        "alone": graph("SELECT a FROM s.t WHERE b > 7"),
    }
    groups, join = sorted(equal_parts(flows), key=len)
    assert {each.flow for each in groups} == {"sums", "maxima"}
    assert {each.flow for each in join} == {"sums", "maxima", "rows"}
    assert all(set(scanned_tables(each.node)) == {"s.t", "s.u"} for each in join)
    assert all(isinstance(each.node, Join) for each in join if each.flow != "rows")


def test_flows_that_only_read_the_same_table_have_no_equal_part() -> None:
    flows = {"one": graph("SELECT a FROM s.t WHERE b > 1"), "other": graph("SELECT a, c FROM s.t")}
    assert equal_parts(flows) == []


def test_a_shared_part_has_the_columns_that_any_flow_reads() -> None:
    flows = {
        "sums": graph("SELECT u.f, SUM(t.b) AS n FROM s.t t JOIN s.u u ON t.a = u.a GROUP BY u.f"),
        "rows": graph("SELECT x.c FROM s.u y JOIN s.t x ON x.a = y.a"),
    }
    (part,) = shared_parts(flows)
    wide, used = describe(part.root)[part.root], {flow: describe(use.node) for flow, use in part.uses.items()}
    for flow, use in part.uses.items():
        own = used[flow][use.node]
        assert own.rows == wide.rows
        assert {name: wide.columns[use.columns[name]] for name in own.columns} == own.columns
    assert not is_worth_sharing(part, 2) and is_worth_sharing(part, 4)


def test_what_a_flow_keeps_for_itself_is_not_shared() -> None:
    grouped = "SELECT a, SUM(b) AS n FROM s.t GROUP BY a"
    flows = {"one": graph(grouped), "other": graph(f"SELECT n FROM ({grouped}) WHERE n > 1")}
    assert equal_parts(flows) and not shared_parts(flows)
