"""A producer's way to a warehouse that another process of this machine has open; no Spark runs here.

Lazy commits that need not be durable stay in this process, as archives by commit time. The warehouse demands them over a second
connection, which a thread serves: when a reader's bound needs them, and when this producer flushes, or calls anything else.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from headgate.capture.frames import decode_rows, encode_rows
from headgate.capture.source import SourceTable
from headgate.clock import Clock, SystemClock
from headgate.errors import DefiniteError, HeadgateError, Location, TransientError
from headgate.producing.archives import Archives
from headgate.producing.remote_values import (
    Address,
    closed_warehouse,
    error_from_json,
    instant_from_json,
    instant_to_json,
    table_to_json,
    tables_from_json,
)
from headgate.producing.remote_wire import PROTOCOL, Gone, Message, Wire

_LOGGER = logging.getLogger(__name__)
_REASONS = {"flush": "policy", "materialize": "materialize", "close": "close"}
"""Why a call makes lazy commits visible; any other demands them, as a reader does."""


class RemoteChannel:
    """Implements `Channel`. Its `tables` are those of the warehouse's last answer."""

    def __init__(
        self,
        address: Path | Address,
        source: str | None,
        flushed: Callable[[str], None] | None = None,
        *,
        archive_bytes: int = 64 << 20,
        clock: Clock | None = None,
    ) -> None:
        """`address` is the server's, or the file that has it. `flushed` hears why readers see lazy commits; those beyond
        `archive_bytes` are flushed at once."""
        self.tables: Mapping[str, SourceTable] = MappingProxyType({})
        self._address = address
        self._place = address.socket if isinstance(address, Address) else str(address)
        self._archive_bytes = archive_bytes
        self._archives = Archives(clock or SystemClock())
        self._archives_there = 0
        self._flushed = flushed
        self._last: datetime | None = None
        self._listener: Wire | None = None
        self._listening: threading.Thread | None = None
        self._given = False
        """Whether the demand that is being answered has taken anything."""
        self._is_closed = False
        self._exchange = threading.Lock()
        who = f"process {os.getpid()} on {socket.gethostname()}"
        self._wire, welcome = self._connect(source=source, who=who)
        self.source: str = welcome["source"]
        self._token = welcome["token"]
        self._learn(welcome)

    @property
    def archives(self) -> int:
        """How many lazy commits readers do not see yet: those in this process, and those in the warehouse at its last answer."""
        return len(self._archives) + self._archives_there

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
        return self._call("lookup", encode_rows(keys), table=table, columns=list(columns))

    def query(self, text: str) -> pa.Table:
        return self._call("query", text=text)

    def commit(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        return self._archive(rows) if lazy and not durable else self._send(rows, durable, lazy)

    def flush(self, upto: datetime | None = None) -> None:
        self._call("flush", upto=instant_to_json(upto))

    def materialize(self) -> None:
        self._call("materialize")

    def close(self) -> None:
        """Flushes, and gives the tables back. Without a warehouse, it is an error only if lazy commits are lost by that."""
        if self._is_closed:
            return
        try:
            if not self._wire.is_closed or self._archives:
                self._call("close")
        except TransientError:
            if not self._wire.is_closed or self._archives:
                raise
        finally:
            self._is_closed = True
            self._wire.close()
            if self._listener is not None:
                self._listener.close()
            if self._listening is not None:
                self._listening.join()

    def _archive(self, rows: Iterable[tuple[str, pa.RecordBatch]]) -> datetime | None:
        """Keeps a lazy commit here; one for which there is no room goes to the warehouse, after those before it."""
        self._listen()
        rest = iter(rows)
        held: list[tuple[str, pa.RecordBatch]] = []
        size = self._archives.bytes
        for table, batch in rest:
            held.append((table, batch))
            size += batch.nbytes
            if size > self._archive_bytes:
                return self._send(chain(held, rest), durable=False, lazy=False)
        if not any(batch.num_rows for _, batch in held):
            return None
        archive = self._archives.add(held, self._last)
        with self._exchanging() as wire:
            wire.send({"archived": archive.rows})
        return archive.commit_at

    def _send(self, rows: Iterable[tuple[str, pa.RecordBatch]], durable: bool, lazy: bool) -> datetime | None:
        with self._exchanging("order") as wire:
            wire.send({"call": "commit", "durable": durable, "lazy": lazy, "reason": "order"})
            try:
                wire.send_rows(rows)
            except BaseException:
                if not wire.is_closed:
                    wire.send({"commit": False})
                raise
            wire.send({"commit": True})
            committed_at = instant_from_json(self._answer(wire))
            self._last = committed_at or self._last
            return committed_at

    def _call(self, call: str, body: bytes = b"", **arguments: object) -> Any:
        reason = _REASONS.get(call, "demand")
        with self._exchanging(reason) as wire:
            wire.send({"call": call, "reason": reason, **arguments}, body)
            return self._answer(wire)

    def _answer(self, wire: Wire) -> Any:
        batches: list[pa.RecordBatch] = []
        header, body, failure = wire.receive_rows(lambda _, batch: batches.append(batch))
        self._learn(header)
        if failure is not None:
            raise failure
        if "error" in header:
            raise error_from_json(header["error"])
        return pa.Table.from_batches(batches, decode_rows(body).schema) if "table" in header else header["value"]

    def _learn(self, header: Message) -> None:
        self._archives_there = header["archives"]
        if "tables" in header:
            self.tables = MappingProxyType(tables_from_json(header["tables"]))

    @contextmanager
    def _exchanging(self, reason: str = "demand") -> Iterator[Wire]:
        """One call and its answer at a time; says what it means if the warehouse goes away during it."""
        with self._exchange:
            if self._is_closed:
                raise DefiniteError("the producer's connection is closed", hint="connect again")
            there = self._archives_there
            try:
                yield self._wire
            except Gone as error:
                held = f"; {len(self._archives)} lazy commits with {self._archives.rows} rows were only in this process"
                raise TransientError(
                    f"the warehouse of {self.source} went away",
                    where=Location(self._place),
                    hint="what it did not acknowledge may be missing: open it, connect again, and look"
                    + (held if self._archives else ""),
                ) from error
            fewer = self._archives_there < there
        if fewer and self._flushed is not None:
            self._flushed(reason)

    def _connect(self, **hello: str | None) -> tuple[Wire, Message]:
        address = self._address if isinstance(self._address, Address) else Address.read(self._address)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address.socket)
        except OSError as error:
            connection.close()
            raise closed_warehouse(self._place) from error
        wire = Wire(connection, None)
        try:
            wire.send({"key": address.key, "protocol": PROTOCOL, **hello})
            welcome, _ = wire.receive()
        except Gone as error:
            raise closed_warehouse(self._place) from error
        if "error" in welcome:
            wire.close()
            raise error_from_json(welcome["error"])
        return wire, welcome

    def _listen(self) -> None:
        """Opens the second connection, before the first lazy commit."""
        with self._exchanging():
            if self._listening is None:
                self._listener, _ = self._connect(listen=self._token)
                self._listening = threading.Thread(target=self._serve_demands, name="headgate-demands", daemon=True)
                self._listening.start()

    def _serve_demands(self) -> None:
        while self._listener is not None:
            try:
                self._answer_demand(self._listener)
            except Gone:
                # After a demand that took too long the warehouse drops the connection, but not the producer.
                self._listener = self._connect_again()

    def _connect_again(self) -> Wire | None:
        if self._is_closed or self._wire.is_gone:
            return None
        try:
            return self._connect(listen=self._token)[0]
        except HeadgateError:
            return None

    def _answer_demand(self, wire: Wire) -> None:
        demand, _ = wire.receive()
        self._given |= self._archives.drop(demand["taken"])
        archive = self._archives.oldest(instant_from_json(demand["demand"]))
        if archive is not None:
            wire.send({"number": archive.number, "commit_at": instant_to_json(archive.commit_at)})
            wire.send_rows(archive.batches)
            wire.send({"commit": True})
            return
        wire.send({"number": None})
        given, self._given = self._given, False
        if given and self._flushed is not None:
            try:
                self._flushed(demand["reason"])
            except Exception:
                # The thread goes on: without it no reader would get what is committed lazily.
                _LOGGER.exception("the policy failed when it heard of a flush")
