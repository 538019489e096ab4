"""What routes answer apart from queries: the page, and the status of every kind of error."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from headgate import errors
from headgate.errors import DefiniteError, HeadgateError, TransientError
from headgate.runtime.spark.problems import query_problem
from headgate.service import Server, app
from headgate.service.problems import headers_of, status_of
from tests.service.asking import ask


def test_the_page_is_served_without_a_token_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page"
    (page / "parts").mkdir(parents=True)
    (page / "index.html").write_text("<p>fresh</p>")
    (page / "parts" / "page.js").write_text("1")
    (tmp_path / "secret.txt").write_text("hidden")
    monkeypatch.setattr(app, "PAGE", page)
    with Server(port=0, token="token") as server:
        assert ask(server.url, "GET", "/").body == b"<p>fresh</p>"
        assert ask(server.url, "GET", "/parts/page.js").headers["content-type"].startswith("text/javascript")
        for path in ("/v1/status", "/metrics", "/../secret.txt", "/..%2Fsecret.txt", "/parts/../../secret.txt"):
            assert ask(server.url, "GET", path).status == 401
            token = {"Authorization": "Bearer token"}
            heard = ask(server.url, "GET", path, headers=token)
            assert heard.status in (404, 503) and b"hidden" not in heard.body
        assert ask(server.url, "GET", "/v1/query", headers=token).status == 405
    monkeypatch.setattr(app, "PAGE", tmp_path / "nothing")
    with Server(port=0) as server:
        assert ask(server.url, "GET", "/").status == 404


def test_every_error_has_a_status_and_says_when_to_come_again() -> None:
    statuses = {
        "DefiniteError": 400,
        "ConfigError": 400,
        "FlowError": 400,
        "UnknownTable": 400,
        "SnapshotGone": 404,
        "FlowFailed": 409,
        "TransientError": 503,
        "StorageFull": 503,
        "Cancelled": 503,
        "SparkLost": 503,
        "TooStale": 504,
        "WarehouseBusy": 503,
        "Fenced": 503,
        "CorruptWarehouse": 500,
        "EnvironmentProblem": 500,
    }
    for name, status in statuses.items():
        error = getattr(errors, name)("what")
        assert status_of(error) == status, name
        assert ("Retry-After" in headers_of(error)) == (status == 503 and isinstance(error, TransientError))
    assert status_of(ValueError()) == 500
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, HeadgateError) and kind is not HeadgateError:
            assert status_of(kind("what")) < 500 or kind.__name__ in statuses


def test_problems_of_spark_are_told_as_headgates() -> None:
    large = query_problem(PySparkException("Total size … is bigger than spark.driver.maxResultSize (1024.0 MiB)"), "")
    assert isinstance(large, DefiniteError) and "maxResultSize" in large.what
    assert isinstance(query_problem(PySparkException("ExecutorLostFailure (executor 1 exited)"), ""), TransientError)
    plain = query_problem(PySparkException("[DIVIDE_BY_ZERO] Division by zero.\n== SQL =="), "")
    assert plain.what == "the query cannot be answered: [DIVIDE_BY_ZERO] Division by zero"
