"""A warehouse that keeps commits in memory, the rows that the tests write to it, and the child process that writes them."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headgate.capture.block_writer import OpenSegment, Put, create_segment
from headgate.capture.frames import Block, Inline, check_rows, decode_rows
from headgate.capture.shape import Shape
from headgate.capture.source import SourceTable
from headgate.delta.events import UPSERT
from headgate.errors import Location, ProducerBusy, UnknownTable
from headgate.producing.remote import RemoteChannel

SALES = SourceTable("sales", StructType().add("id", "long", nullable=False).add("price", "double"), ("id",))
VISITS = SourceTable("visits", StructType().add("page", "string").add("seconds", "long"), ())
START = datetime(2024, 1, 1, tzinfo=UTC)


def sale(*ids: int) -> tuple[str, pa.RecordBatch]:
    given = pa.record_batch({"id": pa.array(ids, pa.int64()), "price": pa.array([1.5] * len(ids))})
    return "sales", Shape("feed", SALES).build_many(given, UPSERT, 0)


def visit(*seconds: int) -> tuple[str, pa.RecordBatch]:
    given = pa.record_batch({"page": pa.array(["home"] * len(seconds)), "seconds": pa.array(seconds, pa.int64())})
    return "visits", Shape("feed", VISITS).build_many(given, UPSERT, 0)


def commit_lazily(channel: RemoteChannel, *ids: int) -> None:
    """Commits sales that readers do not see yet."""
    assert channel.commit([sale(*ids)], lazy=True, durable=False) is not None


@dataclass(frozen=True)
class Commit:
    """What the channel was given."""

    ids: tuple[int, ...]
    """Of sales, or the seconds of visits."""
    durable: bool
    lazy: bool


@dataclass
class Shelf:
    """What all channels share."""

    tables: dict[str, SourceTable] = field(default_factory=lambda: {"sales": SALES, "visits": VISITS})
    commits: list[Commit] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    attached: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    rows_seen: int = 0
    unseen: int = 0
    flushed: list[Callable[[str], None]] = field(default_factory=list)
    """Who hears why lazy commits are seen."""
    failure: Exception | None = None
    keep: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    segments: dict[str, bool] = field(default_factory=dict)
    """Whether each is sealed."""
    parts: dict[int, Sequence[Put]] = field(default_factory=dict)

    def read(self, block: Block) -> pa.Table:
        with (self.folder / block.segment).open("rb") as segment:
            content = os.pread(segment.fileno(), block.length, block.offset)
        check_rows(Inline(block.rows, 0, block.length, block.crc), content)
        return decode_rows(content)

    def see(self, reason: str) -> None:
        """Lets readers see all lazy commits."""
        if self.unseen:
            self.unseen = 0
            for flushed in self.flushed:
                flushed(reason)

    def channel(self, source: str | None, who: str, flushed: Callable[[str], None]) -> ShelfChannel:
        if source not in ("feed", None):
            raise UnknownTable(f"there is no source {source}", hint="it is called feed")
        self.flushed.append(flushed)
        return ShelfChannel(self, "feed", who)

    @property
    def ids(self) -> list[int]:
        return [number for commit in self.commits for number in commit.ids]


class ShelfChannel:
    """One producer's channel to the shelf."""

    def __init__(self, shelf: Shelf, source: str, who: str) -> None:
        self.source = source
        self._shelf = shelf
        self._who = who
        shelf.attached.append(who)

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        return self._shelf.tables

    @property
    def archives(self) -> int:
        return self._shelf.unseen

    def claim(self, tables: Collection[str]) -> None:
        with self._shelf.lock:
            for table in tables:
                owner = self._shelf.owners.setdefault(table, self._who)
                if owner != self._who:
                    raise ProducerBusy(
                        f"{table} is written by {owner}", where=Location("feed", 7), hint="close it there"
                    )

    def create(self, table: SourceTable) -> None:
        self._shelf.tables[table.name] = table

    def drop(self, table: str) -> None:
        del self._shelf.tables[table]

    def count(self, table: str) -> int:
        return len(self._shelf.ids)

    def rows(self, table: str) -> pa.Table:
        return pa.table({"id": pa.array(self._shelf.ids, pa.int64())})

    def lookup(self, table: str, columns: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
        if columns != ("id",):
            return None
        rows = self.rows(table)
        return rows.filter(pc.is_in(rows["id"], keys["id"].combine_chunks()))

    def query(self, text: str) -> pa.Table:
        if text == "fail":
            raise KeyError("a mistake in the warehouse")
        return pa.table({"text": [text]})

    def open_segment(self) -> OpenSegment:
        if self._shelf.failure is not None:
            raise self._shelf.failure
        name = f"{secrets.token_hex(8)}.blocks"
        segment = create_segment(self._shelf.folder, name)
        self._shelf.segments[name] = False
        return segment

    def reserve_segment(self) -> Path:
        name = f"{secrets.token_hex(8)}.blocks"
        self._shelf.segments[name] = False
        return self._shelf.folder / name

    def seal_segments(self, names: Collection[str]) -> None:
        self._shelf.segments |= dict.fromkeys(names, True)

    def commit_blocks(self, puts: Sequence[Put], *, durable: bool, lazy: bool) -> datetime | None:
        ids: list[int] = []
        with self._shelf.lock:
            if self._shelf.failure is not None:
                raise self._shelf.failure
            for table, block in puts:
                self._shelf.rows_seen += block.rows
                if self._shelf.keep:
                    ids.extend(self._shelf.read(block).column("id" if table == "sales" else "seconds").to_pylist())
            if self._shelf.keep and not ids:
                return None
            self._shelf.commits.append(Commit(tuple(ids), durable, lazy))
            self._shelf.unseen += lazy
            if not lazy:
                self._shelf.see("order")
            return START + timedelta(seconds=len(self._shelf.commits))

    def begin_parts(self) -> str:
        return "load"

    def join(self, transaction: str) -> None:
        self._shelf.calls.append(f"join {transaction}")

    def offer(self, transaction: str, part: int, puts: Sequence[Put]) -> None:
        self._shelf.parts[part] = puts

    def commit_parts(self, transaction: str, parts: int, *, durable: bool, lazy: bool) -> datetime | None:
        puts = [put for part in range(parts) for put in self._shelf.parts[part]]
        return self.commit_blocks(puts, durable=durable, lazy=lazy)

    def abandon(self, transaction: str) -> None:
        self._shelf.calls.append(f"abandon {transaction}")

    # In the warehouse's own process rows would come in here.
    def commit(self, rows: object, *, durable: bool = True, lazy: bool = False) -> datetime | None:
        raise NotImplementedError

    def put(self, rows: object, transaction: str, part: int, *, durable: bool = True) -> None:
        raise NotImplementedError

    def flush(self, upto: datetime | None = None) -> None:
        self._shelf.calls.append("flush" if upto is None else f"flush {upto:%S}")
        self._shelf.see("policy")

    def materialize(self) -> None:
        self._shelf.calls.append("materialize")
        self._shelf.see("materialize")

    def close(self) -> None:
        self._shelf.see("close")
        with self._shelf.lock:
            self._shelf.owners = {t: owner for t, owner in self._shelf.owners.items() if owner != self._who}
            self._shelf.attached.remove(self._who)


def main(address: str, action: str) -> None:
    """A producer in a process of its own: does something, says so, and waits for a line before it goes on."""

    def rows() -> Iterable[tuple[str, pa.RecordBatch]]:
        yield sale(1)
        yield sale(2)
        pause("sending")
        yield sale(3)

    def pause(state: str) -> None:
        sys.stdout.write(f"{state}\n")
        sys.stdout.flush()
        sys.stdin.readline()

    channel = RemoteChannel(Path(address), "feed")
    channel.claim(["sales"])
    match action:
        case "send":
            channel.commit(rows())
        case "lazy":
            channel.commit([sale(1, 2)], lazy=True, durable=False)
            channel.commit([sale(3)], lazy=True, durable=False)
            pause("committed")
        case "many":
            given = pa.record_batch({"id": range(1 << 20), "price": [0.5] * (1 << 20)})
            batch = Shape("feed", SALES).build_many(given, UPSERT, 0)
            pause(str(2 * batch.nbytes))
            channel.commit([("sales", batch), ("sales", batch)])
    channel.close()
    pause("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
