"""The warehouse's side of one producer in another process: it answers the producer's calls.

The producer's rows are in segments that it was given and writes itself; what comes in are references, once a transaction is whole: a
producer that stalls or dies in the middle holds nobody up, and what it wrote goes with its segments.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from headgate.capture.block_writer import OpenSegment, Put
from headgate.capture.source import SourceTable
from headgate.errors import HeadgateError
from headgate.producing.channel import Channel
from headgate.producing.remote_values import (
    Gone,
    Message,
    error_to_json,
    hang_up,
    hear,
    instant_from_json,
    instant_to_json,
    puts_from_json,
    say,
    say_file,
    table_from_json,
    table_to_json,
)

_LOGGER = logging.getLogger(__name__)


class ServedChannel(Channel, Protocol):
    """A channel in the warehouse's process that takes what another process wrote."""

    def open_segment(self) -> OpenSegment:
        """A new segment for the producer."""
        ...

    def reserve_segment(self) -> Path:
        """The path of one for a producer on another machine, which makes the file itself."""
        ...

    def seal_segments(self, names: Collection[str]) -> None:
        """Says that the producer adds nothing more to these segments."""
        ...

    def commit_blocks(self, puts: Sequence[Put], *, durable: bool, lazy: bool) -> datetime | None:
        """Commits what the producer wrote: references to blocks, on the disk already if the commit is to be durable."""
        ...

    def offer(self, transaction: str, part: int, puts: Sequence[Put]) -> None:
        """A part of a transaction is where the producer wrote it."""
        ...


MakeChannel = Callable[[str | None, str, Callable[[str], None]], ServedChannel]
"""Opens the channel of a producer: its source, its name, and who hears why readers see its lazy commits."""


class RemoteProducer:
    """One attached producer; `who` names it in messages."""

    def __init__(self, who: str, source: str | None, make_channel: MakeChannel, wire: Connection) -> None:
        self.who = who
        self._flushed: list[str] = []
        """Why readers saw lazy commits since the last answer."""
        self._channel = make_channel(source, who, self._flushed.append)
        self._wire = wire
        self._segments: list[str] = []
        """What it was given to write."""
        self._is_stopped = False
        self._is_detached = False
        self._known_tables: Mapping[str, SourceTable] | None = None

    def serve(self) -> None:
        """Answers the producer's calls until it closes or goes away; its tables are then given back."""
        try:
            self._send(self._channel.source)
            while not self._is_detached:
                self._reply(*hear(self._wire))
        except Gone:
            what = "was still attached" if self._is_stopped else "went away without closing"
            _LOGGER.warning("the producer %s %s", self.who, what)
        finally:
            try:
                self.detach()
            finally:
                hang_up(self._wire)
                self._wire.close()

    def stop(self) -> None:
        """Lets the answer that is being made go out, and then detaches the producer: the warehouse closes."""
        self._is_stopped = True
        hang_up(self._wire, socket.SHUT_RD)

    def detach(self) -> None:
        """Gives its tables back; what it committed stays."""
        if not self._is_detached:
            self._is_detached = True
            self._channel.seal_segments(self._segments)
            self._channel.close()

    def _reply(self, message: Message, keys: pa.Table | None) -> None:
        try:
            value = self._call(message, keys)
            if isinstance(value, OpenSegment):
                try:
                    self._segments.append(value.name)
                    self._send(value.name)
                    say_file(self._wire, value.descriptor)
                finally:
                    os.close(value.descriptor)
            elif isinstance(value, pa.Table):
                self._send(None, value)
            else:
                self._send(value)
        except Gone:
            raise
        except Exception as error:
            if not isinstance(error, HeadgateError):
                _LOGGER.exception("a call of %s failed: %s", self.who, message.get("call"))
            say(self._wire, {"error": error_to_json(error), **self._news()})

    def _call(self, message: Message, keys: pa.Table | None) -> Any:
        channel = self._channel
        match message["call"]:
            case "segment":
                return channel.open_segment() if message["is_near"] else self._reserved()
            case "commit":
                puts = self._puts(message)
                return self._written(channel.commit_blocks(puts, durable=message["durable"], lazy=message["lazy"]))
            case "begin_parts":
                return channel.begin_parts()
            case "join":
                return channel.join(message["transaction"])
            case "offer":
                channel.offer(message["transaction"], message["part"], self._puts(message))
                return self._written(None)
            case "commit_parts":
                return instant_to_json(
                    channel.commit_parts(
                        message["transaction"], message["parts"], durable=message["durable"], lazy=message["lazy"]
                    )
                )
            case "abandon":
                return channel.abandon(message["transaction"])
            case "flush":
                return channel.flush(instant_from_json(message["upto"]))
            case "claim":
                return channel.claim(message["tables"])
            case "create":
                return channel.create(table_from_json(message["table"]))
            case "drop":
                return channel.drop(message["table"])
            case "count":
                return channel.count(message["table"])
            case "rows":
                return channel.rows(message["table"])
            case "lookup":
                return channel.lookup(message["table"], tuple(message["columns"]), keys)
            case "query":
                return channel.query(message["text"])
            case "materialize":
                return channel.materialize()
            case "close":
                return self.detach()
        raise ValueError(f"there is no call {message['call']}")

    def _reserved(self) -> str:
        """The path of a segment that the producer makes itself."""
        path = self._channel.reserve_segment()
        self._segments.append(path.name)
        return str(path)

    def _puts(self, message: Message) -> list[Put]:
        return puts_from_json(message["blocks"], self._segments)

    def _written(self, committed_at: datetime | None) -> int | None:
        """What the producer wrote was taken: only the segment is written further that was given out last."""
        if len(self._segments) > 1:
            *former, last = self._segments
            self._channel.seal_segments(former)
            self._segments = [last]
        return instant_to_json(committed_at)

    def _send(self, value: object, rows: pa.Table | None = None) -> None:
        say(self._wire, {"value": value, **self._news()}, rows)

    def _news(self) -> Message:
        """What every answer tells besides: lazy commits that readers do not see yet, why they saw others, and the tables if
        they are not what the producer knows."""
        flushed, self._flushed[:] = list(self._flushed), []
        if self._is_detached:
            return {"archives": 0, "flushed": flushed}
        news: Message = {"archives": self._channel.archives, "flushed": flushed}
        tables = dict(self._channel.tables)
        if tables != self._known_tables:
            self._known_tables = tables
            news["tables"] = [table_to_json(table) for table in tables.values()]
        return news
