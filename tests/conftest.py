"""What all tests share: one Spark for the whole run, and hypothesis without a time limit per example."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from headgate.runtime.spark_sessions import SparkSessions

settings.register_profile("headgate", deadline=None)
settings.load_profile("headgate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, in every process, so that none is left with it alone in the end.

    Each of xdist's processes is given a stretch of the list; slow tests of one file stay together.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    files = list(dict.fromkeys(item.path for item in slow))
    ordered: list[pytest.Item] = []
    for process in range(processes):
        size = (len(items) - len(ordered)) // (processes - process)
        first = [item for item in slow if item.path in files[process::processes]]
        rest = max(0, size - len(first))
        ordered += first + quick[:rest]
        del quick[:rest]
    items[:] = ordered + quick


@pytest.fixture(scope="session")
def spark_sessions() -> Iterator[SparkSessions]:
    """The three sessions of the one Spark context of this run."""
    sessions = SparkSessions({"spark.master": "local[2]"}, "headgate-tests")
    yield sessions
    sessions.stop()


@pytest.fixture(scope="session")
def spark(spark_sessions: SparkSessions) -> SparkSession:
    """A session set for small data, as most tests have."""
    return spark_sessions.small
