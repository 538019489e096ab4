"""The simulator: the scaler over a warehouse whose work takes what was measured on a real one.

Every step of the simulated time some rows come, each part works on its rows with the tasks that it has, and the scaler is asked
with what that took. Work of all pools shares the slots of the executors that are there; one that was asked for is there after the
time that an executor takes to start, and those kept ready are there at once.

    rows ──► extract ──► queue ──► transform ──► load
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headgate.config.scaling import ScalingSettings
from headgate.scaling.executors import pool_sizes
from headgate.scaling.policies.buffer import BufferFill, BufferObservation, buffer, spills
from headgate.scaling.policies.extract import SourceReading
from headgate.scaling.scaler import Observation, Scaler, SizeChange, Sized
from headgate.scaling.sizing import PARTS, Part, Sizing

BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one task: for each run of a part, and for each row."""

    extract: tuple[float, float]
    transform: tuple[float, float]
    load: tuple[float, float]
    query_seconds: float = 0.0
    """Of one query, with one task and no other query."""
    row_bytes: int = 100
    start_seconds: float = 5.0
    """Until an executor that was asked for can work."""


@dataclass(frozen=True, slots=True)
class BufferSpeeds:
    """One buffer: what it may use, and how fast its disk is."""

    memory_bytes: float
    disk_bytes: float
    disk_bytes_a_second: float


@dataclass(frozen=True, slots=True)
class SimulatedMoment:
    """The warehouse after one step."""

    at: float
    """Seconds since the beginning."""
    rate: float
    extract_s: float
    transform_s: float
    load_s: float
    query_s: float
    queue_rows: float
    executors: int
    sizes: dict[Sized, int]
    changes: tuple[SizeChange, ...]

    @property
    def total_s(self) -> float:
        """From reading a row until it is loaded."""
        return self.extract_s + self.transform_s + self.load_s


@dataclass
class _RunningBatch:
    """A batch under way."""

    began: float
    rows: float
    fixed_left: float
    """Seconds that it takes however many tasks it has."""
    work_left: float
    """Seconds of tasks."""


class SimulatedExecutors:
    """Executors that are there some seconds after they were asked for, and gone at once; implements `ExecutorSupply`."""

    most: int | None = None

    def __init__(self, slots: int, start_seconds: float, count: int) -> None:
        self.slots = slots
        self._start_seconds = start_seconds
        self._asked = count
        self._starting: list[float] = []
        """When executors that were asked for will be there."""
        self.at = 0.0
        """The simulated time."""

    @property
    def running(self) -> int:
        return self._asked - sum(ready > self.at for ready in self._starting)

    def want(self, count: int) -> None:
        still = sorted(ready for ready in self._starting if ready > self.at)
        # Those that are not there yet are called off first.
        still = still[: max(0, len(still) - max(0, self._asked - count))]
        self._starting = still + [self.at + self._start_seconds] * max(0, count - self._asked)
        self._asked = count


@dataclass
class Simulation:
    """A warehouse with one source; `sessions` queries run all the time."""

    settings: ScalingSettings
    costs: Costs
    slots: int = 1
    queue_bytes: int = 4 << 30
    """limits.stream_bytes"""
    queue_rows: float = 0.0

    _batch: _RunningBatch | None = None

    def __post_init__(self) -> None:
        self.scaler = Scaler(self.settings, self.slots)
        self._supply = SimulatedExecutors(self.slots, self.costs.start_seconds, self.scaler.sizes["executors"])

    def run(
        self,
        rate: Callable[[float], float],
        seconds: float,
        sessions: Callable[[float], int] = lambda at: 0,
        period: float | None = None,
    ) -> Iterator[SimulatedMoment]:
        """Every period, by default that of extraction, until the time is over."""
        period = self.settings.extract.period.total_seconds() if period is None else period
        at = 0.0
        while at < seconds:
            at += period
            yield self._step(at, period, rate(at), sessions(at))

    def _step(self, at: float, period: float, rate: float, sessions: int) -> SimulatedMoment:
        self._supply.at = at
        there = self._supply.running
        tasks = self._tasks(there * self.slots)
        rows, costs = rate * period, self.costs
        extract_s = _took(costs.extract, rows, tasks["extract"])
        self.queue_rows += rows
        done, transform_s = self._transform(at - period, period, tasks["transform"])
        load_s = _took(costs.load, done, tasks["load"])
        query_s = costs.query_seconds * max(1, sessions) / tasks["query"] if sessions else 0.0
        observation = Observation(
            readings=[SourceReading("source", timedelta(seconds=extract_s), self.scaler.sizes["extract"])],
            queues={"source": self.queue_rows * costs.row_bytes / self.queue_bytes},
            rate=rate,
            folds=[timedelta(seconds=load_s)],
            queries=[timedelta(seconds=query_s)] * sessions,
            executors=there,
            slots=self.slots,
        )
        changes = tuple(self.scaler.step(observation, BEGIN + timedelta(seconds=at)))
        self._supply.want(self.scaler.sizes["executors"])
        return SimulatedMoment(
            at, rate, extract_s, transform_s, load_s, query_s, self.queue_rows, there, self.scaler.sizes, changes
        )

    def _transform(self, at: float, period: float, tasks: float) -> tuple[float, float]:
        """Works for a period on batches, one after the other; gives the rows of those that ended, and how long the latest has taken.

        A batch takes all rows that wait when it begins; they wait until it ends, as in a warehouse, where its job counts then.
        """
        fixed, each = self.costs.transform
        done, took, end = 0.0, 0.0, at + period
        while at < end:
            if self._batch is None:
                if self.queue_rows == 0:
                    break
                self._batch = _RunningBatch(at, self.queue_rows, fixed, self.queue_rows * each)
            batch = self._batch
            starting = min(end - at, batch.fixed_left)
            working = min(end - at - starting, batch.work_left / tasks)
            at, batch.fixed_left, batch.work_left = (
                at + starting + working,
                batch.fixed_left - starting,
                batch.work_left - working * tasks,
            )
            took = at - batch.began
            if batch.fixed_left > _NOTHING or batch.work_left > _NOTHING:
                break
            self.queue_rows = max(0.0, self.queue_rows - batch.rows)
            done, self._batch = done + batch.rows, None
        return done, took

    def _tasks(self, slots: int) -> dict[Part, float]:
        """Tasks of each part that really work: slots are shared when all parts together may run more."""
        sizes: dict[Part, int] = {part: self.scaler.sizes[part] for part in PARTS}
        wanted = sum(pool_sizes(sizes).values())
        share = min(1.0, slots / wanted)
        return {part: size * share for part, size in sizes.items()}


def fill_buffers(
    settings: ScalingSettings, speeds: BufferSpeeds, bytes_a_second: float, seconds: int, most: int
) -> Iterator[tuple[float, list[BufferFill]]]:
    """Buffers that nobody empties, second by second: each takes an equal share of what comes. One more is added when the policy
    asks for it."""

    sizing = Sizing(1, most)
    fills = [BufferFill(0.0, 0.0)]
    for second in range(1, seconds + 1):
        share = bytes_a_second / len(fills)
        fills = [_filled(settings, speeds, fill, share) for fill in fills]
        now = BEGIN + timedelta(seconds=second)
        decision = buffer(settings, BufferObservation(sizing, fills), now)
        sizing = sizing.after(decision, now)
        fills += [BufferFill(0.0, 0.0)] * (sizing.size - len(fills))
        yield float(second), fills


def _filled(settings: ScalingSettings, speeds: BufferSpeeds, fill: BufferFill, arriving: float) -> BufferFill:
    memory = fill.memory * speeds.memory_bytes + arriving
    disk = fill.disk * speeds.disk_bytes
    spilling = spills(settings, BufferFill(memory / speeds.memory_bytes, fill.disk, fill.is_spilling))
    written = min(memory, speeds.disk_bytes_a_second) if spilling else 0.0
    return BufferFill(
        min(1.0, (memory - written) / speeds.memory_bytes), (disk + written) / speeds.disk_bytes, spilling
    )


def _took(cost: tuple[float, float], rows: float, tasks: float) -> float:
    fixed, each = cost
    return fixed + rows * each / tasks
