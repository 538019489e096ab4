"""A producer's PEP 249 connection: rows are buffered, and one commit makes all of them visible.

    with headgate.connect(…, tables=["orders"]) as connection:
        connection.cursor().executemany("INSERT INTO orders VALUES (%s, %s)", rows)

Lazy commits (any policy but `AtOnce`) are archives until they are flushed: by the policy, when a reader's bound demands them,
by a commit that materializes, or when the connection closes.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from headgate.producing import dbapi
from headgate.producing.channel import Channel
from headgate.producing.cursor import Cursor
from headgate.producing.dbapi import InterfaceError, OperationalError, errors_of_pep_249
from headgate.producing.parameters import require_paramstyle
from headgate.producing.policies import AtOnce, Policy
from headgate.producing.tables import OwnTables
from headgate.producing.transaction import OpenTransaction


class Connection:
    """One producer's connection, for one thread at a time.

    `tables` are its own from the start: nobody else writes to them until it closes. CREATE TABLE and DROP TABLE are done at
    once; everything else waits for `commit`. Rows wait in `memory_bytes` of memory and then in scratch files; of tables with a
    key, rows that are found or written are also cached, all of them up to `cache_rows` per table.
    """

    Warning: ClassVar = dbapi.Warning
    Error: ClassVar = dbapi.Error
    InterfaceError: ClassVar = dbapi.InterfaceError
    DatabaseError: ClassVar = dbapi.DatabaseError
    DataError: ClassVar = dbapi.DataError
    OperationalError: ClassVar = dbapi.OperationalError
    IntegrityError: ClassVar = dbapi.IntegrityError
    InternalError: ClassVar = dbapi.InternalError
    ProgrammingError: ClassVar = dbapi.ProgrammingError
    NotSupportedError: ClassVar = dbapi.NotSupportedError

    def __init__(
        self,
        channel: Channel,
        tables: Collection[str],
        *,
        policy: Policy | None = None,
        durable: bool = True,
        paramstyle: str = dbapi.paramstyle,
        memory_bytes: int = 64 << 20,
        cache_rows: int = 1_000_000,
        check_every: timedelta = timedelta(seconds=1),
        part: tuple[str, int] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """`policy` must be the one that the channel tells about flushes; `on_close` is called when the channel is closed.

        `part` is a transaction that another connection began (`begin_parts`) and the number of a part of it, which the
        commit of this connection puts.
        """
        require_paramstyle(paramstyle)
        self.is_closed = False
        self._channel = channel
        self._policy = policy or AtOnce()
        self._lazy = bool(getattr(self._policy, "lazy", True))
        self._durable = durable
        self._part = part
        self._was_put = False
        self._check_every = check_every.total_seconds()
        self._on_close = on_close
        self._trouble: BaseException | None = None
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="headgate-producer-"))
        self._transaction = OpenTransaction(self._scratch, memory_bytes)
        try:
            if part is not None:
                with errors_of_pep_249():
                    channel.join(part[0])
            self._tables = OwnTables(channel, tables, self._transaction, cache_rows=cache_rows, paramstyle=paramstyle)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise

    @property
    def archives(self) -> int:
        """How many lazy commits readers do not see yet, unless they demand them."""
        return self._channel.archives

    def cursor(self) -> Cursor:
        """A new cursor."""
        self._require_open()
        return Cursor(self, self._tables)

    def commit(self, materialize: bool = False) -> datetime | None:
        """Makes the open transaction visible, with a lazy policy to those who demand it; gives its commit time.

        To materialize is to return when everything that was committed is in the Delta tables. After an error, commit again or
        roll back.
        """
        self._require_open()
        self._raise_trouble()
        self._tables.flush()
        commit_at: datetime | None = None
        if self._part is not None:
            self._put(*self._part)
        elif len(self._transaction):
            with errors_of_pep_249():
                commit_at = self._channel.commit(self._transaction.batches(), durable=self._durable, lazy=self._lazy)
            self._tables.committed()
        self._transaction.clear()
        if self._lazy and commit_at is not None:
            self._watch()
        if materialize:
            with errors_of_pep_249():
                self._channel.materialize()
        return commit_at

    def begin_parts(self) -> str:
        """Opens a transaction whose parts other connections put, each in a process of its own; gives its name.

        They connect with `part=(name, number)` and may write the tables of this one. The transaction is forgotten when
        this connection closes.
        """
        self._require_open()
        with errors_of_pep_249():
            return self._channel.begin_parts()

    def commit_parts(self, transaction: str, parts: int) -> datetime | None:
        """Commits the parts 0 … parts − 1 as one transaction, in this order; unless all are there it raises, and stays open."""
        self._require_open()
        self._tables.flush()
        with errors_of_pep_249():
            commit_at = self._channel.commit_parts(transaction, parts, durable=self._durable, lazy=self._lazy)
        self._tables.forget()
        if self._lazy and commit_at is not None:
            self._watch()
        return commit_at

    def rollback(self) -> None:
        """Drops the open transaction."""
        self._require_open()
        self._transaction.clear()
        self._tables.rolled_back()

    def close(self) -> None:
        """Drops the open transaction, flushes lazy commits, and gives the tables back. May be called again."""
        if self.is_closed:
            return
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()
        try:
            self.rollback()
            with errors_of_pep_249():
                self._channel.close()
        finally:
            self.is_closed = True
            shutil.rmtree(self._scratch, ignore_errors=True)
            if self._on_close is not None:
                self._on_close()
        self._raise_trouble()

    def __enter__(self) -> Connection:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commits, or rolls back when an error leaves the block; closes in any case."""
        try:
            if kind is None and not self.is_closed:
                self.commit()
        finally:
            self.close()

    def _put(self, transaction: str, part: int) -> None:
        if not len(self._transaction):
            return
        if self._was_put:
            raise InterfaceError(f"part {part} was put already", hint="connect once more for every part")
        with errors_of_pep_249():
            self._channel.put(self._transaction.batches(), transaction, part, durable=self._durable)
        self._was_put = True
        self._tables.rolled_back()

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._ask_policy, name="headgate-producer-policy", daemon=True)
            self._watcher.start()

    def _ask_policy(self) -> None:
        while not self._stop.wait(self._check_every):
            try:
                if self._channel.archives and self._policy.should_flush():
                    self._channel.flush()
            except BaseException as error:
                self._trouble = error

    def _raise_trouble(self) -> None:
        """An error of the policy's thread, or of the user's policy, is raised by the next commit or by close."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise OperationalError(
                f"lazy commits could not be flushed: {trouble}", hint="they are kept; the policy is asked again"
            ) from trouble

    def _require_open(self) -> None:
        if self.is_closed:
            raise InterfaceError("the connection is closed", hint="connect again")
