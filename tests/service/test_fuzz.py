"""Whatever is sent, the service answers as its OpenAPI document says, never with a mistake of its own, and goes on.

Schemathesis makes requests from the document: those that it allows, and those that it does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, load_all_checks, not_a_server_error
from schemathesis.specs.openapi import checks as openapi_checks

from headgate import Warehouse
from headgate.runtime.spark.sessions import SparkSessions
from headgate.service import Server, ServiceLimits
from headgate.service.openapi import document
from tests.scheduling.bank import deposit, open_bank
from tests.service.asking import ask, query

OPERATIONS = [
    (path, method.upper()) for path, operations in document(ServiceLimits())["paths"].items() for method in operations
]
FIXED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
CHECKS: list[CheckFunction] = [
    not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]
TIMES = (503, 504)
"""What is transient is no mistake: a deadline that was too short."""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_bank(tmp_path_factory.mktemp("bank")) as warehouse:
        deposit(warehouse, (1, 1, 10), (2, 1, 5), (3, 2, 7))
        yield warehouse


@pytest.fixture(scope="module")
def url(bank: Warehouse) -> Iterator[str]:
    with Server(bank, port=0) as server:
        yield server.url


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_request_is_answered_as_the_document_says(url: str, path: str, method: str, tmp_path: Path) -> None:
    load_all_checks()
    operation = schemathesis.openapi.from_dict(ask(url, "GET", "/openapi.json").json)[path][method]
    refusing = operation.as_strategy(GenerationMode.NEGATIVE)
    has_input = bool(operation.body or operation.query or operation.path_parameters)
    cases = st.one_of(operation.as_strategy(), refusing) if has_input else operation.as_strategy()
    number = iter(range(1_000_000))

    @settings(FIXED, max_examples=40 if has_input else 2)
    @given(case=cases)
    def works(case: Case) -> None:
        if isinstance(case.body, dict) and str(case.body.get("folder")).startswith("/"):
            # Anywhere else it would write to this machine.
            case.body["folder"] = str(tmp_path / str(next(number)))
        if path == "/v1/query" and isinstance(case.body, dict) and isinstance(case.body.get("sql"), str):
            # Hardly any text is a query: with one that is, the other fields decide.
            case.body["sql"] = "SELECT 1 AS one"
        response = case.call(base_url=url, timeout=60)
        checks = [check for check in CHECKS if response.status_code not in TIMES or check is not not_a_server_error]
        case.validate_response(response, checks=checks)

    works()
    assert ask(url, "GET", "/readyz").status == 200


queries = st.sampled_from(
    [
        "SELECT branch, total FROM totals WHERE total > 1 ORDER BY branch LIMIT 3",
        "WITH t AS (SELECT id, balance FROM bank.accounts) SELECT sum(balance) OVER (PARTITION BY id) AS s FROM t",
        "SELECT CASE WHEN id = 1 THEN 'it''s' ELSE `name` END, DATE'2024-01-01', CAST(id AS DECIMAL(10,2)) FROM names",
        "SELECT a.id FROM bank.accounts a LEFT JOIN bank.branches b ON a.branch = b.id CURRENCY BOUND 10 MIN",
        "SELECT map(1, array(struct(2 AS x))) AS m, NULL AS n, interval 1 month AS i, x'00ff' AS b",
    ]
)
pieces = st.one_of(
    st.sampled_from(
        [
            "(",
            ")",
            "'",
            "`",
            "--",
            "/*",
            ";",
            "\0",
            "\ud800",
            "9" * 400,
            "1e999",
            "NOT ",
            "- " * 20,
            "UNION ALL SELECT 1 ",
        ]
    ),
    st.text(max_size=4),
)


@settings(FIXED, max_examples=60)
@given(queries, st.lists(st.tuples(st.integers(0, 100), st.integers(0, 12), pieces), max_size=3))
def test_a_query_that_was_changed_at_random_is_answered_or_refused(
    url: str, text: str, changes: list[tuple[int, int, str]]
) -> None:
    for first, length, put in changes:
        text = text[:first] + put + text[first + length :]
    heard = query(url, text, max_staleness="any")
    assert heard.status in (200, 400, 404), (text, heard)
    assert "columns" in heard.json or heard.error["what"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "1+" * 20_000 + "1",
        "SELECT " + "1+" * 900 + "1",
        "SELECT 1 " + "UNION ALL SELECT 1 " * 3_000,
        "SELECT 1 " + "UNION SELECT 1 " * 600,
        "SELECT " + "(SELECT " * 49 + "1" + ")" * 49,
        "SELECT " + "(" * 5_000,
        "SELECT '\ud800'",
        "SELECT 'a\0b'",
    ],
)
def test_no_query_takes_more_than_the_query_itself_down(url: str, text: str) -> None:
    heard = query(url, text, max_staleness="any")
    assert heard.status in (200, 400), heard
    if heard.status == 400:
        assert heard.error["kind"] != "UnexpectedFailure" and "Error" not in heard.error["what"]
    assert query(url, "SELECT count(*) FROM totals", max_staleness="any").json["rows"] == [[2]]
    latest = ask(url, "GET", "/v1/history?limit=1000")
    assert latest.status == 200 and json.loads(latest.body)["receipts"]
    assert ask(url, "GET", "/v1/status").status == 200
