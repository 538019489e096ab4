"""What a statement came to, and how much of it a client has taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.delta.changes import WEIGHT
from headgate.gateway.types import TEXT, WireColumn
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.subscription import JobChanges, Subscription


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows that are outside of Spark, in memory or in files."""

    columns: tuple[WireColumn, ...]
    batches: Iterable[pa.RecordBatch]
    rows: int
    command: str = "SELECT"
    receipt: Receipt | None = None
    is_binary: bool = False
    """Whether a simple query gets them in binary form: those of a cursor that was declared so."""


@dataclass(frozen=True, slots=True)
class Done:
    """A statement without rows."""

    tag: str
    notices: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    """Settings that the client is told of."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    form: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'


@dataclass(frozen=True, slots=True)
class CopyOut:
    """COPY … TO STDOUT."""

    fetched: Fetched | Followed
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class CopyIn:
    """COPY … FROM STDIN."""

    table: str
    columns: tuple[WireColumn, ...]
    options: CopyOptions


@dataclass
class Followed:
    """SUBSCRIBE: rows that go on coming until the client has enough. Every row has its job and its weight; the last one of a job
    has the position from which another subscription goes on (`AS OF`), and stands alone, of weight 0, if the job has no rows."""

    columns: tuple[WireColumn, ...]
    subscription: Subscription
    release: Callable[[], None]
    _held: pa.RecordBatch | None = field(default=None, init=False)

    def next(self, seconds: float, most: int | None = None) -> pa.RecordBatch | None:
        """The changes that came, at most so many; None when none came in time."""
        batch, self._held = self._held, None
        if batch is None:
            piece = self.subscription.next(seconds)
            if piece is None:
                return None
            batch = self._batch(piece)
        if most is not None and batch.num_rows > most:
            self._held = batch.slice(most)
            batch = batch.slice(0, most)
        return batch

    def close(self) -> None:
        self.release()

    def _batch(self, piece: JobChanges) -> pa.RecordBatch:
        rows = piece.rows
        if piece.position is not None and not rows.num_rows:
            nothing = [
                pa.array([0 if name == WEIGHT else None], rows.schema.field(name).type) for name in rows.column_names
            ]
            rows = pa.table(nothing, names=rows.column_names)
        count = rows.num_rows
        positions: list[str | None] = [None] * count
        if count:
            positions[-1] = piece.position
        arrays = [
            pa.array([int(piece.job)] * count, pa.int64()),
            rows.column(WEIGHT),
            pa.array(positions, pa.string()),
            *rows.drop_columns([WEIGHT]).columns,
        ]
        found = pa.table(arrays, names=[column.name for column in self.columns]).combine_chunks()
        batches = found.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=found.schema)


_PART_ROWS = 16_384
_PART_BYTES = 1 << 20
"""Of Arrow's form: what is made ready at once for a client."""

Result = Fetched | Done | CopyOut | CopyIn | Followed


def rows_of(columns: Sequence[tuple[str, int]], rows: Sequence[Sequence[object]], command: str = "SELECT") -> Fetched:
    """Rows that were made here; their values are texts, numbers or None."""
    arrays = [
        pa.array([row[place] for row in rows], pa.string() if oid == TEXT else None)
        for place, (_, oid) in enumerate(columns)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])
    return Fetched(tuple(WireColumn(name, oid) for name, oid in columns), [batch], len(rows), command)


@dataclass
class RowCursor:
    """A result that is taken in parts."""

    fetched: Fetched
    taken: int = 0
    _batches: Iterator[pa.RecordBatch] = field(init=False)
    _held: pa.RecordBatch | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._batches = iter(self.fetched.batches)

    def take(self, most: int) -> pa.RecordBatch | None:
        """The next rows, at most so many and a few of a batch; None at the end. Reads files: for a thread."""
        batch = self._held
        while batch is None or batch.num_rows == 0:
            batch = next(self._batches, None)
            if batch is None:
                self._held = None
                return None
        few = max(1, min(_PART_ROWS, _PART_BYTES * batch.num_rows // max(1, batch.nbytes)))
        part = batch.slice(0, min(most, few))
        self._held = batch.slice(part.num_rows) if part.num_rows < batch.num_rows else None
        self.taken += part.num_rows
        return part

    def parts(self, rows: int) -> Iterator[pa.RecordBatch]:
        """So many of the next rows, taken as they are asked for."""
        while rows > 0 and (part := self.take(rows)) is not None:
            rows -= part.num_rows
            yield part

    @property
    def is_done(self) -> bool:
        return self.taken >= self.fetched.rows
