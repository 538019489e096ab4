"""The WAL that a server holds for our slot: measured, warned of while there is time, and given up at the limit."""

from __future__ import annotations

import logging

from headgate.capture.postgres.problems import RESNAPSHOT, SourceHistoryLost

ALARMS = (0.5, 0.8)
"""Shares of the limit at which a warning is logged."""

_LOGGER = logging.getLogger(__name__)


class RetainedWal:
    """What is known of the WAL behind one slot; `bytes` is as of the last look, None before the first."""

    def __init__(self, slot: str, limit: int | None) -> None:
        self.limit = limit
        self.bytes: int | None = None
        self.alarm: str | None = None
        """Why someone should look at it; stays until there is less again."""
        self.dropped = False
        self._slot = slot
        self._level = 0

    @property
    def beyond_limit(self) -> bool:
        return self.limit is not None and (self.bytes or 0) > self.limit

    def measured(self, size: int) -> None:
        """Takes note of the size; warns once whenever another share of the limit is passed."""
        self.bytes = size
        if self.limit is None:
            return
        before, self._level = self._level, sum(size > share * self.limit for share in ALARMS)
        self.alarm = self._warning(size, self.limit) if self._level else None
        if self._level > before:
            _LOGGER.warning("retained WAL: %s", self.alarm)

    def given_up(self) -> SourceHistoryLost:
        """The slot was dropped because of the limit: the error to raise."""
        assert self.bytes is not None and self.limit is not None
        self.dropped = True
        self.alarm = (
            f"the server held {_megabytes(self.bytes)} of WAL for headgate, more than the limit of"
            f" {_megabytes(self.limit)}, so the replication slot {self._slot} was dropped"
        )
        _LOGGER.error("retained WAL: %s", self.alarm)
        return SourceHistoryLost(self.alarm, hint=f"{RESNAPSHOT}; long transactions also retain WAL")

    def begun_anew(self) -> None:
        """There is a new slot, which holds nothing yet."""
        self.bytes, self.alarm, self.dropped, self._level = None, None, False, 0

    def _warning(self, size: int, limit: int) -> str:
        return (
            f"the server holds {_megabytes(size)} of WAL for the replication slot {self._slot}, {100 * size // limit} % of"
            f" the {_megabytes(limit)} at which it is dropped; end transactions that run for long at the source, give"
            " capture a faster disk or gear, or raise retained_wal"
        )


def _megabytes(size: int) -> str:
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} kB"
