"""The messages of pgoutput (protocol version 1) that are not rows, and where the rows' messages have what.

Every message comes inside one of the replication protocol's own, whose header is 25 bytes long; offsets count from the
beginning of that header, so that nothing is copied:

    'w' | wal start 8 | wal end 8 | clock 8 | message
    'B' final lsn 8, commit time 8, xid 4                      'I' relation 4 | 'N' tuple
    'C' flags 1, commit lsn 8, end lsn 8, commit time 8        'U' relation 4 | ['K' or 'O' tuple] | 'N' tuple
    'R' the layout of a relation                               'D' relation 4 | 'K' or 'O' tuple
    'T' count 4, flags 1, relations                            'O' origin, 'Y' type, 'M' message: not needed

A relation's layout precedes its first row, and comes again whenever it may have changed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from headgate.capture.events import to_micros

WAL_DATA = ord("w")
BEGIN, COMMIT, RELATION, TRUNCATE = ord("B"), ord("C"), ord("R"), ord("T")
INSERT, UPDATE, DELETE = ord("I"), ord("U"), ord("D")
KIND = 25
"""Where a message's kind is ..."""
BODY = 26
"""... and what follows it: the relation, for rows."""

_BEGIN = struct.Struct(">QqI")
_KEEPALIVE = struct.Struct(">QqB")
_TRUNCATE = struct.Struct(">IB")
_EPOCH = to_micros(datetime(2000, 1, 1, tzinfo=UTC))


class Begin(NamedTuple):
    """A transaction begins that committed at `lsn` (where its commit record begins)."""

    lsn: int
    commit_at: int
    """Microseconds since 1970 on the source's clock."""


class Keepalive(NamedTuple):
    """Everything that committed before `lsn` has been sent."""

    lsn: int
    reply: bool
    """The server waits for an answer."""


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """A column of a relation's rows."""

    name: str
    type_oid: int
    typmod: int
    identity: bool
    """It is part of the replica identity."""


@dataclass(frozen=True, slots=True)
class RelationLayout:
    """How the rows of a relation look from here on."""

    relation: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[LayoutColumn, ...]


def read_begin(message: memoryview) -> Begin:
    lsn, committed, _ = _BEGIN.unpack_from(message, BODY)
    return Begin(lsn, committed + _EPOCH)


def read_keepalive(message: memoryview) -> Keepalive:
    lsn, _, reply = _KEEPALIVE.unpack_from(message, 1)
    return Keepalive(lsn, bool(reply))


def read_truncate(message: memoryview) -> tuple[int, ...]:
    """The relations that were emptied."""
    count, _ = _TRUNCATE.unpack_from(message, BODY)
    relations: tuple[int, ...] = struct.unpack_from(f">{count}I", message, BODY + _TRUNCATE.size)
    return relations


def read_layout(message: memoryview) -> RelationLayout:
    body = bytes(message[BODY:])
    (relation,) = struct.unpack_from(">I", body)
    schema, name, rest = body[4:].split(b"\0", 2)
    identity, count = struct.unpack_from(">cH", rest)
    rest = rest[3:]
    columns = []
    for _ in range(count):
        flags = rest[0]
        column, rest = rest[1:].split(b"\0", 1)
        type_oid, typmod = struct.unpack_from(">Ii", rest)
        rest = rest[8:]
        columns.append(LayoutColumn(column.decode(), type_oid, typmod, bool(flags & 1)))
    # An empty name stands for the system's own schema.
    return RelationLayout(relation, schema.decode() or "pg_catalog", name.decode(), identity.decode(), tuple(columns))


def read_lsn(text: str) -> int:
    """A position in the WAL as a number, from PostgreSQL's way of writing it: 16/B374D848."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def show_lsn(lsn: int) -> str:
    """The inverse of `read_lsn`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
