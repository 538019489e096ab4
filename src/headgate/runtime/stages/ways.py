"""The way in which a stage takes a batch.

    narrow      rows are Arrow tables in the driver
    wide        rows are files, which executors read and write; the same rules
    recompute   the query as written, at each job, and the difference from what the table holds

Of a view, the way that takes least time is chosen. What a way takes is a line, so many seconds and so many for each row, which is
fitted to what the stage's batches took; rows are the changed ones, and those that the query reads where it is recomputed. A wide
batch scans the tables that it reads: before it is known how long that takes, it is expected by their rows. A replica
is narrow wherever it can be, and its dimensions take its way. Rows in the driver are bounded: of more, a batch is never narrow.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

from headgate.capture.durable import read_checked, replace_checked

_LOGGER = logging.getLogger(__name__)

_KEPT = 0.97
"""How much what was observed counts after each later observation."""
_MANY_ROWS = 200_000.0
_FORCED = "limits.way says so"


class Way(StrEnum):
    NARROW = "narrow"
    WIDE = "wide"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class WayChoice:
    way: Way
    reason: str

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a batch: so many, and so many for each row."""

    fixed: float
    per_row: float

    def seconds(self, rows: float) -> float:
        return self.fixed + self.per_row * rows


_EXPECTED: Mapping[Way, Line] = {
    Way.NARROW: Line(0.2, 16e-6),
    Way.WIDE: Line(0.5, 4e-6),
    Way.RECOMPUTE: Line(0.6, 2e-6),
}
_PER_SCANNED_ROW = 0.6e-6
"""What each row of its tables adds to a wide batch."""


def expected(way: Way, scanned: float) -> Line:
    """What a view takes of which nothing is known; its tables have so many rows."""
    found = _EXPECTED[way]
    return replace(found, fixed=found.fixed + _PER_SCANNED_ROW * scanned) if way is Way.WIDE else found


@dataclass(frozen=True, slots=True)
class Fit:
    """Sums over the batches of a stage in one way; each counts by how much it differs in proportion to what was expected."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def with_one(self, expected: Line, rows: float, seconds: float) -> Fit:
        weight = 1 / expected.seconds(rows) ** 2
        sums = (1.0, rows, seconds, rows * rows, rows * seconds)
        return Fit(*(_KEPT * before + weight * one for before, one in zip(astuple(self), sums, strict=True)))

    def line(self, expected: Line) -> Line:
        """The line that suits the batches and, as if each were one batch more, the expected seconds and seconds per row.

        So small batches, which tell nothing about rows, leave the seconds per row as they are expected.
        """
        few, many = 1 / expected.fixed**2, (_MANY_ROWS / expected.seconds(_MANY_ROWS)) ** 2
        weight, squares = self.weight + few, self.squares + many
        seconds, products = self.seconds + few * expected.fixed, self.products + many * expected.per_row
        spread = weight * squares - self.rows**2
        per_row = max(0.0, (weight * products - self.rows * seconds) / spread)
        return Line(max(0.01, (seconds - per_row * self.rows) / weight), per_row)


@dataclass(frozen=True, slots=True)
class StageCosts:
    """What a stage's batches took."""

    fits: Mapping[Way, Fit] = field(default_factory=dict)

    def with_one(self, way: Way, rows: float, seconds: float, scanned: float) -> StageCosts:
        fit = self.fits.get(way, Fit())
        return StageCosts({**self.fits, way: fit.with_one(expected(way, scanned), rows, seconds)})

    def estimate(self, way: Way, rows: float, scanned: float) -> float:
        """The seconds of a batch over tables of so many rows.

        What other ways took before the first row, beyond what is expected, this one takes as well.
        """
        others = [(expected(other, scanned), fit) for other, fit in self.fits.items() if other != way]
        delay = max([0.0, *(fit.line(before).fixed - before.fixed for before, fit in others)])
        line = expected(way, scanned)
        return self.fits.get(way, Fit()).line(replace(line, fixed=line.fixed + delay)).seconds(rows)

    def body(self) -> dict[str, Any]:
        return {way: astuple(fit) for way, fit in self.fits.items()}

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> StageCosts:
        return StageCosts({Way(way): Fit(*sums) for way, sums in body.items()})


def cheapest(seconds: Mapping[Way, float], rows: int, most_rows: int) -> WayChoice:
    """The way that takes least, of those whose seconds are given; narrow only for fewer rows than `most_rows`."""
    possible = {way: took for way, took in seconds.items() if way is not Way.NARROW or rows < most_rows}
    way = min(possible, key=possible.__getitem__)
    shown = ", ".join(f"{other} about {took:.1f} s" for other, took in possible.items())
    limit = "" if Way.NARROW in possible else f"; more than {most_rows:,} (limits.batch_rows) are never narrow"
    return WayChoice(way, f"{rows:,} changed rows: {shown}{limit}")


class Ways:
    """Chooses for every batch, and learns from what each took; used by many threads."""

    def __init__(self, most_rows: int, forced: Way | None = None, file: Path | None = None) -> None:
        """`most_rows` is what the driver may hold; `forced` is taken wherever it is possible; `file` keeps what was learnt."""
        self.most_rows = most_rows
        self.forced = forced
        self.last: dict[str, WayChoice] = {}
        """By stage the latest choice."""
        self._file = file
        self._learnt: dict[str, StageCosts] = {} if file is None else _read(file)
        self._written = dict(self._learnt)
        self._lock = Lock()

    def choose(self, stage: str, rows: int, *, recomputed_rows: int, jobs: int = 1) -> WayChoice:
        """The way for a view's batch of changed rows; `recomputed_rows` are those that its query would read, for each of the jobs."""
        with self._lock:
            if self.forced is not None and (self.forced is not Way.NARROW or rows < self.most_rows):
                choice = WayChoice(self.forced, _FORCED)
            else:
                learnt = self._learnt.get(stage, StageCosts())
                seconds = {way: learnt.estimate(way, rows, recomputed_rows) for way in (Way.NARROW, Way.WIDE)}
                seconds[Way.RECOMPUTE] = jobs * learnt.estimate(Way.RECOMPUTE, recomputed_rows, recomputed_rows)
                choice = cheapest(seconds, rows, self.most_rows)
            self.last[stage] = choice
            return choice

    def choose_for_events(self, stage: str, rows: int, in_files: int) -> WayChoice:
        """The way for a replica's batch of events, of which some lie in files that only executors read.

        It is narrow wherever it can be: rows are looked up or appended, and that is all.
        """
        with self._lock:
            if in_files:
                choice = WayChoice(Way.WIDE, f"{in_files:,} of {rows:,} changes came in files")
            elif rows >= self.most_rows or self.forced is not Way.WIDE:
                way = Way.NARROW if rows < self.most_rows else Way.WIDE
                most = f"{self.most_rows:,} that the driver may hold (limits.batch_rows)"
                choice = WayChoice(way, f"{rows:,} changes, of {most}")
            else:
                choice = WayChoice(Way.WIDE, _FORCED)
            self.last[stage] = choice
            return choice

    def follow(self, stage: str, other: str) -> None:
        """Notes that a batch is taken in the way that another stage took, whose rows it reads."""
        with self._lock:
            choice = self.last[other]
            self.last[stage] = WayChoice(choice.way, f"as {other}, {choice.reason}")

    def widen(self, stage: str, rows: int) -> Way:
        """The way of a batch that was to be narrow, of which the driver would have to hold so many rows."""
        with self._lock:
            why = f"{rows:,} rows of a batch, of {self.most_rows:,} that the driver may hold (limits.batch_rows)"
            self.last[stage] = WayChoice(Way.WIDE, why)
        return Way.WIDE

    def expected(self, stage: str, rows: int, changed_rows: int) -> dict[Way, float]:
        """The seconds of a job in each way; `rows` are those that the query as written reads."""
        with self._lock:
            learnt = self._learnt.get(stage, StageCosts())
        return {way: learnt.estimate(way, rows if way is Way.RECOMPUTE else changed_rows, rows) for way in Way}

    def measured(self, stage: str, way: Way, rows: int, changed_rows: int) -> float | None:
        """The seconds of a job as batches of that stage and way took; None where there were none."""
        with self._lock:
            fit = self._learnt.get(stage, StageCosts()).fits.get(way)
        taken = rows if way is Way.RECOMPUTE else changed_rows
        return None if fit is None else fit.line(expected(way, rows)).seconds(taken)

    def average(self, stage: str, way: Way, rows: float) -> float | None:
        """The seconds that batches of that stage and way took, in proportion to their rows; None where there were none.

        Nothing is expected beforehand: what was measured once counts as it was.
        """
        with self._lock:
            fit = self._learnt.get(stage, StageCosts()).fits.get(way)
        return None if fit is None else fit.seconds / max(fit.weight, fit.rows) * max(1.0, rows)

    def took(self, stage: str, way: Way, rows: int, seconds: float, *, scanned: int) -> None:
        """Tells what a batch took; of a recomputation the rows are those that the query read, which `scanned` is of any batch."""
        with self._lock:
            self._learnt[stage] = self._learnt.get(stage, StageCosts()).with_one(way, rows, seconds, scanned)

    def keep(self) -> None:
        """Writes what was learnt, if there is something new."""
        with self._lock:
            learnt = dict(self._learnt)
        if self._file is None or learnt == self._written:
            return
        try:
            replace_checked(self._file, json.dumps({stage: found.body() for stage, found in learnt.items()}).encode())
            self._written = learnt
        except OSError as error:
            _LOGGER.warning("costs are learnt again after the next opening: %s: %s", self._file, error.strerror)


def _read(file: Path) -> dict[str, StageCosts]:
    """What the file holds; nothing if it is missing or damaged."""
    try:
        return {stage: StageCosts.from_body(body) for stage, body in json.loads(read_checked(file)).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
