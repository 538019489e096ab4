"""The contract of a stream log: a source's captured transactions, durable, whole and in position order.

A transaction is appended whole or not at all, at a position after the last one's. `append` returns once it is durable; `begin`
… `commit` makes it readable at once and `sync` makes it durable. `keep` holds a transaction in memory: readable at once,
written by `sync` at the latest. Writers in other processes put rows into segments of their own and have references to them
appended. Readers ask for half-open ranges (after, upto] of positions; what every table has taken is let
go by `trim`.

A crash can leave an interrupted write at the end, which opening cuts off. Acknowledged transactions that are missing, at the
end or elsewhere, are a `loss`: the log goes on behind it, and nobody can read across it until the source has made good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture.block_writer import OpenSegment, Put
from headgate.capture.events import Committed, Events, Size
from headgate.capture.loss import Loss
from headgate.capture.places import Places
from headgate.capture.queue_status import QueueStatus
from headgate.capture.unwritten import Lost
from headgate.capture.writing import TransactionWriter


class StreamLog(Protocol):
    """One source's log; safe to use from several threads. Only one process may open it at a time."""

    folder: Path
    files_folder: Path
    """Where the files of large transactions lie."""
    transaction_bytes: int
    """Rows of a transaction beyond this go to files."""
    unwritten_bytes: int
    """What may be kept in memory alone."""
    lost: Lost | None
    """What was kept in memory when the last owner crashed."""

    @property
    def spool_folder(self) -> Path:
        """Scratch of open transactions, emptied on opening."""
        ...

    @property
    def end(self) -> int:
        """The position of the last transaction, durable or not; 0 before the first."""
        ...

    @property
    def end_commit_at(self) -> datetime | None:
        """When the last transaction committed; None before the first."""
        ...

    @property
    def durable(self) -> int:
        """The position up to which every transaction is on the disk."""
        ...

    @property
    def trimmed(self) -> int:
        """The position up to which transactions have been let go."""
        ...

    # appending

    def begin(self, position: int, commit_at: datetime, *, initial: bool = False) -> TransactionWriter:
        """A writer for the transaction that comes next; nothing is in the log before its `commit`."""
        ...

    def append(
        self, position: int, commit_at: datetime, tables: Mapping[str, pa.Table], *, initial: bool = False
    ) -> Committed:
        """Appends a whole transaction; returns once it is durable."""
        ...

    def append_group(
        self,
        transactions: Sequence[tuple[int, datetime]],
        tables: Mapping[str, pa.Table],
        counts: Mapping[str, Sequence[int]],
    ) -> None:
        """Appends several small transactions at once; readable at once, durable after the log's next `sync`.

        Each is a position and a commit time. A table has the rows of all, `counts` of each, in that order.
        """
        ...

    def keep(self, position: int, commit_at: datetime, tables: Mapping[str, pa.Table]) -> Committed:
        """Appends a transaction in memory: readable at once, durable after the log's next `sync`."""
        ...

    # rows that writers put into segments of their own (`block_writer`)

    def open_segment(self) -> OpenSegment:
        """A new segment for one writer, which may be another process."""
        ...

    def reserve_segment(self) -> Path:
        """The path of such a segment, for a writer that makes the file itself."""
        ...

    def seal_segments(self, names: Collection[str]) -> None:
        """Says that nobody adds to these segments any more; each goes with its last block."""
        ...

    def hold_blocks(self, puts: Sequence[Put]) -> None:
        """Keeps what a writer put, whatever becomes of the writer, until it is committed or released."""
        ...

    def release_blocks(self, puts: Sequence[Put]) -> None:
        """Says that these blocks will not be committed, unless they are already."""
        ...

    def append_blocks(
        self,
        position: int,
        commit_at: datetime,
        parts: Sequence[Sequence[Put]],
        *,
        initial: bool = False,
        synced: bool = False,
    ) -> Committed:
        """Appends a transaction by reference: its parts in order, all of them there. It is metadata only.

        Readable at once, durable after the log's next `sync`; the blocks may be `synced` already. Sequence numbers of a part
        follow those of the part before, so each part counts its rows from 0.
        """
        ...

    def sync(self, upto: int | None = None) -> None:
        """Returns once every transaction up to this position (default: the end) is on the disk."""
        ...

    def flush_mark(self) -> None:
        """Returns once it is on the disk, too, how far the log reaches: for sources that let go of what they are told of."""
        ...

    # reading

    def size(self, table: str, after: int, upto: int) -> Size:
        """How many events of the table the transactions in (after, upto] have; reads none of them."""
        ...

    def read(self, table: str, after: int, upto: int, keep: pc.Expression | None = None) -> Events:
        """The table's events of the transactions in (after, upto], in order; of rows in segments only those to `keep`."""
        ...

    def next_batch(self, table: str, after: int, upto: int) -> Places:
        """The table's events of the transactions in (after, upto] by reference, for tasks of Spark; what is in memory alone is
        written first."""
        ...

    def transactions(self, after: int, upto: int) -> tuple[Committed, ...]:
        """The transactions in (after, upto], in order."""
        ...

    def rows_held(self, after: int, upto: int) -> int:
        """How many rows the transactions in (after, upto] have, but for those that were let go."""
        ...

    @property
    def queue(self) -> QueueStatus | None:
        """The partitions of an elastic queue; None of a log without partitions."""
        ...

    def split(self, number: int) -> QueueStatus:
        """Cuts a partition of an elastic queue in two."""
        ...

    def merge(self, number: int, other: int) -> QueueStatus:
        """Joins two neighbouring partitions of an elastic queue."""
        ...

    # room

    @property
    def held_bytes(self) -> int:
        """The size of everything that has not been let go."""
        ...

    def bytes_after(self, position: int) -> int:
        """Of these, what the transactions after a position take."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Of these, what is in memory alone."""
        ...

    @property
    def limit_bytes(self) -> int | None:
        """What that should not pass."""
        ...

    @limit_bytes.setter
    def limit_bytes(self, limit: int | None) -> None: ...

    @property
    def over_limit(self) -> bool:
        """Whether that is more than the log should hold: its consumer ought to go forward."""
        ...

    def on_full(self, hear: Callable[[], None]) -> None:
        """Calls `hear` whenever the log has passed its limit, and again if trimming did not bring it below.

        It is called by a thread that appends, with no lock of the log held, and must return at once.
        """
        ...

    def trim(self, upto: int) -> None:
        """Lets go of transactions up to this position."""
        ...

    # what was lost

    @property
    def loss(self) -> Loss | None:
        """Acknowledged transactions that the log no longer has, and that nobody has made good for."""
        ...

    def settle_loss(self, *, found_again: bool = False) -> None:
        """The source has made good for what was lost; or everything of it is here again."""
        ...

    def go_on_without_lost(self) -> None:
        """Settles a loss that nothing makes good for; it takes a position of its own."""
        ...

    def forget_after_loss(self) -> None:
        """Ends where the loss begins, because the source has all that follows: it is to be appended once more."""
        ...

    def lose_file(self, file: str, why: str) -> Loss:
        """Notes that a file of a large transaction cannot be read."""
        ...

    # the end

    def release_writers(self) -> None:
        """Lets waiting and later appends go on at once, because the log is about to be closed."""
        ...

    def close(self) -> None:
        """Makes everything durable and closes the files; a former owner may close as well."""
        ...
