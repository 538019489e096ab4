"""What all tests share: one Spark for the whole run, and hypothesis without a time limit per example."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from headgate.runtime.spark import sessions
from headgate.runtime.spark.sessions import SparkSessions
from tests.seed import SEED

settings.register_profile("headgate", deadline=None)
settings.load_profile("headgate")


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"random scenarios of this run: HEADGATE_SEED={SEED}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells the seed, to repeat it with."""
    report = yield
    if report.failed:
        report.sections.append(("Random choices", f"the same again: HEADGATE_SEED={SEED} pytest '{report.nodeid}'"))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no worker is left with it alone in the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session", autouse=True)
def interpreted() -> Iterator[dict[str, str]]:
    """Spark compiles nothing in this process: the tests' rows are few, and compiling a query takes longer than running it.

    The processes that tests start, and benchmarks, have Spark as users have it. Gives the settings of large work as they were.
    """
    compiled = dict(sessions.LARGE)
    sessions.LARGE.update(INTERPRETED)
    yield compiled
    sessions.LARGE.update(compiled)


@pytest.fixture(scope="session")
def spark_sessions(interpreted: dict[str, str]) -> Iterator[SparkSessions]:
    """The three sessions of the one Spark context of this run."""
    # By its memory, Spark would take pages of 32 MiB for every aggregate and sort of a few rows.
    opened = SparkSessions({"spark.master": "local[2]", "spark.buffer.pageSize": "1m"}, "headgate-tests")
    yield opened
    opened.stop()


@pytest.fixture(scope="session")
def spark(spark_sessions: SparkSessions) -> SparkSession:
    """A session set for small data, as most tests have."""
    return spark_sessions.small
