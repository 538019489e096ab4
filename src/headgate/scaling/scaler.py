"""The scaler: asks every part's policy, and remembers the sizes, since when they hold, and why.

It has no clock, no threads and no Spark: whoever has an observation asks it for the next sizes and applies them. The warehouse
and the simulator use it in the same way.

    observation ──► policies ──► sizes of the parts ──► pools of tasks ──► executors
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from headgate.config.scaling import ScalingSettings
from headgate.errors import DefiniteError
from headgate.scaling.executors import ExecutorsObservation, executors, pool_sizes
from headgate.scaling.policies.buffer import BufferFill, BufferObservation, buffer
from headgate.scaling.policies.extract import ExtractObservation, SourceReading, extract
from headgate.scaling.policies.switch import SwitchObservation, switch
from headgate.scaling.policies.timed import TimedObservation, load, query
from headgate.scaling.policies.transform import TransformObservation, transform
from headgate.scaling.sizing import PARTS, ZERO, Decision, Part, Sizing

Sized = Part | Literal["executors"]
SIZED: tuple[Sized, ...] = (*PARTS, "executors")
SINGLE: frozenset[Part] = frozenset({"buffer", "switch"})
"""Parts of which a warehouse has one each: the streams on its disk, and the cutter. They say so when they limit."""
_SETTABLE = ", ".join(part for part in SIZED if part not in SINGLE)
REMEMBERED = 200
"""Changes that are shown."""
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the parts did since the observation before."""

    readings: Sequence[SourceReading] = ()
    queues: Mapping[str, float] = field(default_factory=dict)
    buffers: Sequence[BufferFill] = ()
    rate: float = 0.0
    """Rows a second that went into jobs."""
    folds: Sequence[timedelta] = ()
    queries: Sequence[timedelta] = ()
    executors: int = 1
    """Executors that Spark has."""
    slots: int = 1
    """Tasks that one executor can run at a time."""


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A part became larger or smaller."""

    at: datetime
    part: Sized
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartSize:
    """A part at one moment."""

    size: int
    most: int
    load: float | None
    """What it had to do at its latest decision, as a share of its limit; None when nothing was observed."""
    reason: str
    """Of that decision."""
    is_limiting: bool
    fixed: bool
    """A user has set the size; its policy is not asked."""


class Scaler:
    """One thread uses it."""

    def __init__(self, settings: ScalingSettings, slots: int) -> None:
        self.settings = settings
        most = settings.executors.max * slots
        self._sizings: dict[Sized, Sizing] = {part: Sizing(1, 1 if part in SINGLE else most) for part in PARTS}
        limits = settings.executors
        self._sizings["executors"] = Sizing(limits.min, limits.max, limits.min)
        self._decisions: dict[Sized, Decision] = {}
        self._fixed: dict[Sized, int] = {}
        self._folds: deque[timedelta] = deque(maxlen=10)
        self._queries: deque[timedelta] = deque(maxlen=10)
        self._asked_at: datetime | None = None
        self._used = ZERO
        """Of today: executors times time."""
        self.changes: deque[SizeChange] = deque(maxlen=REMEMBERED)
        """The latest, in order."""
        self.changed: Counter[Sized] = Counter()
        """By part how often its size has changed since the start."""

    @property
    def sizes(self) -> dict[Sized, int]:
        return {part: sizing.size for part, sizing in self._sizings.items()}

    @property
    def executor_hours(self) -> float:
        """Of today, UTC."""
        return self._used / _HOUR

    def parts(self) -> dict[Sized, PartSize]:
        """Every part as it is."""
        found: dict[Sized, PartSize] = {}
        for part, sizing in self._sizings.items():
            decision = self._decisions.get(part, Decision(0, "nothing was observed yet"))
            found[part] = PartSize(
                sizing.size, sizing.most, decision.load, decision.reason, decision.is_limiting, part in self._fixed
            )
        return found

    def fix(self, part: Sized, size: int | None) -> None:
        """Sets a size by hand, from the next step on; None gives it back to its policy."""
        sizing = self._sizings[part]
        if part in SINGLE:
            raise DefiniteError(f"a warehouse has one {part}: it has no size to set", hint=f"set one of {_SETTABLE}")
        if size is None:
            self._fixed.pop(part, None)
        elif not sizing.least <= size <= sizing.most:
            raise DefiniteError(
                f"{part} cannot have the size {size}", hint=f"give a size from {sizing.least} to {sizing.most}, or auto"
            )
        else:
            self._fixed[part] = size

    def resume(self, changes: Sequence[SizeChange], hours: float) -> None:
        """What an earlier process has changed, and the executor hours that it has used today."""
        self.changes.extend(changes)
        self._used = hours * _HOUR

    def step(self, observation: Observation, now: datetime) -> list[SizeChange]:
        """Decides about every part, executors last; gives what changed."""
        self._count_hours(observation.executors, now)
        self._folds.extend(observation.folds)
        self._queries.extend(observation.queries)
        decided: list[SizeChange] = []
        for part in SIZED:
            sizing = self._sizings[part]
            decided_here = self._decide(part, sizing, observation, now)
            fixing = self._fixing(part, sizing)
            decision = decided_here if fixing is None else fixing.at(decided_here.load)
            self._decisions[part] = decision
            self._sizings[part] = sizing.after(decision, now)
            if decision.change:
                change = SizeChange(now, part, sizing.size, sizing.size + decision.change, decision.reason)
                decided.append(change)
                # How long it took with another size says nothing any more.
                if part in ("load", "query"):
                    (self._folds if part == "load" else self._queries).clear()
        self.changes.extend(decided)
        self.changed.update(change.part for change in decided)
        return decided

    def _fixing(self, part: Sized, sizing: Sizing) -> Decision | None:
        wanted = self._fixed.get(part)
        return None if wanted is None else Decision(wanted - sizing.size, "a user set it")

    def _decide(self, part: Sized, sizing: Sizing, observation: Observation, now: datetime) -> Decision:
        settings = self.settings
        match part:
            case "extract":
                return extract(settings, ExtractObservation(sizing, observation.readings), now)
            case "transform":
                return transform(settings, TransformObservation(sizing, observation.queues, observation.rate), now)
            case "buffer":
                return buffer(settings, BufferObservation(sizing, observation.buffers), now)
            case "switch":
                return switch(settings, SwitchObservation(sizing, observation.rate), now)
            case "load":
                return load(settings, TimedObservation(sizing, tuple(self._folds)), now)
            case "query":
                return query(settings, TimedObservation(sizing, tuple(self._queries)), now)
            case "executors":
                sizes: dict[Part, int] = {each: self._sizings[each].size for each in PARTS}
                seen = ExecutorsObservation(sizing, pool_sizes(sizes), observation.slots, self.executor_hours)
                return executors(settings, seen, now)

    def _count_hours(self, count: int, now: datetime) -> None:
        before, self._asked_at = self._asked_at, now
        if before is None or now <= before:
            return
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if before < midnight:
            self._used, before = ZERO, midnight
        self._used += count * (now - before)
