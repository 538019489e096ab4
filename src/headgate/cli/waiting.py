"""What a user sees while something takes time: one line on the terminal, written over, and gone when it is done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_SECONDS = 0.7
"""What is done sooner needs no words."""


class WaitingLine:
    """The line; it may be changed from any thread. Where nobody looks there is none."""

    def __init__(self, text: str, stream: TextIO) -> None:
        self._progress = _progress(stream) if stream.isatty() else None
        if self._progress is not None:
            self._task = self._progress.add_task(text, total=None)
            self._start = threading.Timer(_AFTER_SECONDS, self._progress.start)
            self._start.daemon = True
            self._start.start()

    @property
    def is_seen(self) -> bool:
        """Whether the line is drawn: nowhere but on a terminal."""
        return self._progress is not None

    def say(self, text: str) -> None:
        """Changes the text."""
        if self._progress is not None:
            self._progress.update(self._task, description=text)

    def measure(self, done: int, total: int) -> None:
        """Adds a bar of the bytes that are done."""
        if self._progress is not None:
            from rich.progress import BarColumn, DownloadColumn, TimeElapsedColumn, TimeRemainingColumn

            if self._progress.tasks[0].total is None:
                spinner, text, *_ = self._progress.columns
                bytes_done, left = DownloadColumn(binary_units=True), TimeRemainingColumn()
                self._progress.columns = (spinner, text, BarColumn(24), bytes_done, TimeElapsedColumn(), left)
            self._progress.update(self._task, completed=done, total=total)

    def close(self) -> None:
        """Takes the line away."""
        if self._progress is not None:
            self._start.cancel()
            self._start.join()
            self._progress.stop()


@contextmanager
def waiting(text: str, stream: TextIO | None = None) -> Iterator[WaitingLine]:
    """Shows that something is under way."""
    line = WaitingLine(text, sys.stderr if stream is None else stream)
    try:
        yield line
    finally:
        line.close()


def _progress(stream: TextIO) -> Progress | None:
    """A line on a terminal that can write over it."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=stream, highlight=False, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    if not console.is_interactive:
        return None
    # Nothing is redirected: what is waited for may write rows to stdout, and start processes.
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
