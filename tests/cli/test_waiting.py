"""What takes time shows a line on a terminal, and nothing anywhere else."""

from __future__ import annotations

import io
import time

import pytest

from headgate.cli.waiting import bar, waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_tells_what_is_under_way_and_goes_away() -> None:
    stream = Terminal()
    with waiting("starting", stream) as line:
        deadline = time.monotonic() + 10
        while "starting" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        line.say("reading 12 of 40 rows")
        while "12 of 40" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    shown = stream.getvalue()
    assert "starting 0 s" in shown
    assert "reading 12 of 40 rows" in shown
    assert shown.endswith("\r\x1b[K")


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
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_bar_grows() -> None:
    assert bar(0, 8, width=4) == "       0%"
    assert bar(1, 8, width=4) == "▌     12%"
    assert bar(4, 8, width=4) == "██    50%"
    assert bar(9, 8, width=4) == "████ 100%"
    assert bar(0, 0, width=4) == "████ 100%"
