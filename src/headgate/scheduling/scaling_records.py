"""Changes of sizes and the executor hours of a day, which outlive the process.

_headgate/scaling.jsonl   a change a line, with the hours so far; and the hours alone, once a minute
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headgate.scaling.scaler import REMEMBERED, SizeChange
from headgate.scheduling.json_lines import JsonLines

_READ = 10_000
_EVERY = timedelta(minutes=1)
"""Executor hours are written this often: a crash costs less than that."""


class ScalingRecords:
    """One thread uses it."""

    def __init__(self, folder: Path) -> None:
        self._lines = JsonLines(folder, "scaling")
        self._written_at: datetime | None = None

    def read(self, now: datetime) -> tuple[list[SizeChange], float]:
        """The latest changes, and the executor hours of this day (UTC)."""
        changes: deque[SizeChange] = deque(maxlen=REMEMBERED)
        hours = 0.0
        for line in self._lines.read(_READ):
            try:
                at = datetime.fromisoformat(line["at"])
                hours = float(line["hours"]) if at.date() == now.date() else 0.0
                if "part" in line:
                    changes.append(SizeChange(at, line["part"], line["before"], line["after"], line["reason"]))
            except (KeyError, TypeError, ValueError):
                # Of another version.
                continue
        return list(changes), hours

    def write(self, changes: Sequence[SizeChange], hours: float, now: datetime, *, at_once: bool = False) -> None:
        """Writes the changes; without one, the hours when they are due or wanted `at_once`."""
        lines: list[dict[str, Any]] = [
            {"at": each.at.isoformat(), "hours": hours, "part": each.part, "before": each.before, "after": each.after}
            | {"reason": each.reason}
            for each in changes
        ]
        if not lines and (at_once or self._written_at is None or now - self._written_at >= _EVERY):
            lines = [{"at": now.isoformat(), "hours": hours}]
        if lines:
            self._lines.append(lines)
            self._written_at = now
