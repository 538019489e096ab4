"""The contract of a source: what capture delivers and what the rest of headgate may ask of it.

A source appends whole transactions to its stream log, in commit order, from threads of its own. Positions grow with
commit order; a position that `sample` returned is captured once the log (or the source's own progress) has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from pyspark.sql.types import StructType

from headgate.capture.loss import Loss
from headgate.capture.queue_status import QueueStatus
from headgate.capture.ranges import Read
from headgate.capture.streamlog import StreamLog
from headgate.config.gears import Gear
from headgate.errors import HeadgateError
from headgate.ranges.key_set import KeySet, Value


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a source. Its key columns are never NULL and tell its rows apart; without a key rows are only added."""

    name: str
    schema: StructType
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a source stood: everything that it acknowledged before `at` lies at or below `position`."""

    at: datetime
    """On headgate's clock, read before the position was asked for."""
    position: int
    clock_offset: timedelta
    """The source's clock minus headgate's."""
    clock_error: timedelta
    """How far the offset may be off, either way."""


@dataclass(frozen=True, slots=True)
class SourceFreshness:
    """How far some copy of a source's history goes: it holds all that was acknowledged before `at`, on headgate's clock."""

    position: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a source's capture can promise; receipts name what it cannot."""

    deletes: bool
    transaction_boundaries: bool
    intermediate_versions: bool
    """Every version of a row is seen, also when a later one follows quickly."""
    commit_times: bool


@dataclass(frozen=True, slots=True)
class TableProblem:
    """Why a table's changes cannot be followed from this position on; until it is solved they are kept raw."""

    position: int
    what: str
    hint: str | None
    reread: bool = False
    """Capture reads the table whole by itself; until that is done no job may hold what comes from this position on."""

    def told_for(self, table: str) -> TableProblem:
        """The problem with the whole remedy; `table` is the name that SQL has for the table."""
        remedy = f"`headgate refresh --table {table}` reads the table whole again; history is kept"
        return replace(self, hint=f"{self.hint}; then {remedy}" if self.hint else remedy)


def lost_tables(tables: Iterable[str], loss: Loss | None) -> dict[str, TableProblem]:
    """What a loss in the stream log means for the source's tables: none of them can be followed across it."""
    return {} if loss is None else {table: TableProblem(loss.after + 1, str(loss), None) for table in tables}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reading of whole tables has got."""

    rows: int
    estimated: int
    remaining: timedelta | None
    """Unknown before the first rows are there."""
    is_done: bool = False
    table: str | None = None
    """The one whose rows came last; several are read at a time."""
    rate: float | None = None
    """Rows a second so far."""


@dataclass(frozen=True, slots=True)
class FirstLoad:
    """How far a table is whose first rows are read beside the stream, while the log takes its changes already.

    The rows are as the source had them at `read_at`. They enter the log at `entered_at`, behind changes that came meanwhile: of
    these, the ones up to `read_at` are in the rows already, and the later ones belong behind the rows.
    """

    read_at: int | None = None
    """None until reading has begun."""
    entered_at: int | None = None
    """None until all rows are in the log."""
    bytes: int = 0
    """About what the source has."""


NO_LOADS: Mapping[str, FirstLoad] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source at one moment, for those who look after it."""

    captured: SourceFreshness
    """How far the stream log goes."""
    log_bytes: int
    """What the stream log holds because some table has not taken it yet ..."""
    log_limit: int | None
    """... and may hold before jobs are run because of that, and then capture slows down."""
    problems: Mapping[str, TableProblem]
    """Tables that cannot be followed any more."""
    trouble: BaseException | None = None
    """What capture is trying to get over, or what stopped it."""
    gear: Gear | None = None
    """The pace of capture; None while the source is not captured, or needs no pace."""
    reason: str | None = None
    """Why it is in this gear."""
    waiting: int = 0
    """Requests that wait for what is not captured yet."""
    retained_wal: int | None = None
    """Bytes of WAL that the server holds for us, as of the last look ..."""
    retained_wal_limit: int | None = None
    """... and the limit at which the slot is dropped."""
    slot_dropped: bool = False
    """Whether it was, because of the limit; reading the tables afresh makes a new one."""
    took: timedelta | None = None
    """How long the latest reading took; None where nothing is read."""
    reads_in_order: bool = False
    """Whether readings cannot be shared by several readers."""
    unloaded: tuple[str, ...] = ()
    """Tables whose first rows are not read yet ..."""
    loading: Progress | None = None
    """... and how far those are that are being read."""
    queue: QueueStatus | None = None
    """The partitions of the stream log, if it is an elastic queue."""
    alarms: tuple[str, ...] = ()
    """What someone should do something about before it becomes a problem, in words."""


class Source(Protocol):
    """One source; its methods may be called from any thread."""

    @property
    def name(self) -> str: ...

    @property
    def tables(self) -> Mapping[str, SourceTable]: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def problems(self) -> Mapping[str, TableProblem]:
        """Tables whose changes cannot be followed any more; what was captured before counts."""
        ...

    @property
    def unopened(self) -> HeadgateError | None:
        """Why the source could not be opened; until it can, it has no tables and only what was captured is there."""
        ...

    @property
    def log(self) -> StreamLog: ...

    @property
    def first_loads(self) -> Mapping[str, FirstLoad]:
        """Tables whose first rows are not in the log yet, or came into it behind changes that it still has."""
        ...

    @property
    def status(self) -> SourceStatus:
        """How the source does; asks nobody, so that it is there at once."""
        ...

    @property
    def captured(self) -> SourceFreshness:
        """How far the log goes; asking does not touch the source."""
        ...

    def sample(self, since: datetime | None = None) -> Sample:
        """Reads headgate's clock, then the source's position; may wait for the source to answer.

        Whoever needs only what was acknowledged before an instant names it: a source may then name an earlier position.
        """
        ...

    def cut(self) -> int:
        """The position at which a job closes now: of what is captured. It is durable, unless the source promises less."""
        ...

    def capture(self, upto: Sample | datetime, window: timedelta) -> bool:
        """Waits until all that the sample names, or all that the source acknowledged before an instant, is durably in
        the log, at most for the window; tells whether it is."""
        ...

    def resnapshot(self, tables: Collection[str] | None = None) -> None:
        """Reads tables whole again, by default all; what differs from the replica becomes changes, history stays."""
        ...

    def close(self) -> None:
        """Stops capture and closes the log; what was captured is durable afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class RangeRead:
    """A table as its source has it at one position, for a while."""

    position: int
    """The rows have what was committed up to here, and nothing behind it; the log has all that comes behind it."""
    read: Read[KeySet]
    """The rows with some keys of the range column; can be sent to another process."""
    verify: Callable[[], None]
    """Raises when what was read does not count: the table is another one by now."""


@runtime_checkable
class LoadingSource(Source, Protocol):
    """A source that reads first rows beside its stream, when it is told to."""

    def load(self, tables: Collection[str], is_stopped: Callable[[], bool]) -> None:
        """Reads the first rows of tables into the log, all as they are at one moment; returns when they are there.

        Capture goes on meanwhile. A table whose rows cannot be read is stopped, and the call raises why. `is_stopped` is asked
        now and then; when it says so, the call raises a transient error.
        """
        ...


@runtime_checkable
class RangedSource(LoadingSource, Protocol):
    """A source that can read the first rows of a table range by range, each group of ranges at a position of its own."""

    def bounds(self, table: str, column: str, count: int) -> tuple[Value, ...] | None:
        """Values between which the table has about equally many rows, for at most so many ranges; None where its ranges cannot be
        read by themselves, or that is not worth it: the table is loaded whole."""
        ...

    def read_ranges(self, table: str, column: str, is_stopped: Callable[[], bool]) -> AbstractContextManager[RangeRead]:
        """A table without first rows as it is now; while the block runs, `first_loads` says from where on the log is needed.

        A definite error inside the block stops the table.
        """
        ...

    def mark(self, position: int) -> None:
        """Appends a transaction without rows to the log, at a position or behind it, so that a job can hold that position."""
        ...

    def loaded(self, table: str) -> None:
        """All ranges of the table have been read and are durable."""
        ...


@runtime_checkable
class DistributingSource(RangedSource, Protocol):
    """A source that goes through all first rows of a table once before it can read some of its ranges."""

    def distribute(self, table: str, is_stopped: Callable[[], bool]) -> None:
        """Returns when ranges of the table can be read: at once, if that is so; goes on where it was cut short."""
        ...
