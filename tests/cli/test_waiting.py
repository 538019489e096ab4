"""What takes time shows a line on a terminal, and nothing anywhere else."""

from __future__ import annotations

import io
import time

import click
import pytest

from headgate.cli.waiting import waiting
from tests.waiting import eventually

GONE = "\x1b[?25h\r\x1b[1A\x1b[2K"
"""The cursor is seen again, and the line is not."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_tells_what_is_under_way_and_goes_away() -> None:
    stream = Terminal()
    with waiting("starting", stream) as line:
        eventually(lambda: "starting" in stream.getvalue())
        line.say("reading [12] of 40 rows")
        eventually(lambda: "reading [12] of 40 rows" in stream.getvalue())
    shown = stream.getvalue()
    assert "0:00:0" in shown
    assert shown.endswith(GONE)


def test_what_is_soon_done_shows_nothing() -> None:
    stream = Terminal()
    with waiting("starting", stream):
        pass
    assert stream.getvalue() == ""


def test_where_nobody_looks_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.waiting._AFTER_SECONDS", 0)
    stream = io.StringIO()
    with waiting("starting", stream):
        time.sleep(0.2)
    assert stream.getvalue() == ""


def test_the_line_goes_away_after_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.waiting._AFTER_SECONDS", 0)
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), waiting("starting", stream):
        time.sleep(0.2)
        raise KeyboardInterrupt
    assert stream.getvalue().endswith(GONE)


def test_bytes_that_are_done_make_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.waiting._AFTER_SECONDS", 0)
    stream = Terminal()
    with waiting("copying", stream) as line:
        for done in (1 << 20, 3 << 20):
            line.measure(done, 4 << 20)
            eventually(lambda: f"{done >> 20}.0/4.0 MiB" in click.unstyle(stream.getvalue()))  # noqa: B023
    assert stream.getvalue().endswith(GONE)


def test_a_terminal_that_cannot_write_over_a_line_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.waiting._AFTER_SECONDS", 0)
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with waiting("starting", stream) as line:
        line.measure(1, 2)
        time.sleep(0.2)
    assert stream.getvalue() == ""
