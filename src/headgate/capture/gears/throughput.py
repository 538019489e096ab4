"""What capture costs the source, from the source's own count of committed transactions, and what its tasks take.

Each interval pairs the rate of commits with the load that capture put on the source meanwhile: the number of its
sessions busy on average. The slope of one over the other is what a session costs, pulled towards a prior as long as
the loads seen differ little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

PRIOR_COST = 0.25
"""The share of throughput that one busy session is taken to cost before anything is known."""
INTERVAL = timedelta(seconds=1)

_PRIOR_STRENGTH = 0.5
"""In squares of load: fifty intervals, half of them idle and half at a load of 0.2, weigh as much."""
_RECENT_INTERVALS = 60
_RECENT_TASKS = 32
_PRIOR_SPREAD = 0.02
"""In squares of what a task covers on average."""
_LONGEST_COVERED = 60.0
"""A task after a long pause tells nothing about others."""


@dataclass(frozen=True, slots=True)
class RateInterval:
    """A stretch of time at the source."""

    rate: float
    """Commits per second."""
    load: float
    """Sessions of capture that were busy on average."""


def load_cost(intervals: Sequence[RateInterval]) -> float:
    """The share of the source's throughput that one busy session takes, from 0 to 1."""
    mean_rate = fmean(interval.rate for interval in intervals) if intervals else 0.0
    if mean_rate <= 0:
        return PRIOR_COST
    mean_load = fmean(interval.load for interval in intervals)
    spread = sum((interval.load - mean_load) ** 2 for interval in intervals)
    loss = sum((interval.load - mean_load) * (1 - interval.rate / mean_rate) for interval in intervals)
    of_mean = max(0.0, (loss + PRIOR_COST * _PRIOR_STRENGTH) / (spread + _PRIOR_STRENGTH))
    return min(1.0, of_mean / (1 + of_mean * mean_load))


class ThroughputMeter:
    """Makes intervals of counts; not safe to use from several threads at once."""

    def __init__(self) -> None:
        self.load_cost = PRIOR_COST
        self._busy = timedelta(0)
        self._last: tuple[datetime, int, timedelta] | None = None
        self._intervals: deque[RateInterval] = deque(maxlen=_RECENT_INTERVALS)

    @property
    def newest(self) -> RateInterval | None:
        return self._intervals[-1] if self._intervals else None

    def was_busy(self, lasting: timedelta) -> None:
        """A session of capture worked at the source."""
        self._busy += lasting

    def is_due(self, now: datetime) -> bool:
        return self._last is None or not timedelta(0) <= now - self._last[0] < INTERVAL

    def count(self, transactions: int, now: datetime) -> None:
        """The source has committed this many so far; a smaller number than before begins anew."""
        if self._last is not None and now > self._last[0] and transactions >= self._last[1]:
            at, before, busy = self._last
            lasting = now - at
            rate = (transactions - before) / lasting.total_seconds()
            self._intervals.append(RateInterval(rate, (self._busy - busy) / lasting))
            self.load_cost = load_cost(self._intervals)
        self._last = now, transactions, self._busy


class TaskTimes:
    """What tasks take: something each, and a share of the history that they cover. Recent ones count most.

    As long as all cover about as much, the two cannot be told apart: then it is all taken to be the share, so that a shorter
    period looks cheap enough to be tried.
    """

    def __init__(self) -> None:
        self._weight = self._covered = self._taken = self._squares = self._products = 0.0

    def took(self, lasting: timedelta, covering: timedelta) -> None:
        """A task took this long to cover so much."""
        taken, covered = lasting.total_seconds(), covering.total_seconds()
        if not 0 <= covered <= _LONGEST_COVERED:
            return
        kept = 1 - 1 / _RECENT_TASKS
        self._weight = kept * self._weight + 1
        self._covered = kept * self._covered + covered
        self._taken = kept * self._taken + taken
        self._squares = kept * self._squares + covered * covered
        self._products = kept * self._products + covered * taken

    @property
    def share(self) -> float:
        """What a task takes longer for each second of history that it covers."""
        if self._covered <= 0:
            return 0.0
        covered, taken = self._covered / self._weight, self._taken / self._weight
        most = taken / covered
        spread = self._squares / self._weight - covered * covered
        together = self._products / self._weight - covered * taken
        prior = _PRIOR_SPREAD * covered * covered
        return min(most, max(0.0, (together + most * prior) / (spread + prior)))

    @property
    def fixed(self) -> timedelta:
        """What a task takes that covers nothing."""
        if self._weight <= 0:
            return timedelta(0)
        return timedelta(seconds=max(0.0, self._taken - self.share * self._covered) / self._weight)
