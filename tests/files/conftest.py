"""Sources over a folder with files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.files.landing import COLUMNS, Landing

Open = Callable[..., Landing]


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Open]:
    """Opens a landing folder; closed after the test."""
    with ExitStack() as opened:

        def make(**table: Any) -> Landing:
            made = Landing(tmp_path, **({"columns": COLUMNS, **table} if "tables" not in table else table))
            opened.callback(lambda: made.source.close())
            return made

        yield make
