"""The warehouse's side of one producer in another process: it answers the producer's calls and pulls its lazy commits.

Two wires: on the first the producer calls, on the second (once it commits lazily) the warehouse demands. Lazy commits come in by
demand only, also when the producer itself flushes, so that there is one order. A transaction is spooled before the
channel sees it: a producer that stalls or dies in the middle holds nobody up and leaves nothing behind.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from headgate.capture.events import from_micros
from headgate.capture.frames import decode_rows, encode_rows
from headgate.capture.source import SourceTable
from headgate.capture.spool import Spool
from headgate.errors import HeadgateError, TransientError
from headgate.producing.channel import Channel
from headgate.producing.remote_values import (
    error_to_json,
    instant_from_json,
    instant_to_json,
    table_from_json,
    table_to_json,
)
from headgate.producing.remote_wire import Gone, Message, Silent, Wire

_LOGGER = logging.getLogger(__name__)
_LOOK_AGAIN = 0.02


class ServedChannel(Channel, Protocol):
    """A channel in the warehouse's process that takes commits which were made earlier.

    If it has a method `on_demand`, that is given `RemoteProducer.pull`.
    """

    @property
    def archives(self) -> int:
        """How many lazy commits it has that readers do not see yet."""
        ...

    def commit(
        self,
        rows: Iterable[tuple[str, pa.RecordBatch]],
        *,
        durable: bool = True,
        lazy: bool = False,
        commit_at: datetime | None = None,
    ) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """What one producer may take of the warehouse's process."""

    spool_folder: Path
    spool_bytes: int
    patience: float
    """How many seconds a demand may go without an answer."""


class RemoteProducer:
    """One attached producer; `who` names it in messages."""

    def __init__(self, who: str, channel: ServedChannel, wire: Wire, limits: BufferLimits) -> None:
        self.who = who
        self.token = secrets.token_hex(16)
        """What the second wire must show."""
        self._channel = channel
        self._wire = wire
        self._limits = limits
        self._order = threading.RLock()
        """Held from demanding a commit until the channel has it, and while the channel takes any other."""
        self._listener: Wire | None = None
        self._is_listening = False
        self._is_detached = False
        self._is_stopped = False
        self._is_sending = False
        """Whether rows of a transaction are coming in."""
        self._taken = 0
        self._waiting = threading.Lock()
        self._waiting_commits = 0
        self._waiting_rows = 0
        self._known_tables: Mapping[str, SourceTable] | None = None

    def serve(self) -> None:
        """Answers the producer's calls until it closes or goes away; its tables are then given back."""
        try:
            self._wire.send({"token": self.token, "source": self._channel.source, **self._news()})
            while not self._is_detached:
                header, body = self._wire.receive()
                if "archived" in header:
                    self._count(1, header["archived"])
                else:
                    self._reply(header, body)
        except Gone:
            self._report()
        finally:
            try:
                self._detach()
            finally:
                self._wire.close()
                if self._listener is not None:
                    self._listener.close()

    def listen(self, wire: Wire) -> None:
        """Takes the second wire: from now on demands can be made. It may come again, after one that broke."""
        if not self._is_listening:
            self._is_listening = True
            on_demand: Callable[[Callable[[datetime | None], None]], None] | None
            if (on_demand := getattr(self._channel, "on_demand", None)) is not None:
                on_demand(self.pull)
        # The producer commits lazily once it has this answer, and whoever reads then must know whom to ask.
        wire.send({"value": None})
        self._listener = wire
        if self._is_detached:
            wire.close()

    def pull(self, upto: datetime | None, reason: str = "demand") -> None:
        """Returns when the channel has every lazy commit up to that instant, None for all; those of a dead producer are lost.

        Whoever calls it holds no lock that the channel's `commit` or `close` needs. The producer's policy hears the reason.
        """
        with self._order:
            while self._is_listening and (wire := self._listening()) is not None:
                with self._spool() as spool:
                    try:
                        wire.send({"demand": instant_to_json(upto), "taken": self._taken, "reason": reason})
                        archive, _ = wire.receive()
                        if archive["number"] is None:
                            return
                        _, _, failure = wire.receive_rows(spool.add)
                    except Silent:
                        raise self._silent() from None
                    except Gone:
                        continue
                    if failure is not None:
                        raise failure
                    self._channel.commit(
                        spool.drain(), durable=False, lazy=False, commit_at=from_micros(archive["commit_at"])
                    )
                    self._taken = archive["number"]
                    self._count(-1, -spool.rows)

    def stop(self) -> None:
        """Lets the answer that is being made go out, and then detaches the producer: the warehouse closes."""
        self._is_stopped = True
        self._wire.stop_receiving()

    def _reply(self, header: Message, body: Any) -> None:
        try:
            if header["call"] == "commit":
                done, value = self._commit(header)
                if not done:
                    return
            else:
                value = self._call(header, body)
        except Gone:
            raise
        except Exception as error:
            if not isinstance(error, HeadgateError):
                _LOGGER.exception("a call of %s failed: %s", self.who, header["call"])
            self._wire.send({"error": error_to_json(error), **self._news()})
            return
        if isinstance(value, pa.Table):
            self._wire.send_rows(("", batch) for batch in value.to_batches())
            self._wire.send({"table": True, **self._news()}, encode_rows(value.schema.empty_table()))
        else:
            self._wire.send({"value": value, **self._news()})

    def _call(self, header: Message, body: Any) -> Any:
        """Every call finds all that the producer committed before it."""
        channel, call = self._channel, header["call"]
        upto = instant_from_json(header.get("upto"))
        self._pull_waiting(upto, header["reason"])
        match call:
            case "flush":
                return channel.flush(upto)
            case "claim":
                return channel.claim(header["tables"])
            case "create":
                return channel.create(table_from_json(header["table"]))
            case "drop":
                return channel.drop(header["table"])
            case "count":
                return channel.count(header["table"])
            case "rows":
                return channel.rows(header["table"])
            case "lookup":
                return channel.lookup(header["table"], tuple(header["columns"]), decode_rows(body))
            case "query":
                return channel.query(header["text"])
            case "materialize":
                return channel.materialize()
            case "close":
                return self._detach()
        raise ValueError(f"there is no call {call}")

    def _commit(self, header: Message) -> tuple[bool, int | None]:
        """Whether the transaction ended, rather than being broken off, and its commit time."""
        with self._spool() as spool:
            self._is_sending = True
            end, _, failure = self._wire.receive_rows(spool.add)
            self._is_sending = False
            if not end["commit"]:
                return False, None
            if failure is not None:
                raise failure
            with self._order:
                self._pull_waiting(None, header["reason"])
                committed_at = self._channel.commit(spool.drain(), durable=header["durable"], lazy=header["lazy"])
                return True, instant_to_json(committed_at)

    def _pull_waiting(self, upto: datetime | None, reason: str) -> None:
        # Its notices came on the wire on which it calls, so that the number is right for what it committed before.
        if self._waiting_commits > 0:
            self.pull(upto, reason)

    def _listening(self) -> Wire | None:
        """The wire for demands; waits a while for a new one if it broke. None when the producer is gone."""
        deadline = time.monotonic() + self._limits.patience
        while not (self._is_detached or self._wire.is_gone):
            listener = self._listener
            if listener is not None and not listener.is_gone:
                return listener
            if time.monotonic() > deadline:
                raise self._silent()
            time.sleep(_LOOK_AGAIN)
        return None

    def _silent(self) -> TransientError:
        return TransientError(
            f"the producer {self.who} did not answer a demand for {self._limits.patience:g} seconds",
            hint=f"it is known to hold {self._held()}; see whether it is stopped, and let it go on or end it",
        )

    def _report(self) -> None:
        what = "was still attached" if self._is_stopped else "went away without closing"
        dropped = "; the transaction that it was sending is dropped" if self._is_sending else ""
        lost = f"; {self._held()} that it had not flushed are lost" if self._waiting_commits else ""
        _LOGGER.warning("the producer %s %s%s%s", self.who, what, dropped, lost)

    def _held(self) -> str:
        return f"{self._waiting_commits} lazy commits with {self._waiting_rows} rows"

    def _count(self, commits: int, rows: int) -> None:
        with self._waiting:
            self._waiting_commits += commits
            self._waiting_rows += rows

    def _detach(self) -> None:
        with self._order:
            if self._is_detached:
                return
            self._is_detached = True
            self._channel.close()

    def _news(self) -> Message:
        """What every answer tells besides: lazy commits that are here, and the tables if they are not what it knows."""
        if self._is_detached:
            return {"archives": 0}
        news: Message = {"archives": self._channel.archives}
        tables = dict(self._channel.tables)
        if tables != self._known_tables:
            self._known_tables = tables
            news["tables"] = [table_to_json(table) for table in tables.values()]
        return news

    @contextmanager
    def _spool(self) -> Iterator[Spool]:
        spool = Spool(self._limits.spool_folder, self._limits.spool_bytes)
        try:
            yield spool
        finally:
            spool.close()
