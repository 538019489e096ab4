"""A service whose Spark or whose process dies goes on at the same address; its clients are told, and so is everyone who looks."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.cli.main import run
from headgate.cli.running import find_service
from tests.cli.processes import Served, is_alive, java_of, start, worker_of
from tests.cli.serving import ENDLESS, STUCK_PLAN, STUCK_TASK, asked, assert_ends, is_running, query
from tests.service.asking import Heard, ask
from tests.service.prometheus import read_metrics
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def answer(url: str) -> Heard:
    """The first answer of the service after its Spark died. Nobody is refused meanwhile: who asks waits, or is told to wait."""
    heard = list[Heard]()

    def is_answered() -> bool:
        heard.append(query(url, "SELECT SUM(sales) AS sales FROM revenue"))
        return heard[-1].status != 503

    eventually(is_answered, 120)
    assert {each.headers["retry-after"] for each in heard[:-1]} <= {"1"}
    return heard[-1]


def restarts(url: str) -> int:
    count: int = ask(url, "GET", "/v1/status").json["restarts"]["count"]
    return count


def test_a_query_is_told_that_spark_died_and_the_next_one_is_answered(
    served: Served, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    process, url = served
    assert ask(url, "GET", "/v1/status").json["restarts"] == {"count": 0, "last_at": None, "last_why": None}
    token = find_service(str(project / "warehouse"))
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(query, url, ENDLESS)
        eventually(lambda: is_running(url))
        os.kill(java_of(process), signal.SIGKILL)
        heard = told.result(60)
    assert heard.status == 503 and heard.error["kind"] == "SparkLost" and heard.headers["retry-after"] == "1", heard
    assert answer(url).json["rows"] == [[10]]
    status = ask(url, "GET", "/v1/status").json["restarts"]
    assert (
        status["count"] == 1
        and status["last_at"]
        and status["last_why"].startswith("its Java process was killed (SIGKILL)")
    )
    metrics = read_metrics(ask(url, "GET", "/metrics").body.decode())
    assert metrics["headgate_spark_restarts_total"].kind == "counter"
    assert metrics["headgate_spark_restarts_total"].value() == 1
    assert run(["status", "--project", str(project)]) == 0
    assert "Spark was started again 1 time, last " in capfd.readouterr().out
    service = find_service(str(project / "warehouse"))
    assert service == token and service is not None and service.pid == process.pid


def test_a_worker_that_is_killed_is_followed_by_another(served: Served) -> None:
    process, url = served
    dead = [worker_of(process), java_of(process)]
    os.kill(dead[0], signal.SIGKILL)
    assert answer(url).json["rows"] == [[10]]
    assert ask(url, "GET", "/v1/status").json["restarts"]["last_why"].startswith("its process was killed (SIGKILL)")
    assert restarts(url) == 2 and not any(map(is_alive, dead))


def test_work_that_cannot_be_ended_has_spark_started_again(served: Served, project: Path) -> None:
    _, url = served
    # Long enough for its tasks to have begun.
    heard = query(url, STUCK_TASK, deadline="8s")
    assert heard.status == 503 and heard.error["kind"] == "SparkLost", heard
    assert answer(url).json["rows"] == [[10]] and restarts(url) == 3
    assert "event=spark_lost what it does for a query could not be ended within 10 s" in (project / "log").read_text()


def test_a_service_that_plans_for_ages_is_ended(served: Served) -> None:
    process, url = served
    with asked(url, STUCK_PLAN):
        assert_ends(process, signal.SIGINT)


def test_stopping_while_spark_is_dead_ends_in_order(project: Path) -> None:
    process, _ = start(project)
    worker, java = worker_of(process), java_of(process)
    os.kill(java, signal.SIGKILL)
    assert_ends(process, signal.SIGTERM)
    assert process.returncode == 0 and not is_alive(worker)
    assert "Traceback" not in (project / "log").read_text()
    assert find_service(str(project / "warehouse")) is None
