"""One transaction of an in-process source.

Rows are keyed: `insert` and `update` both set the row of their key, the last one wins, and deleting an absent key does
nothing. An `insert` sets columns that it does not name to NULL; an `update` leaves them as they are (NULL when there
was no such row). A call checks its rows at once, so a mistake is raised where it is made. Nothing is visible before
the `with` block ends; leaving it by an exception drops everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

import pyarrow as pa

from headgate.capture.events import Committed
from headgate.capture.shape import Shape, did_you_mean
from headgate.capture.spool import Spool
from headgate.delta.events import DELETE, TRUNCATE, UPSERT
from headgate.errors import TransactionError

_ROWS_PER_BATCH = 4096
_ROWS_PER_ARROW_BATCH = 65_536


@dataclass(slots=True)
class _Buffer:
    """Rows of one table that are not in the spool yet."""

    rows: list[dict[str, object]] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    unchanged: list[tuple[str, ...]] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)


class Transaction:
    """Use it as a context manager, from one thread; afterwards `position` and `commit_at` say what became of it.

    Both stay None for a transaction without rows, which takes no position.
    """

    def __init__(
        self,
        source: str,
        shapes: Mapping[str, Shape],
        spool: Spool,
        commit: Callable[[Spool], Committed | None],
    ) -> None:
        self.position: int | None = None
        self.commit_at: datetime | None = None
        self._source = source
        self._shapes = shapes
        self._spool = spool
        self._commit = commit
        self._buffers: dict[str, _Buffer] = {}
        self._sequence = 0
        self._state = "not begun"

    def __enter__(self) -> Transaction:
        if self._state != "not begun":
            raise TransactionError(f"this transaction of {self._source} was used before", hint="begin a new one")
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed, self._state = self._state == "failed", "over"
        try:
            if kind is None:
                if failed:
                    raise TransactionError(
                        f"a transaction of {self._source} was not committed, because one of its calls failed",
                        hint="let the error leave the with block, or begin a new transaction",
                    )
                for table in list(self._buffers):
                    self._flush(table)
                committed = self._commit(self._spool)
                if committed is not None:
                    self.position, self.commit_at = committed.position, committed.commit_at
        finally:
            self._buffers.clear()
            self._spool.close()

    def insert(self, table: str, row: Mapping[str, object]) -> None:
        """Sets the row of a key; columns that are not given are NULL."""
        shape = self._shape(table)
        checked = shape.row(row, shape.key)
        shape.absent(checked, "it cannot be NULL")
        self._add(table, checked, UPSERT, ())

    def update(self, table: str, row: Mapping[str, object], *, key: Mapping[str, object] | None = None) -> None:
        """Sets the given columns of the row with this key and leaves the others.

        `key` is the row's old key when the key itself changes; then all columns are required.
        """
        shape = self._shape(table)
        checked = shape.row(row, shape.key)
        if key is not None:
            old = shape.key_row(key)
            if any(old[column] != checked[column] for column in shape.key):
                checked = shape.row(row, shape.columns)
                self._add(table, old, DELETE, ())
                self._add(table, checked, UPSERT, ())
                return
        self._add(table, checked, UPSERT, tuple(column for column in shape.columns if column not in checked))

    def delete(self, table: str, key: Mapping[str, object]) -> None:
        """Removes the row of a key, if there is one."""
        self._add(table, self._shape(table).key_row(key), DELETE, ())

    def insert_many(self, table: str, rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        """Sets the rows of many keys; a reader is read batch by batch, whatever its size."""
        self._add_many(table, rows, UPSERT)

    def delete_many(self, table: str, keys: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        """Removes the rows of many keys."""
        self._add_many(table, keys, DELETE)

    def truncate(self, table: str) -> None:
        """Removes all rows of a table."""
        self._shape(table)
        self._add(table, {}, TRUNCATE, ())

    def _shape(self, table: str) -> Shape:
        if self._state != "open":
            raise TransactionError(
                f"this transaction of {self._source} is {self._state}",
                hint="use it inside its with block: with source.transaction() as transaction: …",
            )
        shape = self._shapes.get(table)
        if shape is None:
            raise TransactionError(
                f"{self._source} has no table {table}", hint=did_you_mean(str(table), self._shapes, "tables")
            )
        return shape

    def _add(self, table: str, row: dict[str, object], op: int, unchanged: tuple[str, ...]) -> None:
        buffer = self._buffers.setdefault(table, _Buffer())
        buffer.rows.append(row)
        buffer.ops.append(op)
        buffer.unchanged.append(unchanged)
        buffer.sequences.append(self._sequence)
        self._sequence += 1
        if len(buffer.rows) >= _ROWS_PER_BATCH:
            self._flush(table)

    def _flush(self, table: str) -> None:
        buffer = self._buffers.pop(table)
        batch = self._shapes[table].build(buffer.rows, buffer.ops, buffer.unchanged, buffer.sequences)
        self._spool.add(table, batch)

    def _add_many(self, table: str, data: object, op: int) -> None:
        shape = self._shape(table)
        schema, batches = _batches(data, table)
        shape.require_columns(schema, key_only=op == DELETE)
        if table in self._buffers:
            self._flush(table)
        # Rows of earlier batches cannot be taken back one by one, so a mistake ends the whole transaction.
        self._state = "failed"
        for batch in batches:
            self._spool.add(table, shape.build_many(batch, op, self._sequence))
            self._sequence += batch.num_rows
        self._state = "open"


def _batches(data: object, table: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches(max_chunksize=_ROWS_PER_ARROW_BATCH))
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, (
            part for batch in data for part in pa.Table.from_batches([batch]).to_batches(_ROWS_PER_ARROW_BATCH)
        )
    raise TransactionError(
        f"rows for {table} must be a pyarrow Table, RecordBatch or RecordBatchReader, not {type(data).__name__}"
    )
