"""How far a source's tables are read: on one line of a terminal that is written over, or now and then in the log."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO

from rich.cells import set_cell_size

from headgate.capture.source import Progress

OnProgress = Callable[[str, Progress], None]
"""Hears, by the source's name, how far its tables are read."""

_LOGGER = logging.getLogger(__name__)
_EVERY_SECONDS = 0.1
_LOG_SECONDS = 10.0


class ProgressLine:
    """Writes the newest progress; may be called from any thread that holds the load."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written = float("-inf")

    def __call__(self, source: str, progress: Progress) -> None:
        now = time.monotonic()
        if not progress.is_done and now - self._written < _EVERY_SECONDS:
            return
        self._written = now
        # Within the terminal: a line that goes on in the next one cannot be written over.
        width = shutil.get_terminal_size().columns - 1
        line = set_cell_size(describe(source, progress), width)
        self._stream.write(f"\r{line}{chr(10) if progress.is_done else ''}")
        self._stream.flush()


class ProgressLog:
    """Logs the newest progress now and then, and the end; may be called from any thread that holds the load."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged: dict[str, float] = {}
        """When each source's last line was due."""

    def __call__(self, source: str, progress: Progress) -> None:
        now = self._now()
        due = self._logged.setdefault(source, now)
        if progress.is_done:
            del self._logged[source]
        elif now - due < _LOG_SECONDS:
            return
        else:
            self._logged[source] = now
        _LOGGER.info("%s", describe(source, progress))


def describe(source: str, progress: Progress) -> str:
    """One line, such as `shop_db: read 1,200,000 of about 4,800,000 rows (25 %), orders, 80,000 rows a second, 0:00:45 left`."""
    rate = "" if progress.rate is None else f", {progress.rate:,.0f} rows a second"
    if progress.is_done:
        return f"{source}: read {progress.rows:,} rows{rate}"
    share = 100 * progress.rows // max(progress.estimated, 1)
    table = "" if progress.table is None else f", {progress.table}"
    text = f"{source}: read {progress.rows:,} of about {progress.estimated:,} rows ({share} %){table}{rate}"
    if progress.remaining is None:
        return text
    return f"{text}, {timedelta(seconds=round(progress.remaining.total_seconds()))} left"


def default_progress() -> OnProgress:
    """A line when somebody looks, else the log."""
    return ProgressLine(sys.stderr) if sys.stderr.isatty() else ProgressLog()
