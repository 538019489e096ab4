"""SHOW, DESCRIBE and EXPLAIN as they are written."""

from __future__ import annotations

import pytest

from headgate.errors import DefiniteError
from headgate.sql.showing import Describe, ExplainFlow, ExplainQuery, Show, Showing, parse_showing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SHOW TABLES", Show("tables")),
        (" show flows ; ", Show("flows")),
        ("-- what is there?\nSHOW TABLES", Show("tables")),
        ("DESCRIBE totals", Describe("totals")),
        ("DESC TABLE EXTENDED bank.accounts;", Describe("bank.accounts", True)),
        ("DESCRIBE extended", Describe("extended")),
        ("DESCRIBE EXTENDED `odd table`", Describe("odd table", True)),
        ("EXPLAIN SELECT 1; ", ExplainQuery("SELECT 1; ")),
        ("EXPLAIN WITH t AS (SELECT 1) SELECT * FROM t", ExplainQuery("WITH t AS (SELECT 1) SELECT * FROM t")),
        ("EXPLAIN FLOW totals", ExplainFlow("totals")),
        ("SELECT 'SHOW TABLES'", None),
        ("SELECT 1 AS explain", None),
        ("/* SHOW TABLES */ SELECT 1", None),
    ],
)
def test_a_statement_is_read(text: str, expected: Showing | None) -> None:
    assert parse_showing(text) == expected


@pytest.mark.parametrize("text", ["SHOW", "SHOW DATABASES", "DESCRIBE", "DESCRIBE a b", "DESCRIBE a.b.c", "EXPLAIN"])
def test_what_is_wrong_is_told(text: str) -> None:
    with pytest.raises(DefiniteError) as problem:
        parse_showing(text)
    assert problem.value.hint
