"""A producer's way to a warehouse that another process has open; no Spark runs here.

Rows go into segments that this process writes (`block_writer`); the warehouse hands it the open files, so that it need not reach
the storage itself, and commits references to what it wrote, lazy commits too: readers see those when the warehouse lets them. On
another machine the process makes those files itself, in the storage.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from headgate.capture.block_writer import BlockWriter, OpenSegment, create_segment
from headgate.capture.durable import full_disk_is_named
from headgate.capture.source import SourceTable
from headgate.errors import DefiniteError, EnvironmentProblem, Location, TransientError
from headgate.producing.remote_values import (
    PROTOCOL,
    Address,
    Gone,
    Message,
    closed_warehouse,
    error_from_json,
    hear,
    hear_file,
    instant_from_json,
    instant_to_json,
    puts_to_json,
    say,
    table_to_json,
    tables_from_json,
)

_LOGGER = logging.getLogger(__name__)


class RemoteChannel:
    """Implements `Channel`. Its `tables` and `archives` are those of the warehouse's last answer."""

    def __init__(
        self, address: Path | Address, source: str | None, flushed: Callable[[str], None] | None = None
    ) -> None:
        """`address` is the server's, or the file that has it. `flushed` hears why readers see lazy commits, with the next answer."""
        self.tables: Mapping[str, SourceTable] = MappingProxyType({})
        self.archives = 0
        self._place = address.socket if isinstance(address, Address) else str(address)
        self._flushed = flushed
        self._reasons: list[str] = []
        self._is_closed = False
        self._exchange = threading.Lock()
        self._wire = self._connect(address if isinstance(address, Address) else Address.read(address), source)
        self._writer = BlockWriter(self._open_segment)
        try:
            self.source: str = self._answer(self._wire)
        except Gone as error:
            raise closed_warehouse(self._place) from error
        except BaseException:
            self._wire.close()
            raise

    def claim(self, tables: Collection[str]) -> None:
        self._call("claim", tables=list(tables))

    def create(self, table: SourceTable) -> None:
        self._call("create", table=table_to_json(table))

    def drop(self, table: str) -> None:
        self._call("drop", table=table)

    def count(self, table: str) -> int:
        return int(self._call("count", table=table))

    def rows(self, table: str) -> pa.Table:
        return self._call("rows", table=table)

    def lookup(self, table: str, columns: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
        return self._call("lookup", keys, table=table, columns=list(columns))

    def query(self, text: str) -> pa.Table:
        return self._call("query", text=text)

    def commit(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        return instant_from_json(self._write(rows, durable, {"call": "commit", "durable": durable, "lazy": lazy}))

    def begin_parts(self) -> str:
        return str(self._call("begin_parts"))

    def join(self, transaction: str) -> None:
        self._call("join", transaction=transaction)

    def put(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], transaction: str, part: int, *, durable: bool = True
    ) -> None:
        self._write(rows, durable, {"call": "offer", "transaction": transaction, "part": part})

    def commit_parts(
        self, transaction: str, parts: int, *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        committed = self._call("commit_parts", transaction=transaction, parts=parts, durable=durable, lazy=lazy)
        return instant_from_json(committed)

    def abandon(self, transaction: str) -> None:
        self._call("abandon", transaction=transaction)

    def flush(self, upto: datetime | None = None) -> None:
        self._call("flush", upto=instant_to_json(upto))

    def materialize(self) -> None:
        self._call("materialize")

    def close(self) -> None:
        """Flushes, and gives the tables back. A warehouse that went away has done both."""
        if self._is_closed:
            return
        try:
            if not self._wire.closed:
                self._call("close")
        except TransientError:
            if not self._wire.closed:
                raise
        finally:
            self._is_closed = True
            self._wire.close()
            self._writer.close()

    def _open_segment(self) -> OpenSegment:
        say(self._wire, {"call": "segment", "is_near": self._is_near})
        name = self._answer(self._wire)
        if self._is_near:
            return OpenSegment(name, hear_file(self._wire))
        path = Path(name)
        try:
            with full_disk_is_named(path.parent):
                return create_segment(path.parent, path.name)
        except OSError as error:
            raise EnvironmentProblem(
                f"the warehouse's storage cannot be written from this machine: {error.strerror}",
                where=Location(str(path.parent)),
                hint="mount the storage at the same path as on the warehouse's machine, for the same user",
            ) from error

    def _write(self, rows: Iterable[tuple[str, pa.RecordBatch]], durable: bool, message: Message) -> Any:
        """Writes rows into this producer's segment, and tells the warehouse where they are."""
        with self._exchanging() as wire:
            try:
                for table, batch in rows:
                    self._writer.put(table, batch)
                puts = self._writer.finish(durable=durable)
            except BaseException:
                self._writer.drop()
                raise
            say(wire, {**message, "blocks": puts_to_json(puts)})
            return self._answer(wire)

    def _call(self, call: str, rows: pa.Table | None = None, **arguments: object) -> Any:
        with self._exchanging() as wire:
            say(wire, {"call": call, **arguments}, rows)
            return self._answer(wire)

    def _answer(self, wire: Connection) -> Any:
        """An answer's value, or its rows; or its error, raised."""
        answer, rows = hear(wire)
        self._learn(answer)
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer["value"] if rows is None else rows

    def _learn(self, answer: Message) -> None:
        self.archives = answer["archives"]
        self._reasons += answer["flushed"]
        if "tables" in answer:
            self.tables = MappingProxyType(tables_from_json(answer["tables"]))

    @contextmanager
    def _exchanging(self) -> Iterator[Connection]:
        """One call and its answer at a time; says what it means if the warehouse goes away during it."""
        try:
            with self._exchange:
                if self._is_closed:
                    raise DefiniteError("the producer's connection is closed", hint="connect again")
                yield self._wire
        except Gone as error:
            raise TransientError(
                f"the warehouse of {self.source} went away",
                where=Location(self._place),
                hint="what it did not acknowledge may be missing: open it, connect again, and look",
            ) from error
        finally:
            self._tell()

    def _tell(self) -> None:
        while self._reasons and self._flushed is not None:
            try:
                self._flushed(self._reasons.pop(0))
            except Exception:
                _LOGGER.exception("the policy failed when it heard of a flush")

    def _connect(self, address: Address, source: str | None) -> Connection:
        try:
            wire, self._is_near = address.connect()
            who = f"process {os.getpid()} on {socket.gethostname()}"
            say(wire, {"key": address.key, "protocol": PROTOCOL, "source": source, "who": who})
        except (OSError, Gone) as error:
            raise closed_warehouse(self._place) from error
        return wire
