"""A source table's events as files, for a batch whose events the driver does not hold.

    large transactions     files of the stream log, as they are
    small transactions     frames ──► tasks write their events into files of the batch (`capture.places`)

What the events are (`Kinds`) is known without a look at them, from the footers of the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.cloudpickle import register_pickle_by_value

from headgate.capture import frames, places
from headgate.capture.events import DISTINCT, INCREASING
from headgate.capture.places import spool
from headgate.capture.streamlog import StreamLog
from headgate.dataflow.rules.replica import Kinds
from headgate.delta.events import OBSERVED, OP, TRUNCATE, UNCHANGED, UPSERT
from headgate.errors import CorruptWarehouse, TransientError
from headgate.runtime.spark.scratch import Scratch
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse.changes import footer
from headgate.warehouse.problems import translate
from headgate.warehouse.storage import Folder

for module in (frames, places):
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class EventFiles:
    """Parquet files with the events of a table in the transactions (after, upto] of a log."""

    def __init__(self, log: StreamLog, table: str, after: int, upto: int) -> None:
        self._log = log
        self._table = table
        self._found = log.next_batch(table, after, upto)
        self._spooled: list[str] = []

    def spool(self, schema: pa.Schema, sessions: SparkSessions, folder: Path) -> None:
        """Has executors write the events that lie in frames into files of a new folder."""
        if not self._found.frames:
            return
        folder.mkdir(0o700, parents=True)
        context = sessions.context
        with sessions.gates["transform"].taken() as most:
            shares = self._found.shares(most or context.defaultParallelism)
            # Not through `mapInArrow`: the first use of Spark's Python workers then takes half the time.
            tasks = context.parallelize(enumerate(shares), len(shares))
            if most is not None:
                tasks = tasks.coalesce(most)
            written = tasks.map(partial(spool, str(folder), schema)).collect()
        if problems := [problem for _, problem in written if problem is not None]:
            # Frame after frame, here: the log tells of a damaged one itself.
            for place in self._found.frames:
                self._log.read(self._table, int(place.stamps.positions[0]) - 1, int(place.stamps.positions[-1]))
            raise TransientError(f"an executor could not read the stream log: {problems[0]}", hint="ask again")
        self._spooled = [file for file, _ in written]

    @property
    def files(self) -> list[str]:
        return [*(file.path for file in self._found.files), *self._spooled]

    @cached_property
    def _footers(self) -> list[pq.FileMetaData]:
        with self.damage_named():
            return [footer(file, Folder.at(file)) for file in self.files]

    @cached_property
    def kinds(self) -> Kinds:
        """What the footers tell of the events; what they do not tell may be."""
        unchanged = [known for name, known in _statistics(self._footers) if name.startswith(f"{UNCHANGED}.")]
        operations = [known for name, known in _statistics(self._footers) if name == OP]
        last = max((OBSERVED if known is None else known.max for known in operations), default=UPSERT)
        some_left_out = any(known is None or known.num_values > 0 for known in unchanged)
        return Kinds(some_left_out, truncated=last >= TRUNCATE, observed=last >= OBSERVED)

    def are_distinct(self, key: Collection[str]) -> bool:
        """Whether it is known that no key has two events: they lie in one file in the order of a column of the key, or are one
        transaction whose rows columns of the key tell apart."""
        if len(self.files) == 1 and not set(self._noted(INCREASING)[0]).isdisjoint(key):
            return True
        one_transaction = not self._spooled and len({file.position for file in self._found.files}) == 1
        return one_transaction and all(columns and set(columns) <= set(key) for columns in self._noted(DISTINCT))

    def _noted(self, name: str) -> list[list[str]]:
        """The columns that each file's footer names under a name."""
        return [json.loads((known.metadata or {}).get(name.encode(), b"[]")) for known in self._footers]

    def range_of(self, column: str) -> tuple[int, int] | None:
        """Between which values a column of whole numbers lies; None when the footers do not tell, or some are NULL."""
        lows, highs = [], []
        for name, known in _statistics(self._footers):
            if name == column:
                if known is None or not known.has_min_max or known.null_count != 0:
                    return None
                lows.append(known.min)
                highs.append(known.max)
        return (min(lows), max(highs)) if lows else None

    @contextmanager
    def damage_named(self) -> Iterator[None]:
        """Tells the log of a file of its own that could not be read."""
        try:
            yield
        except Exception as error:
            known = translate(error, Folder.at(self._log.files_folder))
            if isinstance(known, CorruptWarehouse):
                for file in self._found.files:
                    if Path(file.path).name in known.what:
                        raise self._log.lose_file(file.path, known.what).error() from error
            raise


Events = tuple[str, int, int, str]
"""Of which table, in the positions (after, upto], and with which columns."""


class SharedEvents:
    """The events that batches have in files. Each stage has a batch of its own: what the replica had spooled, its dimensions
    take after it. So of each table the latest stay until there are others."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._lock = Lock()
        self._shared: dict[Events, _Shared] = {}

    def lend(self, place: Events, make: Callable[[Path], EventFiles]) -> EventFiles:
        """The events, until they are given back; `make` spools them into a new folder, unless that was done."""
        with self._lock:
            shared = self._shared.setdefault(place, _Shared())
            shared.batches += 1
        with shared.lock:
            if shared.files is None:
                folder = self._scratch.new()
                shared.folders.append(folder)
                shared.files = make(folder)
        with self._lock:
            self._forget(lambda known: known != place and known[0] == place[0])
        return shared.files

    def give_back(self, places: Iterable[Events], *, failed: bool) -> None:
        """Of a batch that failed they are not kept: perhaps it could not read them."""
        with self._lock:
            for place in places:
                shared = self._shared[place]
                shared.batches -= 1
                shared.failed |= failed
            self._forget(lambda known: self._shared[known].failed)

    def _forget(self, chosen: Callable[[Events], bool]) -> None:
        for place in [known for known, shared in self._shared.items() if not shared.batches and chosen(known)]:
            self._scratch.done(self._shared.pop(place).folders)


@dataclass
class _Shared:
    files: EventFiles | None = None
    folders: list[Path] = field(default_factory=list)
    batches: int = 0
    """How many have them."""
    failed: bool = False
    lock: Lock = field(default_factory=Lock)


def _statistics(footers: Iterable[pq.FileMetaData]) -> Iterator[tuple[str, pq.Statistics | None]]:
    """Of every column chunk its column's path and what is known of its values."""
    for metadata in footers:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for place in range(metadata.num_columns):
                chunk = group.column(place)
                yield chunk.path_in_schema, chunk.statistics
