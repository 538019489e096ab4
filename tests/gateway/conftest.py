"""One served shop for all tests of this folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headgate.runtime.spark.sessions import SparkSessions
from tests.gateway.serving import Shop, fill, open_shop, served


@pytest.fixture(scope="session")
def shop(spark_sessions: SparkSessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("shop")) as warehouse:
        fill(warehouse)
        with served(warehouse) as shop:
            yield shop


@pytest.fixture(autouse=True)
def no_query_of_the_catalog_is_unknown(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Clients often go on when the catalog does not answer; a test of theirs does not pass then."""
    with caplog.at_level(logging.INFO, "headgate.gateway"):
        yield
    told = [record.getMessage() for record in caplog.get_records("call")]
    assert not [line for line in told if "event=unknown_catalog_query" in line]
