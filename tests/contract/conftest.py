"""The same books, kept by each kind of source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.books import Books
from tests.postgres.conftest import database, server

__all__ = ["books", "database", "server"]


@pytest.fixture(params=["memory", "log", "trigger", "timestamp", "files"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Books]:
    dsn = None if request.param in ("memory", "files") else request.getfixturevalue("database")
    made = Books(request.param, tmp_path / "log", dsn)
    yield made
    made.close()
