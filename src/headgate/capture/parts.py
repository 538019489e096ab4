"""Transactions that several writers put together, part by part, before their owner commits them.

    worker ─► part 0 ─┐
    worker ─► part 1 ─┼─► commit_parts(name, 2): one transaction, the parts in order
    loader ─► begin ──┘

A transaction belongs to the producer that began it and is forgotten when that one detaches; a part stays whatever becomes of its writer.
Rows are ordered by part and by their number within it, so a key may occur in several parts: the last one counts.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.capture.block_writer import Put
from headgate.capture.streamlog import StreamLog
from headgate.errors import TransactionError


@dataclass(slots=True)
class _Open:
    owner: object
    parts: dict[int, tuple[Put, ...]] = field(default_factory=dict)


class OpenParts:
    """The open transactions of a source; safe to use from several threads."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def begin(self, owner: object) -> str:
        """A new transaction; its name is random, so that only those put parts who were told."""
        name = secrets.token_hex(16)
        with self._lock:
            self._open[name] = _Open(owner)
        return name

    def owner(self, name: str) -> object:
        with self._lock:
            return self._found(name).owner

    def offer(self, name: str, part: int, puts: Sequence[Put]) -> None:
        """A part is there; a part that is put again replaces the one before."""
        if part < 0:
            raise TransactionError(f"there is no part {part}", hint="parts are numbered from 0")
        self._log.hold_blocks(puts)
        try:
            with self._lock:
                parts = self._found(name).parts
                former, parts[part] = parts.get(part, ()), tuple(puts)
        except BaseException:
            self._log.release_blocks(puts)
            raise
        self._log.release_blocks(former)

    def whole(self, name: str, count: int, owner: object) -> list[tuple[Put, ...]]:
        """The parts 0 … count − 1, all of them there and no others."""
        with self._lock:
            found = self._found(name)
            if found.owner is not owner:
                raise TransactionError(
                    "another producer began this transaction", hint="the producer that began it commits it"
                )
            missing = [number for number in range(count) if number not in found.parts]
            if missing or len(found.parts) != count:
                raise TransactionError(
                    f"the transaction has {len(found.parts)} parts, and {count} were announced",
                    hint=f"put part {missing[0]}, or abandon the transaction" if missing else "announce all parts",
                )
            return [found.parts[number] for number in range(count)]

    def end(self, name: str) -> None:
        """Forgets a transaction; what was not committed of it goes with the segments that it lies in."""
        with self._lock:
            found = self._open.pop(name, None)
        for puts in found.parts.values() if found is not None else ():
            self._log.release_blocks(puts)

    def expire(self, owner: object) -> None:
        """Forgets the transactions of a producer."""
        with self._lock:
            names = [name for name, found in self._open.items() if found.owner is owner]
        for name in names:
            self.end(name)

    def _found(self, name: str) -> _Open:
        found = self._open.get(name)
        if found is None:
            raise TransactionError(
                "there is no such open transaction",
                hint="it was committed or abandoned, or the producer that began it has gone: begin another one",
            )
        return found
