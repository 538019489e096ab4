"""Puts the messages of a stream together into whole transactions, many small ones at a time.

Messages are only sorted by relation as they come; they are decoded when a group of transactions is handed over, and while
a transaction grows beyond the limit. What lies at or before the log's end has been captured earlier and is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol

import pyarrow as pa

from headgate.capture.postgres.log_tables import DecodedTransaction, LogTables
from headgate.capture.postgres.pgoutput import (
    BEGIN,
    BODY,
    COMMIT,
    DELETE,
    INSERT,
    KIND,
    RELATION,
    TRUNCATE,
    UPDATE,
    WAL_DATA,
    RelationLayout,
    read_begin,
    read_keepalive,
    read_layout,
    read_truncate,
)
from headgate.capture.postgres.pgoutput_rows import RowBlock

Batches = list[tuple[str, pa.RecordBatch]]

_NUMBER = Struct(">I")
_LSN = Struct(">Q")
_COMMIT_END = BODY + 9
_ROWS = frozenset((INSERT, UPDATE, DELETE))


class Receiver(Protocol):
    """Takes transactions in order."""

    def transaction(self, lsn: int, commit_at: int) -> tuple[int, int] | None:
        """A transaction's position and time as they are to be kept; None when it is there already."""
        ...

    def take(self, transactions: Sequence[DecodedTransaction], batches: Batches) -> None:
        """Whole transactions with all their rows; sequences tell which are whose."""
        ...

    def take_part(self, transaction: DecodedTransaction, batches: Batches) -> None:
        """Some rows of a transaction that is larger than memory."""
        ...

    def finish(self, transaction: DecodedTransaction) -> None:
        """The transaction whose parts were taken is whole."""
        ...


class TransactionCollector:
    """One stream's messages, from its beginning on; used by one thread."""

    def __init__(self, tables: LogTables, receiver: Receiver, *, limit: int, reached: int) -> None:
        self.reached = reached
        """Everything that committed before this position has been taken or is held here."""
        self.reply_wanted = False
        self.bytes = 0
        """Size of the messages held."""
        self._tables = tables
        self._receiver = receiver
        self._limit = limit
        self._layouts: dict[int, RelationLayout] = {}
        self._blocks: dict[int, RowBlock | None] = {}
        self._outdated: list[RowBlock] = []
        self._whole: list[DecodedTransaction] = []
        self._open: DecodedTransaction | None = None
        self._parted = False
        self._number = 0

    def feed(self, messages: Sequence[memoryview], *, before: int | None = None) -> None:
        """Takes messages, up to the first transaction that committed at or after `before`."""
        for message in messages:
            if message[0] != WAL_DATA:
                self._keepalive(message)
                continue
            kind = message[KIND]
            if kind in _ROWS:
                self._row(_NUMBER.unpack_from(message, BODY)[0], message)
            elif kind == BEGIN:
                begin = read_begin(message)
                if before is not None and begin.lsn >= before:
                    self.reached = max(self.reached, before)
                    return
                kept = self._receiver.transaction(begin.lsn, begin.commit_at)
                self._open = None if kept is None else DecodedTransaction(*kept, self._number)
            elif kind == COMMIT:
                self._commit(_LSN.unpack_from(message, _COMMIT_END)[0])
            elif kind == RELATION:
                self._layout(read_layout(message))
            elif kind == TRUNCATE:
                for relation in read_truncate(message):
                    self._row(relation, message)

    def hand_over(self, rest: Callable[[], None] = lambda: None) -> None:
        """Gives all whole transactions away; calls `rest` between steps."""
        first = self._number if self._open is None else self._open.first
        if self._whole:
            blocks = [block.part(0, bisect_left(block.numbers, first)) for block in self._all_blocks()]
            batches: Batches = []
            for block in blocks:
                batches += self._tables.decode(block, self._whole)
                rest()
            self._receiver.take(self._whole, batches)
            rest()
            self._whole = []
            self._keep(
                [block.part(bisect_left(block.numbers, first), len(block.numbers)) for block in self._all_blocks()]
            )

    def _row(self, relation: int, message: memoryview) -> None:
        if self._open is None:
            return
        try:
            block = self._blocks[relation]
        except KeyError:
            block = self._adopt(relation, self._open)
        if block is None:
            return
        block.messages.append(message)
        block.numbers.append(self._number)
        self._number += 1
        self.bytes += len(message)
        if self.bytes > self._limit:
            self._part()

    def _adopt(self, relation: int, transaction: DecodedTransaction) -> RowBlock | None:
        """The block for a layout's first row; none when the relation is not captured."""
        layout = self._layouts[relation]
        captured = self._tables.adopt(layout, transaction.position, begun=self._parted)
        block = self._blocks[relation] = RowBlock(layout) if captured else None
        return block

    def _commit(self, end: int) -> None:
        if self._open is not None:
            if self._parted:
                self._part()
                self._receiver.finish(self._open)
                self._parted = False
            elif self._number > self._open.first:
                self._whole.append(self._open)
            self._open = None
        self.reached = max(self.reached, end)

    def _part(self) -> None:
        """Gives the rows of the open transaction away that have come so far."""
        self.hand_over()
        assert self._open is not None
        batches = [batch for block in self._all_blocks() for batch in self._tables.decode(block, [self._open])]
        self._receiver.take_part(self._open, batches)
        self._parted = True
        self._keep([block.part(0, 0) for block in self._all_blocks()])

    def _layout(self, layout: RelationLayout) -> None:
        if self._layouts.get(layout.relation) == layout:
            return
        self._layouts[layout.relation] = layout
        block = self._blocks.pop(layout.relation, None)
        if block is not None and block.messages:
            self._outdated.append(block)

    def _keepalive(self, message: memoryview) -> None:
        keepalive = read_keepalive(message)
        self.reply_wanted |= keepalive.reply
        if self._open is None:
            self.reached = max(self.reached, keepalive.lsn)

    def _all_blocks(self) -> list[RowBlock]:
        return [*self._outdated, *(block for block in self._blocks.values() if block is not None)]

    def _keep(self, blocks: list[RowBlock]) -> None:
        """Goes on with these blocks instead of `_all_blocks`."""
        current = {block.layout.relation: block for block in blocks[len(self._outdated) :]}
        self._outdated = [block for block in blocks[: len(self._outdated)] if block.messages]
        self._blocks |= current
        self.bytes = sum(len(message) for block in blocks for message in block.messages)
