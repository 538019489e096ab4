"""What all tests share: one Spark for the whole run, and hypothesis without a time limit per example."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from headgate.runtime.spark_sessions import SparkSessions

settings.register_profile("headgate", deadline=None)
settings.load_profile("headgate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no worker is left with it alone in the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


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
