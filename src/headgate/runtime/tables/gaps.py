"""Keys of a table whose rows are not to be had at some jobs, and why.

    job        4    5    6    7    8    9
    keys K     ok   ok   |-- a gap --|   ok       after 5, until 9: job 6 failed, job 9 is known again
    keys L     ok   ok   |-- an open gap          nobody can read L at jobs after 5: the ranges are *missing*

A gap is closed when its ranges are made anew at a job. Until then the table's rows of these keys stay as they were, so the
table may be folded meanwhile, but never up to the job at which the ranges are made anew.

Rows that were never known, of a table that is loaded range by range, are a gap after no job at all:

    unloaded   read_at None                 nobody has read the rows at the source
    entering   read_at p, due job d         the base has the rows as the source had them at position p; nobody reads them
    loaded     until job e >= d             what came behind p is in the overlay, all of it up to e in job e
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from headgate.delta.changes import NO_JOB, JobId
from headgate.ranges.key_set import ALL, End, Interval, KeySet, Value
from headgate.ranges.range_map import Kind, parse, text_of


@dataclass(frozen=True, slots=True)
class Gap:
    keys: KeySet
    after: JobId
    """The last job at which the rows are known."""
    until: JobId | None
    """The next one; None while that is open."""
    reason: str
    due: JobId | None = None
    """The job at which the rows are to be made anew, while somebody wants that."""
    was_open: bool = True
    """Whether the rows were missing, so that the table may have been folded meanwhile."""
    read_at: int | None = None
    """Of a source table: as of which position of the source the table's base has the rows; None while they are to be read."""

    @property
    def is_first(self) -> bool:
        """Whether the rows were never known."""
        return self.after < NO_JOB

    def body(self) -> dict[str, Any]:
        """The gap for the ledger, as if it were open: whoever opens the table makes the ranges anew."""
        kinds = {_kind(end.value) for each in self.keys.intervals for end in (each.low, each.high) if end is not None}
        return {
            "kind": next(iter(kinds), "integer"),
            "null": self.keys.has_null,
            "keys": [[_end(each.low), _end(each.high)] for each in self.keys.intervals],
            "after": self.after,
            "reason": self.reason,
        } | ({} if self.read_at is None else {"read_at": self.read_at})

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> Gap:
        kind = body["kind"]
        intervals = tuple(Interval(_read(kind, low), _read(kind, high)) for low, high in body["keys"])
        read_at = body.get("read_at")
        return Gap(KeySet(intervals, body["null"]), JobId(body["after"]), None, body["reason"], read_at=read_at)


@dataclass(frozen=True, slots=True)
class Gaps:
    """All gaps of a table."""

    found: tuple[Gap, ...] = ()

    @property
    def open(self) -> list[Gap]:
        return [gap for gap in self.found if gap.until is None]

    def opened(self, gap: Gap) -> Gaps:
        return Gaps((*self.found, gap))

    def open_for(self, gaps: Mapping[KeySet, Gap]) -> Gaps:
        """With one open gap for each of these sets of keys, in place of those that are open."""
        ended = (gap for gap in self.found if gap.until is not None)
        return Gaps((*ended, *(replace(gap, keys=keys) for keys, gap in gaps.items())))

    def closed(self, keys: KeySet, until: JobId) -> Gaps:
        """With the rows of the keys known again at a job."""
        return Gaps(
            tuple(
                replace(gap, until=until, due=None) if gap.until is None and meets(gap.keys, keys) else gap
                for gap in self.found
            )
        )

    def skipped(self, keys: KeySet, after: JobId, until: JobId, reason: str) -> Gaps:
        """With jobs between two others at which the rows are not known, unless that is said already."""
        known = any(
            not each.was_open and (each.until or until) >= until and each.after <= after and each.keys in (keys, ALL)
            for each in self.found
        )
        if known:
            return self
        covered = [
            each
            for each in self.found
            if not each.was_open and each.keys == keys and each.after >= after and (each.until or until) <= until
        ]
        kept = tuple(each for each in self.found if each not in covered)
        return Gaps((*kept, Gap(keys, after, until, reason, was_open=False)))

    def due(self, keys: KeySet, job: JobId | None) -> Gaps:
        """With open gaps to be closed at a job, unless one is named already; None: at none."""

        def told(gap: Gap) -> Gap:
            if gap.until is not None or not meets(gap.keys, keys) or (job is not None and gap.due is not None):
                return gap
            # Rows that were read enter at the job that is said, whoever wants them.
            return gap if gap.read_at is not None else replace(gap, due=job)

        return Gaps(tuple(told(gap) for gap in self.found))

    def entering(self, keys: KeySet, read_at: int, due: JobId) -> Gaps:
        """With the rows of the keys, which were never known, in the base as of a position of their source."""
        return Gaps(
            tuple(
                replace(gap, read_at=read_at, due=due) if gap.until is None and meets(gap.keys, keys) else gap
                for gap in self.found
            )
        )

    def known_from(self, job: JobId, keys: KeySet = ALL) -> JobId:
        """The next job at which rows of these keys are known that are not known at this one, or before; else no job."""
        return max(
            (gap.until for gap in self.found if gap.until is not None and gap.until > job and meets(gap.keys, keys)),
            default=NO_JOB,
        )

    def durable_job(self, newest: JobId) -> JobId:
        """The last job to which the table may be folded: the newest one where nothing is missing."""
        return JobId(min([newest, *((newest if gap.due is None else gap.due) - 1 for gap in self.open)]))

    def at(self, job: JobId, keys: KeySet = ALL) -> list[Gap]:
        """Gaps of these keys in which a job lies."""
        return [
            gap
            for gap in self.found
            if gap.after < job and (gap.until is None or job < gap.until) and meets(gap.keys, keys)
        ]

    def lasting(self, job: JobId) -> list[Gap]:
        """Gaps that whoever opens the table at a job has to know of."""
        return [gap for gap in self.found if gap.was_open and (gap.until is None or gap.until > job)]

    def since(self, job: JobId) -> Gaps:
        """Without those that end before a job which is the oldest that anybody asks for, and is durable."""
        return Gaps(tuple(gap for gap in self.found if gap.until is None or gap.until > job))


def meets(keys: KeySet, others: KeySet) -> bool:
    both = keys.intersection(others)
    return bool(both.intervals) or both.has_null


def _kind(value: Value) -> Kind:
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, date):
        return "date"
    return "text" if isinstance(value, str) else "integer"


def _end(end: End | None) -> list[Any] | None:
    return None if end is None else [text_of(end.value), end.above]


def _read(kind: Kind, body: list[Any] | None) -> End | None:
    return None if body is None else End(parse(kind, body[0]), bool(body[1]))
