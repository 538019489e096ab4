"""The PostgreSQL server of this run, and one database of it that is empty at the start of every test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from headgate.runtime.placing import platforms
from tests.postgres.conftest import connection, database, server

__all__ = ["connection", "database", "patient", "server"]


@pytest.fixture(autouse=True, scope="session")
def patient() -> Iterator[None]:
    """Queries wait for shipments as long as it takes, on any machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platforms, "PATIENCE", timedelta(seconds=60))
        yield
