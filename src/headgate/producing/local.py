"""A producer in the warehouse's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from headgate.capture.block_writer import BlockWriter, OpenSegment, Put
from headgate.capture.source import SourceTable
from headgate.scheduling.warehouse import Warehouse


class LocalChannel:
    """Implements `Channel` on an open warehouse."""

    def __init__(
        self, warehouse: Warehouse, source: str | None, who: str, flushed: Callable[[str], None] | None = None
    ) -> None:
        """`who` is told to others that want one of its tables, `flushed` hears why readers see lazy commits."""
        self._warehouse = warehouse
        self._source = warehouse.producer_source(source)
        self._producer = self._source.attach(who, flushed)
        self._mine: set[str] = set()

    @property
    def source(self) -> str:
        return self._source.name

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        return self._source.tables

    @property
    def archives(self) -> int:
        """How many lazy commits readers do not see yet."""
        return len(self._producer.archives)

    def claim(self, tables: Collection[str]) -> None:
        self._producer.claim(tables)
        self._mine |= set(tables)

    def create(self, table: SourceTable) -> None:
        self._warehouse.producer_tables.create(self.source, table)
        self.claim([table.name])

    def drop(self, table: str) -> None:
        self.claim([table])
        self._warehouse.producer_tables.drop(self.source, table)
        self._mine.discard(table)

    def count(self, table: str) -> int:
        job = self._warehouse.producer_tables.bring(self.source, [table])
        return self._warehouse.replica(f"{self.source}.{table}").count(job)

    def rows(self, table: str) -> pa.Table:
        job = self._warehouse.producer_tables.bring(self.source, [table])
        # Whoever asks knows how many there are (`count`).
        found = self._warehouse.replica(f"{self.source}.{table}").main.collected(job, sys.maxsize)
        return found.select(self.tables[table].schema.names)

    def lookup(self, table: str, columns: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
        job = self._warehouse.producer_tables.bring(self.source, [table])
        stored = self._warehouse.replica(f"{self.source}.{table}")
        return stored.lookup(columns, keys, job, tuple(self.tables[table].schema.names))

    def query(self, text: str) -> pa.Table:
        with self._warehouse.sql(text, max_staleness="0s") as answer:
            return answer.to_arrow()

    def commit(
        self,
        rows: Iterable[tuple[str, pa.RecordBatch]],
        *,
        durable: bool = True,
        lazy: bool = False,
    ) -> datetime | None:
        committed = self._producer.commit(rows, durable=durable, lazy=lazy)
        return None if committed is None else committed.commit_at

    def put(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], transaction: str, part: int, *, durable: bool = True
    ) -> None:
        names: list[str] = []

        def opened() -> OpenSegment:
            segment = self.open_segment()
            names.append(segment.name)
            return segment

        writer = BlockWriter(opened)
        try:
            for table, batch in rows:
                writer.put(table, batch)
            self.offer(transaction, part, writer.finish(durable=durable))
        finally:
            writer.close()
            self.seal_segments(names)

    def begin_parts(self) -> str:
        return self._producer.begin_parts()

    def join(self, transaction: str) -> None:
        self._producer.join(transaction)

    def offer(self, transaction: str, part: int, puts: Sequence[Put]) -> None:
        """A part of a transaction is in segments."""
        self._producer.offer(transaction, part, puts)

    def commit_parts(
        self, transaction: str, parts: int, *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        committed = self._producer.commit_parts(transaction, parts, durable=durable, lazy=lazy)
        return None if committed is None else committed.commit_at

    def abandon(self, transaction: str) -> None:
        self._producer.abandon(transaction)

    def open_segment(self) -> OpenSegment:
        """A new segment, for a producer in another process."""
        return self._source.log.open_segment()

    def reserve_segment(self) -> Path:
        """The path of one for a producer on another machine."""
        return self._source.log.reserve_segment()

    def seal_segments(self, names: Collection[str]) -> None:
        """Says that nothing more is added to these segments."""
        self._source.log.seal_segments(names)

    def commit_blocks(self, puts: Sequence[Put], *, durable: bool, lazy: bool) -> datetime | None:
        """Commits what a producer in another process wrote into its segments."""
        committed = self._producer.commit_blocks(puts, durable=durable, lazy=lazy)
        return None if committed is None else committed.commit_at

    def flush(self, upto: datetime | None = None) -> None:
        self._producer.flush(upto)

    def materialize(self) -> None:
        self._producer.flush(reason="materialize")
        self._warehouse.producer_tables.materialize(self.source, self._mine)

    def close(self) -> None:
        self._producer.close()
