"""Fingerprints: equal for flows that compute the same way."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headgate.runtime.flows import definitions
from headgate.sql.lower import lower_view
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP


def fingerprint(query: str) -> str:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "flows/v.sql")
    assert isinstance(statement, CreateView)
    return definitions.fingerprint(lower_view(statement, SHOP), "a int")


@pytest.mark.parametrize(
    ("query", "differs"),
    [
        ("SELECT a FROM s.t", False),
        ("SELECT a, __commit_at AS since FROM s.t", True),
        ("SELECT name FROM item WHERE __start_at < now()", True),
        ("SELECT name FROM item WHERE __end_at IS NULL", False),
    ],
)
def test_a_view_that_reads_times_of_rows_is_another_one_with_another_beginning_of_time(
    query: str, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(query)
    monkeypatch.setattr(definitions, "BEGINNING", datetime(1800, 1, 1, tzinfo=UTC))
    assert (fingerprint(query) != before) == differs


def test_a_fingerprint_stays_what_ledgers_hold() -> None:
    query = (
        "SELECT c, sum(b) FILTER (WHERE e > 1) AS s, count(DISTINCT v) AS n FROM s.t LEFT JOIN s.u ON t.a = u.a AND t.b < u.e"
        " LATERAL VIEW explode(array(1, 2)) w AS v WHERE t.b IN (SELECT a FROM s.k) GROUP BY c"
        " UNION ALL SELECT c, row_number() OVER (PARTITION BY c ORDER BY a) AS s, 0 AS n FROM s.t"
    )
    assert fingerprint(query) == "d052a2d0065a2a42"
