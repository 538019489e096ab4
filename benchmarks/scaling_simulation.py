"""The simulator: the scaler over a warehouse whose work takes what was measured on a real one.

Rows come in commits; a batch takes all rows that wait when it begins, with the tasks that there are then, and they wait until it
ends, as in a warehouse, where its job counts then. The scaler is asked at every tick with what the parts took. Parts that have work
share the slots of the executors that are there; one that was asked for is there after the time that an executor takes to start, and
those kept ready are there at once.

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
TICK_SECONDS = 1.0
"""As often as the scaler of a warehouse is asked."""
COMMITS_A_SECOND = 5
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
    driver_seconds: float = 0.0
    """Of a row of a batch in the driver, however many tasks there are."""
    first_seconds: float = 0.0
    """What the first batch of a fresh process takes beyond that."""


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
    """From the commit of a row until its batch ended: the longest of the batches that ended, or of the one under way."""
    load_s: float
    query_s: float
    lag_s: float
    """How long the oldest row that is in no table yet has waited."""
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

    rows: float
    oldest: float
    """When its first row was committed."""
    tasks: float
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

    _batch: _RunningBatch | None = None
    _waiting: float = 0.0
    """Rows that no batch has taken."""
    _oldest: float = 0.0
    """When the first of them was committed."""
    _first_seconds: float = 0.0
    _unloaded: float = 0.0
    """Rows that were transformed since the last load."""
    _loaded_at: float = 0.0
    _load_s: float = 0.0

    def __post_init__(self) -> None:
        self.scaler = Scaler(self.settings, self.slots)
        self._supply = SimulatedExecutors(self.slots, self.costs.start_seconds, self.scaler.sizes["executors"])
        self._first_seconds = self.costs.first_seconds

    @property
    def queue_rows(self) -> float:
        """Rows that are in no table yet."""
        return self._waiting + (0.0 if self._batch is None else self._batch.rows)

    def run(
        self,
        rate: Callable[[float], float],
        seconds: float,
        sessions: Callable[[float], int] = lambda at: 0,
        tick: float = TICK_SECONDS,
    ) -> Iterator[SimulatedMoment]:
        """Tick by tick until the time is over."""
        for number in range(1, round(seconds / tick) + 1):
            at = number * tick
            yield self._step(at - tick, at, rate(at), sessions(at))

    def _step(self, began: float, at: float, rate: float, sessions: int) -> SimulatedMoment:
        self._supply.at = began
        there, period, costs = self._supply.running, self.settings.extract.period.total_seconds(), self.costs
        tasks = self._tasks(there * self.slots, rate > 0 or self.queue_rows > 0, sessions > 0)
        extract_s = _took(costs.extract, rate * period, tasks["extract"])
        transform_s = self._transform(began, at, rate, tasks["transform"])
        folds = []
        if at - self._loaded_at >= period - _NOTHING:
            self._load_s = _took(costs.load, self._unloaded, tasks["load"])
            folds = [timedelta(seconds=self._load_s)]
            self._loaded_at, self._unloaded = at, 0.0
        query_s = costs.query_seconds * sessions / tasks["query"] if sessions else 0.0
        observation = Observation(
            readings=[SourceReading("source", timedelta(seconds=extract_s), self.scaler.sizes["extract"])],
            queues={"source": self.queue_rows * costs.row_bytes / self.queue_bytes},
            rate=rate,
            folds=folds,
            queries=[timedelta(seconds=query_s)] * sessions,
            executors=there,
            slots=self.slots,
        )
        changes = tuple(self.scaler.step(observation, BEGIN + timedelta(seconds=at)))
        self._supply.at = at
        self._supply.want(self.scaler.sizes["executors"])
        lag, load_s, sizes = self._lag(at), self._load_s, self.scaler.sizes
        return SimulatedMoment(
            at, rate, extract_s, transform_s, load_s, query_s, lag, self.queue_rows, there, sizes, changes
        )

    def _transform(self, began: float, end: float, rate: float, tasks: float) -> float:
        """Takes the commits of a tick and works on batches, one after the other; gives how long a row took, at the longest."""
        longest, count = 0.0, max(1, round((end - began) * COMMITS_A_SECOND))
        for number in range(count):
            at, until = (began + (end - began) * each / count for each in (number, number + 1))
            if rate > 0:
                self._oldest = self._oldest if self._waiting else at
                self._waiting += rate * (end - began) / count
            longest = max(longest, self._work(at, until, tasks))
        return longest or self._lag(end)

    def _work(self, at: float, end: float, tasks: float) -> float:
        longest = 0.0
        while at < end:
            if self._batch is None:
                if self._waiting == 0:
                    break
                rows, (fixed, each) = self._waiting, self.costs.transform
                fixed += self._first_seconds + rows * self.costs.driver_seconds
                self._batch = _RunningBatch(rows, self._oldest, tasks, fixed, rows * each)
                self._waiting = self._first_seconds = 0.0
            batch = self._batch
            starting = min(end - at, batch.fixed_left)
            working = min(end - at - starting, batch.work_left / batch.tasks)
            at += starting + working
            batch.fixed_left -= starting
            batch.work_left -= working * batch.tasks
            if batch.fixed_left > _NOTHING or batch.work_left > _NOTHING:
                break
            self._unloaded += batch.rows
            longest, self._batch = max(longest, at - batch.oldest), None
        return longest

    def _lag(self, at: float) -> float:
        if self._batch is not None:
            return at - self._batch.oldest
        return at - self._oldest if self._waiting else 0.0

    def _tasks(self, slots: int, has_rows: bool, has_queries: bool) -> dict[Part, float]:
        """Tasks of each part that really work: slots are shared when all parts that have work may run more together."""
        sizes: dict[Part, int] = {part: self.scaler.sizes[part] for part in PARTS}
        pools = pool_sizes(sizes)
        wanted = (pools["extract"] + pools["maintenance"]) * has_rows + pools["query"] * has_queries
        share = min(1.0, slots / max(1, wanted))
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
