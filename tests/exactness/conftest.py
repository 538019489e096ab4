"""Worlds on the one Spark of the run; the oracle has a session of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.runtime.spark.sessions import SparkSessions
from tests.exactness.world import World

MakeWorld = Callable[..., World]


@pytest.fixture(scope="session")
def oracle(spark_sessions: SparkSessions) -> SparkSession:
    session = spark_sessions.small.newSession()
    for name in ("spark.sql.session.timeZone", "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"):
        session.conf.set(name, spark_sessions.small.conf.get(name))
    for name in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism"):
        session.conf.set(name, spark_sessions.small.conf.get(name))
    return session


@pytest.fixture
def world(oracle: SparkSession, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes worlds; takes what `World` takes after the session."""
    made: list[World] = []
    numbers = itertools.count()

    def make(*arguments: object, **more: object) -> World:
        made.append(World(tmp_path / f"world{next(numbers)}", oracle, *arguments, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for found in made:
        found.warehouse.close()
