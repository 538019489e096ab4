"""First loads in the order of who waits: one thread per source reads group after group of tables, while queries are answered.

    queries that wait ──► choose_load (pure, says why) ──► source.load(group) ──► the tables' first rows are in the log

A group is read as of one moment and enters whole. What is cut short, by a crash or by the source, is read again; groups that have
entered are not.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headgate.capture.source import LoadingSource, Progress, Source
from headgate.errors import DefiniteError, HeadgateError, TransientError, UnknownTable
from headgate.runtime.signal import Signal
from headgate.runtime.sources.progress import describe

_LOGGER = logging.getLogger(__name__)
SMALL_BYTES = 32 << 20
"""What is read as one group."""
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
) -> LoadChoice:
    """Which of the unloaded tables, given with their bytes, are read next.

    Tables that a dimension keeps the history of come before all others, in one group: a fact that is captured while they are read
    would find later versions than it should. Then those that someone put first, those that most queries wait for, and small ones
    before large ones. Small tables are read together, up to so many bytes.
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
    for name in rest:
        if held + unloaded[name] > room:
            break
        taken.append(name)
        held += unloaded[name]
    return LoadChoice(tuple(taken), reason if len(taken) == len(group) else f"{reason}; small tables are read with it")


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


class Loads:
    """Works from `start` until `close`; may be asked from any thread. Tables are named in full."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        signal: Signal,
        with_history: Callable[[], Collection[str]],
    ) -> None:
        """`with_history` gives the tables that dimensions keep the history of."""
        self._sources = sources
        self._signal = signal
        self._with_history = with_history
        self._lock = threading.Lock()
        self._waiting: Counter[str] = Counter()
        self._first: list[str] = []
        self._choices: dict[str, LoadChoice] = {}
        self._troubles: dict[str, HeadgateError] = {}
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for source in self._sources.values():
            if isinstance(source, LoadingSource) and unloaded_of(source):
                thread = threading.Thread(target=self._run, args=(source,), name=f"load {source.name}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(_ENDING_SECONDS)

    @contextmanager
    def awaited(self, tables: Collection[str]) -> Iterator[None]:
        """Inside the block a query waits for these tables."""
        with self._lock:
            self._waiting.update(tables)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.subtract(tables)

    def put_first(self, table: str) -> None:
        """Has a table read before others that wait; one that is being read goes on."""
        name, _, short = table.partition(".")
        source = self._sources.get(name)
        if source is None or short not in source.tables:
            known = [f"{each.name}.{found}" for each in self._sources.values() for found in unloaded_of(each)]
            raise UnknownTable(
                f"there is no source table {table}", hint=f"these are not loaded yet: {', '.join(known) or 'none'}"
            )
        with self._lock:
            self._first = [table, *(each for each in self._first if each != table)]

    def finish(self) -> None:
        """Waits until every table has its first rows, or cannot get them now; raises why."""
        found: list[HeadgateError] = []

        def done() -> bool:
            with self._lock:
                found[:] = self._troubles.values()
            return bool(found) or self._closed.is_set() or not any(map(unloaded_of, self._sources.values()))

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
                        table: count for table in unloaded if (count := self._waiting.get(f"{name}.{table}", 0)) > 0
                    }
                found[name] = SourceLoad(
                    unloaded,
                    () if choice is None else choice.tables,
                    "" if choice is None else choice.reason,
                    source.status.loading,
                    trouble,
                    waiting,
                )
        return found

    def missing(self, tables: Collection[str]) -> NotLoaded | None:
        """What tables without their first rows wait for; None where all have them."""
        told = []
        for name, load in self.status.items():
            lacking = [table for table in load.unloaded if f"{name}.{table}" in tables]
            if not lacking:
                continue
            names = ", ".join(f"{name}.{table}" for table in lacking)
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
        while not self._closed.is_set() and (names := unloaded_of(source)):
            choice = self._choose(source, names)
            _LOGGER.info("loading: source=%s tables=%s: %s", source.name, ",".join(choice.tables), choice.reason)
            trouble: HeadgateError | None = None
            try:
                source.load(choice.tables, self._closed.is_set)
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

    def _choose(self, source: LoadingSource, names: Collection[str]) -> LoadChoice:
        begins = f"{source.name}."
        loads = source.first_loads
        history = {name.removeprefix(begins) for name in self._with_history() if name.startswith(begins)}
        with self._lock:
            first = [name.removeprefix(begins) for name in self._first if name.startswith(begins)]
            waiting = {name: self._waiting.get(begins + name, 0) for name in names}
            sizes = {name: loads[name].bytes for name in names}
            choice = choose_load(sizes, history, first, waiting, SMALL_BYTES)
            self._choices[source.name] = choice
        return choice


def unloaded_of(source: Source) -> tuple[str, ...]:
    """Tables of a source whose first rows are still to be read."""
    return tuple(name for name, load in source.first_loads.items() if load.entered_at is None)
