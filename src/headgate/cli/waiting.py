"""What a user sees while something takes time: one line on the terminal, written over, and gone when it is done."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_AFTER_SECONDS = 0.7
"""What is done sooner needs no words."""
_EVERY_SECONDS = 0.1
_CLEAR = "\r\x1b[K"


class Waiting:
    """The line; `say` changes its text and may be called from any thread."""

    def __init__(self, text: str, stream: TextIO) -> None:
        self._text = text
        self._stream = stream
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="waiting", daemon=True) if stream.isatty() else None
        if self._thread is not None:
            self._thread.start()

    def say(self, text: str) -> None:
        self._text = text

    def close(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._done.wait(_AFTER_SECONDS):
            return
        for frame in itertools.cycle(_FRAMES):
            seconds = int(time.monotonic() - self._began)
            self._stream.write(f"{_CLEAR}{frame} {self._text} {seconds} s"[: _width()])
            self._stream.flush()
            if self._done.wait(_EVERY_SECONDS):
                break
        self._stream.write(_CLEAR)
        self._stream.flush()


@contextmanager
def waiting(text: str, stream: TextIO | None = None) -> Iterator[Waiting]:
    """Shows that something is under way; nothing where nobody looks."""
    line = Waiting(text, sys.stderr if stream is None else stream)
    try:
        yield line
    finally:
        line.close()


def bar(done: int, total: int, width: int = 24) -> str:
    """How much of something is done, as `███▌     37 %`."""
    share = min(max(done / total, 0.0), 1.0) if total else 1.0
    eighths = int(share * width * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return f"{drawn:<{width}} {share:4.0%}"


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns + len(_CLEAR) - 1
