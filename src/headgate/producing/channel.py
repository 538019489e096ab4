"""What a producer's connection asks of the warehouse: in the same process, or through a socket.

Rows travel as the events of a source's transaction (`capture.shape.Shape` builds them). A commit is one transaction for all its
tables: readers see all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from headgate.capture.source import SourceTable


class Channel(Protocol):
    """One producer's way to the tables of one producer source. Its methods are called from one thread at a time, but for
    `flush`, which a policy's thread may call at any time."""

    @property
    def source(self) -> str:
        """The name of the producer source: SQL names its tables `source.table`."""
        ...

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        """Every table of the source by its own name; a table without a key has an empty one."""
        ...

    @property
    def archives(self) -> int:
        """How many lazy commits readers do not see yet, unless they demand them; asked from any thread."""
        ...

    def claim(self, tables: Collection[str]) -> None:
        """Makes this producer the only one that writes to the tables, until it closes.

        Raises `ProducerBusy`, which names the table and who has it.
        """
        ...

    def create(self, table: SourceTable) -> None:
        """Declares a new table, durably; this producer has it."""
        ...

    def drop(self, table: str) -> None:
        """Archives a table of this producer: it is no longer answered."""
        ...

    def count(self, table: str) -> int:
        """How many rows the table has, all commits counted."""
        ...

    def rows(self, table: str) -> pa.Table:
        """All committed rows of a table, without Spark; for tables that fit into memory."""
        ...

    def lookup(self, table: str, columns: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
        """Committed rows whose columns equal one of the key rows, without Spark; None when the table is not sorted so."""
        ...

    def query(self, text: str) -> pa.Table:
        """Answers one SELECT from the warehouse: every committed row is seen, lazily committed ones too."""
        ...

    def commit(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        """Commits one transaction: batches of event rows, each with its table's name. Gives the commit time, None without rows.

        Durable: on the disk when this returns. Lazy: readers see it after the next `flush`, or when a reader's bound demands it.
        """
        ...

    def begin_parts(self) -> str:
        """Opens a transaction that other producers put parts of; gives its name, which they have to be told."""
        ...

    def join(self, transaction: str) -> None:
        """From now on this producer writes the tables of the one that began the transaction."""
        ...

    def put(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], transaction: str, part: int, *, durable: bool = True
    ) -> None:
        """Puts a part of a transaction: rows numbered within it. A part that is put again replaces the one before."""
        ...

    def commit_parts(
        self, transaction: str, parts: int, *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        """Commits a transaction that this producer began: its parts 0 … parts − 1 in order. Unless all are there it raises."""
        ...

    def abandon(self, transaction: str) -> None:
        """Forgets the parts of a transaction."""
        ...

    def flush(self, upto: datetime | None = None) -> None:
        """Lets readers see lazy commits, by default all, else those up to a commit time; in commit order."""
        ...

    def materialize(self) -> None:
        """Returns when everything that was committed is in the Delta tables."""
        ...

    def close(self) -> None:
        """Flushes, and gives the tables back."""
        ...
