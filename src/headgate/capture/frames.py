"""Frames: how a transaction, or a group of small ones, lies in a segment of the stream log.

    "HGF2" | header length u32 | body length u64 | crc32 of these lengths and the header u32 | header JSON | body

The body is one Arrow IPC stream per table with small content; the header gives each stream's offset, length and crc32,
the Parquet files that hold the tables with large content, and the blocks that writers put into segments of their own
(`block_writer`): a frame with blocks alone is a commit record, metadata only. A group's rows of a table lie together, in the order of its
transactions; the header says how many are whose. A frame is valid when all its checksums fit. `durable`
is the position up to which the log was known to be on the disk when the frame was written: a damaged frame at or
below a later frame's `durable` cannot be an interrupted write.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

MAGIC = b"HGF2"
_PREFIX = struct.Struct("<4sIQI")
PREFIX_BYTES = _PREFIX.size
MAX_HEADER_BYTES = 64 << 20
_FREE = 7


@dataclass(frozen=True, slots=True)
class Inline:
    """A table's rows inside the frame; `offset` counts from the body's start."""

    rows: int
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class SideFile:
    """A table's rows in a Parquet file of the log's folder."""

    name: str
    rows: int
    bytes: int


class Block(NamedTuple):
    """A table's rows in a segment that a writer wrote itself, as one Arrow IPC stream."""

    segment: str
    """The name of the file."""
    offset: int
    length: int
    crc: int
    rows: int
    span: int
    """More than any sequence number in it, for the part that follows; 0 in blocks that are no part of anything."""
    salt: int
    """A random number: the partition whose range holds it reads the block."""
    part: int = 0
    """Which part of the transaction it belongs to ..."""
    base: int = 0
    """... and what is added to its sequence numbers, so that they follow those of the parts before."""
    partition: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The transactions of a frame in order: their positions, commit times, and how many rows of each table they have."""

    positions: Numbers
    commit_at: Numbers
    """Microseconds since 1970."""
    rows: Mapping[str, Numbers]

    @staticmethod
    def of_one(position: int, commit_at: int, rows: Mapping[str, int]) -> Group:
        """A transaction that is alone in its frame."""
        numbers = np.array([position, commit_at, *rows.values()], dtype=np.int64)
        counts = {table: numbers[place : place + 1] for place, table in enumerate(rows, start=2)}
        return Group(numbers[:1], numbers[1:2], counts)

    def part(self, after: int, upto: int) -> slice:
        """Which of them are in (after, upto]."""
        first, last = np.searchsorted(self.positions, (after, upto), side="right")
        return slice(int(first), int(last))


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """What a frame says about its transactions."""

    group: Group
    initial: bool
    durable: int
    inline: Mapping[str, Inline]
    files: Mapping[str, tuple[SideFile, ...]]
    """Only of a transaction that is alone in its frame."""
    blocks: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    """Several of one table only of a transaction that is alone in its frame."""

    @property
    def first(self) -> int:
        return int(self.group.positions[0])

    @property
    def position(self) -> int:
        """The last transaction's."""
        return int(self.group.positions[-1])

    @property
    def commit_at(self) -> int:
        """The last transaction's."""
        return int(self.group.commit_at[-1])

    @property
    def body_bytes(self) -> int:
        return sum(part.length for part in self.inline.values())


class BadFrame(ValueError):
    """These bytes are not a whole frame; the text says why."""


def encode_rows(rows: pa.Table) -> bytes:
    """A table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(memoryview(sink.getvalue()))


def decode_rows(content: bytes) -> pa.Table:
    """The inverse of `encode_rows`; the rows share the memory of `content`."""
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


def encode_header(header: Header) -> bytes:
    """The frame's bytes before its body."""
    payload = {
        "positions": header.group.positions.tolist(),
        "commit_at": header.group.commit_at.tolist(),
        "rows": {name: counts.tolist() for name, counts in header.group.rows.items()},
        "initial": header.initial,
        "durable": header.durable,
        "inline": {name: [p.rows, p.offset, p.length, p.crc] for name, p in header.inline.items()},
        "files": {name: [[f.name, f.rows, f.bytes] for f in files] for name, files in header.files.items()},
    }
    if header.blocks:
        payload["blocks"] = {name: [_stored(each) for each in found] for name, found in header.blocks.items()}
    text = json.dumps(payload, separators=(",", ":")).encode()
    lengths = struct.pack("<IQ", len(text), header.body_bytes)
    return _PREFIX.pack(MAGIC, len(text), header.body_bytes, zlib.crc32(text, zlib.crc32(lengths))) + text


def header_bytes(prefix: bytes) -> int:
    """How many bytes of header follow the prefix. Raises `BadFrame` where no frame begins."""
    if len(prefix) < PREFIX_BYTES:
        raise BadFrame("the frame ends within its first bytes")
    magic, length, _, _ = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise BadFrame("no frame begins here")
    if length > MAX_HEADER_BYTES:
        raise BadFrame("the frame's length makes no sense")
    return int(length)


def decode_header(prefix: bytes, text: bytes) -> Header:
    """The header that `encode_header` wrote, its checksum tested."""
    length = header_bytes(prefix)
    _, _, body_length, crc = _PREFIX.unpack(prefix)
    if len(text) < length:
        raise BadFrame("the frame ends within its header")
    if zlib.crc32(text, zlib.crc32(struct.pack("<IQ", length, body_length))) != crc:
        raise BadFrame("the frame's header does not fit its checksum")
    payload = json.loads(text)
    header = Header(
        group=Group(
            positions=np.array(payload["positions"], dtype=np.int64),
            commit_at=np.array(payload["commit_at"], dtype=np.int64),
            rows={name: np.array(counts, dtype=np.int64) for name, counts in payload["rows"].items()},
        ),
        initial=payload["initial"],
        durable=payload["durable"],
        inline={name: Inline(*values) for name, values in payload["inline"].items()},
        files={name: tuple(SideFile(*values) for values in files) for name, files in payload["files"].items()},
        blocks={name: tuple(map(_block, blocks)) for name, blocks in payload.get("blocks", {}).items()},
    )
    if header.body_bytes != body_length:
        raise BadFrame("the frame's lengths contradict each other")
    return header


def _stored(block: Block) -> list[object]:
    """As a header has it: two places behind the salt are free."""
    return [*block[:_FREE], None, None, *block[_FREE:]]


def _block(stored: list[Any]) -> Block:
    return Block(*stored[:_FREE], *stored[_FREE + 2 :])


def check_rows(part: Inline, content: bytes) -> None:
    """Raises `BadFrame` unless `content` is what the header promises."""
    if len(content) < part.length:
        raise BadFrame("the frame ends within its rows")
    if zlib.crc32(content) != part.crc:
        raise BadFrame("the frame's rows do not fit their checksum")
