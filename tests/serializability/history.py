"""The history of a run: one JSON object per line and event, written by whoever sees it happen.

world    what the run is about: totals, writers, how far headgate's clock is from the machine's
commit   a transfer, when its commit was sent and when that came back, on the machine's clock
answer   what a reader asked, when, what it got, and the receipt
refusal  a query whose bound could not be met in time
trouble  a query that failed for another reason
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class History:
    """A file of events; may be written by many threads, each event at once."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("a")

    def add(self, event: str, **body: object) -> None:
        line = json.dumps({"event": event, **body})
        with self._lock:
            self._file.write(f"{line}\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(paths: Iterable[Path]) -> list[Event]:
    """All events of the files; a line that a killed process left unfinished is left out."""
    found: list[Event] = []
    for path in paths:
        lines = path.read_text().split("\n")
        found += [json.loads(line) for line in lines[:-1]]
    return found
