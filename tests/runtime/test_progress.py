"""The line that shows how far a source's tables are read."""

from __future__ import annotations

import io
import logging
from datetime import timedelta

import pytest
from rich.cells import cell_len

from headgate.capture.source import Progress
from headgate.cli.reaching import told_by
from headgate.cli.waiting import waiting
from headgate.runtime.sources.progress import ProgressLine, ProgressLog, default_progress, describe


def test_a_line_tells_rows_share_and_remaining_time() -> None:
    begun = Progress(0, 4_800_000, None)
    assert describe("shop", begun) == "shop: read 0 of about 4,800,000 rows (0 %)"
    halfway = Progress(1_200_000, 4_800_000, timedelta(seconds=41.7))
    assert describe("shop", halfway) == "shop: read 1,200,000 of about 4,800,000 rows (25 %), 0:00:42 left"
    assert describe("shop", Progress(7, 7, timedelta(0), is_done=True)) == "shop: read 7 rows"


def test_the_line_is_written_over_and_ends_when_all_is_read() -> None:
    stream = io.StringIO()
    show = ProgressLine(stream)
    for rows in range(1, 1000):
        show("shop", Progress(rows, 1000, timedelta(seconds=1)))
    show("shop", Progress(1000, 1000, timedelta(0), is_done=True))
    written = stream.getvalue()
    assert written.count("\r") < 20 and written.count("\n") == 1
    assert written.endswith("\n") and "\rshop: read 1,000 rows" in written


def test_the_line_stays_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    ProgressLine(stream)("東京" * 30, Progress(7, 9, timedelta(seconds=1)))
    assert cell_len(stream.getvalue().removeprefix("\r")) == 39


def test_where_nobody_looks_the_log_has_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter(range(100))
    tell = ProgressLog(now=lambda: float(next(seconds)))
    with caplog.at_level(logging.INFO, logger="headgate.runtime.sources.progress"):
        for rows in range(35):
            tell("shop", Progress(rows, 40, timedelta(seconds=5), table="orders", rate=1.0))
        tell("shop", Progress(40, 40, timedelta(0), is_done=True, rate=1.0))
    assert caplog.messages == [
        "shop: read 10 of about 40 rows (25 %), orders, 1 rows a second, 0:00:05 left",
        "shop: read 20 of about 40 rows (50 %), orders, 1 rows a second, 0:00:05 left",
        "shop: read 30 of about 40 rows (75 %), orders, 1 rows a second, 0:00:05 left",
        "shop: read 40 rows, 1 rows a second",
    ]


def test_a_command_whose_output_is_redirected_logs_its_loads() -> None:
    with waiting("opening", io.StringIO()) as line:
        assert isinstance(told_by(line), ProgressLog)
    assert isinstance(default_progress(), ProgressLog | ProgressLine)
