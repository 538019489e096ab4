"""Expressions know what they read, operators what becomes of their columns."""

from __future__ import annotations

import pytest

from headgate.dataflow.expression import Column, Expression, joined
from headgate.dataflow.graph import Node, Projection, walk
from headgate.dataflow.lineage import table_column
from headgate.sql.lower import lower_view
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP
from tests.sql.queries import INCREMENTAL


def lowered(query: str) -> Node:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "flows/v.sql")
    assert isinstance(statement, CreateView)
    result = lower_view(statement, SHOP).result
    assert isinstance(result, Node)
    return result


def test_an_expression_equals_its_text_and_knows_its_columns() -> None:
    total = Expression("(", joined(" + ", [Column("a"), Column("b"), "1"]), ")")
    assert (total, repr(total), total.columns) == ("(a + b + 1)", "'(a + b + 1)'", {"a", "b"})
    assert total.over({"a": Expression("-", Column("c"))}) == "(-c + b + 1)"
    assert isinstance(Expression(Column("a")), Column)
    assert not isinstance(Expression("a"), Column)


def test_what_only_looks_like_a_column_is_not_read() -> None:
    (node,) = (part for part in walk(lowered("SELECT 'b' || c AS x, a.b.c AS y FROM s.t a")) if part.reads)
    assert isinstance(node, Projection)
    assert node.reads == {"a__c", "a__b"}
    (strings,) = (part for part in walk(lowered("SELECT 't__a' AS x, b FROM s.t")) if part.reads)
    assert strings.reads == {"t__b"}


@pytest.mark.parametrize("query", INCREMENTAL)
def test_an_operator_reads_only_columns_of_its_inputs_and_stays_the_same_over_them(query: str) -> None:
    for node in walk(lowered(query)):
        known = {column for below in node.inputs for column in below.columns}
        assert node.reads <= known
        assert node.over(node.inputs) == node
        assert node.narrowed(node.columns) == node
        for column in node.columns:
            origin = node.origin(column)
            assert origin is None or (origin[0] in node.inputs and origin[1] in origin[0].columns)


def test_a_column_is_traced_to_its_table_through_every_operator_that_hands_it_on() -> None:
    node = lowered(
        "SELECT x AS y FROM (SELECT t.a AS x, rank() OVER (PARTITION BY t.a ORDER BY e) AS r, v"
        " FROM s.t LEFT JOIN s.u ON t.a = u.a LATERAL VIEW explode(array(1, 2)) w AS v WHERE t.b > 0) WHERE r = 1 AND v = 1"
    )
    assert table_column(node, "y") == ("s.t", "a")
    assert table_column(lowered("SELECT a + 1 AS y FROM s.t"), "y") is None
