"""Spans of syntax nodes in the user's text."""

from __future__ import annotations

import pytest
from sqlglot import exp

from headgate.errors import Location
from headgate.sql.positions import QueryText


@pytest.mark.parametrize(
    "select", ["SELECT a FROM t", "SELECT (a) + 1 AS b FROM t WHERE a > 1", "SELECT DISTINCT a FROM t"]
)
def test_the_first_select_of_a_set_operation_begins_with_its_keyword(select: str) -> None:
    query = QueryText(f"{select} INTERSECT SELECT b FROM u", Location("query"))
    tree = query.parse()
    assert isinstance(tree, exp.Intersect)
    assert query.written(tree.this) == select
