"""First loads in the order of who waits: one thread per source reads group after group, while queries are answered.

    queries that wait ──► choose_load (pure, says why) ──► source.load(tables) ──► the tables' first rows are in the log
                          choose_ranges                ──► RangeLoads          ──► rows of some ranges are in a table's base

A group, of tables or of ranges of one table, is read as of one moment and enters whole. What is cut short, by a crash or by the
source, is read again; groups that have entered are not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.capture.source import DistributingSource, LoadingSource, Progress, RangedSource, Source
from headgate.errors import DefiniteError, HeadgateError, TransientError, UnknownTable
from headgate.ranges.key_set import ALL, KeySet
from headgate.ranges.range_map import Ranges
from headgate.runtime.signal import Signal
from headgate.runtime.sources.progress import OnProgress, describe
from headgate.runtime.sources.range_loads import RangeLoads
from headgate.runtime.sources.range_progress import RangePace, RangesLoaded
from headgate.runtime.stages.replica_stage import ReplicaStage

_LOGGER = logging.getLogger(__name__)
SMALL_BYTES = 32 << 20
"""What is read as one group."""
HELD_SECONDS = 20.0
"""How long ranges are read as of one moment before a later one is taken: what the source holds for it stays small."""
_RETRY_SECONDS = 2.0
_ENDING_SECONDS = 30.0


class NotLoaded(TransientError):
    """Tables do not have their first rows yet."""


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """The tables of a source that are read next, together, and why."""

    tables: tuple[str, ...]
    reason: str


def choose_load(
    unloaded: Mapping[str, int],
    with_history: Collection[str],
    first: Sequence[str],
    waiting: Mapping[str, int],
    room: int,
    alone: Collection[str] = (),
) -> LoadChoice:
    """Which of the unloaded tables, given with their bytes, are read next.

    Tables that a dimension keeps the history of come before all others, in one group: a fact that is captured while they are read
    would find later versions than it should. Then those that someone put first, those that most queries wait for, and small ones
    before large ones. Small tables are read together, up to so many bytes; one that is read range by range is read alone.
    """
    place = {name: number for number, name in enumerate(first)}

    def order(name: str) -> tuple[int, int, int, str]:
        return place.get(name, len(place)), -waiting.get(name, 0), unloaded[name], name

    historic = sorted((name for name in unloaded if name in with_history), key=order)
    others = sorted((name for name in unloaded if name not in with_history), key=order)
    group, rest = (historic, others) if historic else (others[:1], others[1:])
    if historic:
        reason = "a dimension keeps their history"
    elif group[0] in place:
        reason = f"{group[0]} was put first"
    elif waiting.get(group[0], 0):
        reason = f"{waiting[group[0]]} queries wait for {group[0]}"
    else:
        reason = f"{group[0]} is the smallest that is left"
    held = sum(unloaded[name] for name in group)
    taken = list(group)
    for name in () if group[0] in alone else [name for name in rest if name not in alone]:
        if held + unloaded[name] > room:
            break
        taken.append(name)
        held += unloaded[name]
    return LoadChoice(tuple(taken), reason if len(taken) == len(group) else f"{reason}; small tables are read with it")


def choose_ranges(unread: Collection[int], first: Collection[int], waiting: Mapping[int, int], most: int) -> Ranges:
    """Which of the unread ranges of a table are read next, at most so many: those that someone put first, those that most queries
    wait for, and then one after another."""
    return frozenset(sorted(unread, key=lambda each: (each not in first, -waiting.get(each, 0), each))[:most])


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """What a source still has to read, at one moment."""

    unloaded: tuple[str, ...]
    reading: tuple[str, ...]
    """The tables of the group that is being read ..."""
    reason: str
    """... and why it is this one."""
    progress: Progress | None
    trouble: HeadgateError | None
    """What the loader is trying to get over."""
    waiting: Mapping[str, int]
    """Per table how many queries wait for it."""
    ranges: Mapping[str, RangesLoaded] = field(default_factory=dict)
    """Of tables that are loaded range by range."""


class Loads:
    """Works from `start` until `close`; may be asked from any thread. Tables are named in full."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        signal: Signal,
        with_history: Callable[[], Collection[str]],
        replicas: Mapping[str, ReplicaStage],
        range_loads: RangeLoads,
        progress: OnProgress | None = None,
    ) -> None:
        """`with_history` gives the tables that dimensions keep the history of; `progress` hears how far ranges are read."""
        self._progress = progress
        self._paces: dict[str, RangePace] = {}
        self._replicas = replicas
        self._range_loads = range_loads
        self._sources = sources
        self._signal = signal
        self._with_history = with_history
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, KeySet]] = []
        """Tables, and keys of them, that queries wait for: one for each query and table."""
        self._first: list[tuple[str, KeySet]] = []
        self._choices: dict[str, LoadChoice] = {}
        self._troubles: dict[str, HeadgateError] = {}
        self._closed = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def start(self) -> None:
        """Loads what is to be loaded; may be called again when more has come to that."""
        for name, source in self._sources.items():
            with self._lock:
                running = self._threads.get(name)
                if not isinstance(source, LoadingSource) or not self._left(source) or self._closed.is_set():
                    continue
                if running is None or not running.is_alive():
                    thread = threading.Thread(target=self._run, args=(source,), name=f"load {name}", daemon=True)
                    self._threads[name] = thread
                    thread.start()

    def close(self) -> None:
        self._closed.set()
        for thread in list(self._threads.values()):
            thread.join(_ENDING_SECONDS)

    @contextmanager
    def awaited(self, tables: Mapping[str, KeySet]) -> Iterator[None]:
        """Inside the block a query waits for these tables, or for those of their rows that have the keys."""
        with self._lock:
            self._waiting += tables.items()
        try:
            yield
        finally:
            with self._lock:
                for each in tables.items():
                    self._waiting.remove(each)

    def put_first(self, table: str, keys: KeySet = ALL) -> None:
        """Has a table, or the ranges of it that hold some keys, read before others that wait; what is being read goes on."""
        name, _, short = table.partition(".")
        source = self._sources.get(name)
        if source is None or short not in source.tables:
            known = [f"{each.name}.{found}" for each in self._sources.values() for found in unloaded_of(each)]
            raise UnknownTable(
                f"there is no source table {table}", hint=f"these are not loaded yet: {', '.join(known) or 'none'}"
            )
        with self._lock:
            self._first = [(table, keys), *(each for each in self._first if each[0] != table)]

    def finish(self) -> None:
        """Waits until every table has its first rows, or cannot get them now; raises why."""
        found: list[HeadgateError] = []

        def done() -> bool:
            with self._lock:
                found[:] = self._troubles.values()
            return bool(found) or self._closed.is_set() or not any(map(self._left, self._sources.values()))

        self._signal.wait_until(done)
        if found:
            raise found[0]

    @property
    def status(self) -> dict[str, SourceLoad]:
        """The sources that have tables without rows."""
        found = {}
        for name, source in self._sources.items():
            unloaded = unloaded_of(source)
            if unloaded:
                with self._lock:
                    choice, trouble = self._choices.get(name), self._troubles.get(name)
                    waiting = {
                        table: count for table in unloaded if (count := len(self._keys_awaited(f"{name}.{table}")))
                    }
                found[name] = SourceLoad(
                    unloaded,
                    () if choice is None else choice.tables,
                    "" if choice is None else choice.reason,
                    source.status.loading,
                    trouble,
                    waiting,
                    {
                        table: self._ranges_loaded(stage)
                        for table in unloaded
                        if (stage := self._by_range(name, table)) is not None
                    },
                )
        return found

    def _left(self, source: Source) -> tuple[str, ...]:
        """Tables of a source that the loader has something to do for."""
        unloaded = unloaded_of(source)
        ranged = [stage for stage in list(self._replicas.values()) if stage.source is source and stage.by_range]
        others = (stage.table for stage in ranged if stage.table not in unloaded and stage.unread)
        problems = source.problems
        return tuple(name for name in (*unloaded, *others) if name not in problems)

    def _keys_awaited(self, table: str) -> list[KeySet]:
        """Called with the lock held."""
        return [keys for name, keys in self._waiting if name == table]

    def _by_range(self, source: str, table: str) -> ReplicaStage | None:
        stage = self._replicas.get(f"{source}.{table}")
        return stage if stage is not None and stage.by_range else None

    def _ranges_awaited(self, stage: ReplicaStage) -> Counter[int]:
        with self._lock:
            awaited = self._keys_awaited(stage.name)
        return Counter(number for keys in awaited for number in stage.target.holding(keys))

    def _ranges_loaded(self, stage: ReplicaStage) -> RangesLoaded:
        with self._range_loads.lock:
            unread, ranges, waiting = stage.unread, stage.target.range_map, self._ranges_awaited(stage)
        awaited = tuple(ranges.name(number) for number in sorted(waiting.keys() & unread))
        pace = self._paces.get(stage.name)
        return RangesLoaded(
            ranges.count,
            ranges.count - len(unread),
            awaited,
            stage.target.main.rows,
            None if pace is None else pace.rate,
            None if pace is None else pace.remaining(len(unread)),
        )

    def _lacks(self, stage: ReplicaStage, keys: KeySet) -> bool:
        with self._range_loads.lock:
            return stage.lacks(keys)

    def missing(self, tables: Mapping[str, KeySet]) -> NotLoaded | None:
        """What tables without their first rows, or the first rows that have some keys, wait for; None where all are there."""
        told = []
        for name, load in self.status.items():
            lacking = [
                table
                for table in load.unloaded
                if f"{name}.{table}" in tables
                and ((stage := self._by_range(name, table)) is None or self._lacks(stage, tables[f"{name}.{table}"]))
            ]
            if not lacking:
                continue
            names = ", ".join(
                f"{name}.{table} ({load.ranges[table]})" if table in load.ranges else f"{name}.{table}"
                for table in lacking
            )
            if load.trouble is not None:
                told.append(f"{names} cannot be loaded now: {load.trouble.what}")
            elif not set(lacking).isdisjoint(load.reading):
                how_far = "" if load.progress is None else f": {describe(name, load.progress)}"
                told.append(f"{names} is being loaded{how_far}")
            else:
                told.append(f"{names} is not loaded yet, {len(load.unloaded) - len(lacking)} other tables wait too")
        if not told:
            return None
        return NotLoaded("; ".join(told), hint="ask again when it is loaded; `headgate load` shows how far that is")

    def _run(self, source: LoadingSource) -> None:
        while not self._closed.is_set() and (names := self._left(source)):
            choice = self._choose(source, names)
            _LOGGER.info("loading: source=%s tables=%s: %s", source.name, ",".join(choice.tables), choice.reason)
            trouble: HeadgateError | None = None
            try:
                stage = self._by_range(source.name, choice.tables[0])
                if stage is None:
                    source.load(choice.tables, self._closed.is_set)
                else:
                    self._load_ranges(stage)
            except DefiniteError as error:
                # The source has stopped the table, and tells so to whoever asks for it.
                _LOGGER.warning("a table cannot be loaded: source=%s: %s", source.name, error)
            except HeadgateError as error:
                trouble = error
            except Exception as error:
                _LOGGER.exception("loading failed and is tried again: source=%s", source.name)
                trouble = TransientError(f"loading failed: {type(error).__name__}: {error}")
            with self._lock:
                self._choices.pop(source.name, None)
                if trouble is None:
                    self._troubles.pop(source.name, None)
                else:
                    self._troubles[source.name] = trouble
            self._signal.notify()
            if trouble is not None and not self._closed.wait(_RETRY_SECONDS):
                _LOGGER.info("loading is tried again: source=%s: %s", source.name, trouble)

    def _load_ranges(self, stage: ReplicaStage) -> None:
        """Reads ranges of a table, as of one moment, for as long as its source should hold that; when all have been read, the source
        hears of it."""
        assert isinstance(stage.source, RangedSource)
        if not stage.unread:
            stage.source.loaded(stage.table)
            return
        load = stage.source.first_loads.get(stage.table)
        if load is not None and load.entered_at is not None:
            # Its shape changed, or somebody had it read whole.
            self._range_loads.pass_over(stage, load.entered_at)
            return
        if isinstance(stage.source, DistributingSource):
            stage.source.distribute(stage.table, self._closed.is_set)
        pace, until = self._paces.setdefault(stage.name, RangePace()), time.monotonic() + HELD_SECONDS
        with self._range_loads.reading(stage, self._closed.is_set) as take:
            while stage.unread and self._is_next(stage):
                ranges = self._next_ranges(stage)
                pace.took(take(ranges), len(ranges))
                found = self._ranges_loaded(stage)
                _LOGGER.info("loaded ranges: table=%s rows=%s: %s", stage.name, found.rows, found)
                if self._progress is not None:
                    self._progress(stage.source.name, found.progress(stage.table))
                self._signal.notify()
                if time.monotonic() > until:
                    break

    def _is_next(self, stage: ReplicaStage) -> bool:
        """Whether nothing else of the source is to be read before the table."""
        source = stage.source
        assert isinstance(source, LoadingSource)
        left = self._left(source)
        return not self._closed.is_set() and stage.table in left and stage.table in self._choose(source, left).tables

    def _next_ranges(self, stage: ReplicaStage) -> Ranges:
        """Those that somebody waits for or put first, as many as are read at the same time; without such, twice as many.

        Before anything is read, few: whoever comes next waits for them, and executors have to start.
        """
        awaited = self._ranges_awaited(stage)
        with self._lock:
            first = frozenset(
                number
                for name, keys in self._first
                if name == stage.name and keys != ALL
                for number in stage.target.holding(keys)
            )
        unread = stage.unread
        is_begun = self._paces[stage.name].rate is not None
        most = self._range_loads.most * (1 if not is_begun or (awaited.keys() | first) & unread else 2)
        return choose_ranges(unread, first, awaited, most)

    def _choose(self, source: LoadingSource, names: Collection[str]) -> LoadChoice:
        begins = f"{source.name}."
        loads = source.first_loads
        history = {name.removeprefix(begins) for name in self._with_history() if name.startswith(begins)}
        with self._lock:
            first = [name.removeprefix(begins) for name, _ in self._first if name.startswith(begins)]
            waiting = {name: len(self._keys_awaited(begins + name)) for name in names}
            sizes = {name: loads[name].bytes if name in loads else 0 for name in names}
            alone = {name for name in names if self._by_range(source.name, name) is not None}
            choice = choose_load(sizes, history - alone, first, waiting, SMALL_BYTES, alone)
            self._choices[source.name] = choice
        return choice


def unloaded_of(source: Source) -> tuple[str, ...]:
    """Tables of a source whose first rows are still to be read."""
    return tuple(name for name, load in source.first_loads.items() if load.entered_at is None)
