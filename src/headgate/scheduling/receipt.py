"""What an answer's freshness was and what it took: printable, and as JSON.

Instants are on headgate's clock. `data_timestamp` is the instant up to which everything that the sources acknowledged is
in the answer, so an idle source is not stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from headgate.capture.source import Capabilities
from headgate.config.platforms import SPARK
from headgate.measures import duration_text
from headgate.receipts import receipt_lines, waited_text
from headgate.scheduling.bound import Bound

_NONE = timedelta(0)
_PROMISES = {
    "deletes": "rows deleted at the source may still be here",
    "transaction_boundaries": "changes of one source transaction may appear at different times",
    "intermediate_versions": "versions of a row that were soon replaced may be missing from history",
    "commit_times": "times of changes are when they were seen, not when they were committed",
}


def cannot_promise(capabilities: Capabilities) -> tuple[str, ...]:
    """What a source's capture cannot promise, one plain sentence each."""
    return tuple(sentence for name, sentence in _PROMISES.items() if not getattr(capabilities, name))


@dataclass(frozen=True, slots=True)
class SourceReceipt:
    """One source of the answer."""

    name: str
    lag: timedelta
    """How far the answer's state of this source lies before the arrival of the query."""
    clock_offset: timedelta | None
    """The source's clock minus headgate's; None while the source was never asked."""
    clock_error: timedelta | None
    """How far the offset may be off, either way."""
    position: int
    """The source's history up to here is in the answer."""
    cannot_promise: tuple[str, ...] = ()
    sampled: bool = False
    """The source was asked for its position because of this query, or of one that it shares a job with."""


@dataclass(frozen=True, slots=True)
class RangesRead:
    """The ranges of one table that the answer, or what it derives from, needed."""

    table: str
    of: int
    """How many ranges the table has."""
    read: tuple[str, ...]
    brought_forward: int
    """How many of them came to the job because of this query."""
    left_behind: int
    """How many others are not at the job."""
    missing: tuple[str, ...] = ()
    """Ranges that the query would have read and that were not loaded in time: their rows are not in the answer."""


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds that the query waited, by where."""

    capture: float = 0.0
    queue: float = 0.0
    spark: float = 0.0
    read: float = 0.0

    @property
    def total(self) -> float:
        return self.capture + self.queue + self.spark + self.read

    def to_json(self) -> dict[str, float]:
        return {**asdict(self), "total": self.total}

    def __str__(self) -> str:
        return waited_text(self.to_json())


@dataclass(frozen=True, slots=True)
class Receipt:
    bound: Bound
    arrived_at: datetime
    data_timestamp: datetime | None
    """None when the query reads no source."""
    job: int
    sources: tuple[SourceReceipt, ...] = ()
    waited: Waited = Waited()
    rows_processed: int = 0
    jobs_run: int = 0
    shared_cut: bool = False
    """The job that this query used was there already, or was closed for other queries as well."""
    closed_job: bool = False
    """This query caused the cut."""
    missed: bool = False
    """The bound was not met."""
    why_missed: str | None = None
    decision: str = ""
    """Why this job was taken."""
    notes: tuple[str, ...] = ()
    """Warnings of whoever made the receipt; `warnings` has all."""
    kept: str = ""
    """Of which kept answer the rows are, and how it was moved on to the job; empty if they were read as written."""
    ranges: tuple[RangesRead, ...] = ()
    """Of the tables with several ranges that the answer derives from."""
    platform: str = SPARK
    """Who answered."""
    why_platform: str = ""
    """Why Spark answered although tables of the query are placed elsewhere."""

    @property
    def staleness(self) -> timedelta | None:
        """At arrival; what the sources acknowledged later is beyond any promise."""
        return None if self.data_timestamp is None else max(_NONE, self.arrived_at - self.data_timestamp)

    @property
    def slowest(self) -> SourceReceipt | None:
        """The source that lags most."""
        return max(self.sources, key=lambda source: source.lag, default=None)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.notes + clock_warnings(self.bound, self.sources)

    def __str__(self) -> str:
        return "\n".join(f"{title:<9} {text}".rstrip() for title, text in receipt_lines(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types: durations in seconds, instants in ISO 8601; derived fields are there to be read."""
        return {
            "bound": self.bound.to_json(),
            "arrived_at": self.arrived_at.isoformat(),
            "data_timestamp": None if self.data_timestamp is None else self.data_timestamp.isoformat(),
            "staleness": _seconds(self.staleness),
            "job": self.job,
            "sources": [_source_json(source) for source in self.sources],
            "waited": self.waited.to_json(),
            "rows_processed": self.rows_processed,
            "jobs_run": self.jobs_run,
            "shared_cut": self.shared_cut,
            "closed_job": self.closed_job,
            "missed": self.missed,
            "why_missed": self.why_missed,
            "decision": self.decision,
            "platform": self.platform,
            "why_platform": self.why_platform,
            "notes": list(self.notes),
            "kept": self.kept,
            "ranges": [{**asdict(ranges), "read": list(ranges.read)} for ranges in self.ranges],
            "warnings": list(self.warnings),
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Receipt:
        timestamp, waited = body["data_timestamp"], body["waited"]
        return Receipt(
            Bound.from_json(body["bound"]),
            datetime.fromisoformat(body["arrived_at"]),
            None if timestamp is None else datetime.fromisoformat(timestamp),
            body["job"],
            tuple(_source_from_json(source) for source in body["sources"]),
            Waited(waited["capture"], waited["queue"], waited["spark"], waited["read"]),
            body["rows_processed"],
            body["jobs_run"],
            # Histories from before had another name for it.
            body.get("shared_cut", body.get("rode_along", False)),
            body["closed_job"],
            body["missed"],
            body["why_missed"],
            body["decision"],
            tuple(body["notes"]),
            # Histories from before do not have it.
            body.get("kept", ""),
            tuple(
                RangesRead(**{**ranges, "read": tuple(ranges["read"]), "missing": tuple(ranges.get("missing", ()))})
                for ranges in body.get("ranges", ())
            ),
            body.get("platform", SPARK),
            body.get("why_platform", ""),
        )


def clock_warnings(bound: Bound, sources: Sequence[SourceReceipt]) -> tuple[str, ...]:
    """Sources whose clock is known less exactly than the bound asks for: times of their commits are to be read so.

    A bound of 0 is about positions, not times, and no clock is that exact; there an error above a second counts.
    """
    if bound.max_staleness is None:
        return ()
    allowed = bound.max_staleness or timedelta(seconds=1)
    found: list[str] = []
    for source in sources:
        if source.clock_offset is None or source.clock_error is None:
            continue
        if source.clock_error > allowed:
            found.append(
                f"the source's clock is known to ±{_short(source.clock_error)} only, which is more than the bound: "
                f"commit times of {source.name} may be off by that"
            )
        if abs(source.clock_offset) > max(allowed, source.clock_error):
            ahead = "ahead of" if source.clock_offset > _NONE else "behind"
            found.append(
                f"the source's clock is {_short(abs(source.clock_offset))} {ahead} headgate's: "
                f"commit times of {source.name} are corrected by that"
            )
    return tuple(found)


def _short(duration: timedelta) -> str:
    return duration_text(duration.total_seconds())


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _source_json(source: SourceReceipt) -> dict[str, Any]:
    return {
        "name": source.name,
        "lag": source.lag.total_seconds(),
        "clock_offset": _seconds(source.clock_offset),
        "clock_error": _seconds(source.clock_error),
        "position": source.position,
        "cannot_promise": list(source.cannot_promise),
        "sampled": source.sampled,
    }


def _source_from_json(body: Mapping[str, Any]) -> SourceReceipt:
    return SourceReceipt(
        body["name"],
        timedelta(seconds=body["lag"]),
        _duration(body["clock_offset"]),
        _duration(body["clock_error"]),
        body["position"],
        tuple(body["cannot_promise"]),
        body["sampled"],
    )
