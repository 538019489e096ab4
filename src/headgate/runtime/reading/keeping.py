"""Whether a query's answer is kept and moved on from job to job, or read anew each time: a pure choice, with its reason."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

ASKED_BEFORE = 2
"""Jobs at which the query was asked before its answer is kept."""
LEAST_SECONDS = 0.15
"""An answer that is read in less is not kept: moving one on takes about as long."""
PAUSE = 64
"""Asks before what did not pay is tried again."""
_REMEMBERED = 3


class Keep(NamedTuple):
    keep: bool
    reason: str


def _latest() -> deque[float]:
    return deque(maxlen=_REMEMBERED)


@dataclass
class Observed:
    """What is known about a query's answers. Of the latest seconds the least counts: the rest is other work."""

    jobs: int = 0
    """At which it was asked."""
    newest: int = -1
    refused: str | None = None
    """Why its answer can never be kept."""
    paused: int = 0
    """So many asks are read anew."""
    why_paused: str = ""
    read_seconds: deque[float] = field(default_factory=_latest)
    moved_seconds: deque[float] = field(default_factory=_latest)

    def ask(self, job: int) -> None:
        if job > self.newest:
            self.jobs += 1
            self.newest = job
        self.paused = max(0, self.paused - 1)

    def pause(self, why: str) -> None:
        self.paused, self.why_paused = PAUSE, why
        self.moved_seconds.clear()


def choose(observed: Observed) -> Keep:
    """Whether the answer is to be kept from now on, or goes on being kept."""
    if observed.refused is not None:
        return Keep(False, observed.refused)
    if observed.paused:
        return Keep(False, observed.why_paused)
    if observed.jobs <= ASKED_BEFORE or not observed.read_seconds:
        return Keep(False, f"asked at {observed.jobs} jobs, kept after {ASKED_BEFORE}")
    read = min(observed.read_seconds)
    if read < LEAST_SECONDS:
        return Keep(False, f"it is read in {read:.2f} s")
    moved = min(observed.moved_seconds, default=0.0)
    if len(observed.moved_seconds) == _REMEMBERED and moved >= read:
        return Keep(False, f"moving it on takes {moved:.2f} s, reading it {read:.2f} s")
    return Keep(True, f"reading it takes {read:.2f} s")
