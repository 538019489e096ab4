"""What capture costs the source, from the source's own count of committed transactions.

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


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time at the source."""

    rate: float
    """Commits per second."""
    load: float
    """Sessions of capture that were busy on average."""


def load_cost(intervals: Sequence[Interval]) -> float:
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
        self._intervals: deque[Interval] = deque(maxlen=_RECENT_INTERVALS)

    @property
    def newest(self) -> Interval | None:
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
            self._intervals.append(Interval(rate, (self._busy - busy) / lasting))
            self.load_cost = load_cost(self._intervals)
        self._last = now, transactions, self._busy
