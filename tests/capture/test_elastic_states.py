"""Whatever writers, consumers and crashes do to an elastic queue, it holds what a plain list of committed transactions holds."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.capture.block_writer import BlockWriter
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.locallog import LocalLog
from headgate.capture.places import read_rows, stamped
from headgate.capture.producer import ProducerSource
from headgate.clock import ManualClock
from headgate.errors import TransactionError
from tests.capture.shop import TABLES as SHOP_TABLES
from tests.capture.test_blocks import rows

ITEMS = SHOP_TABLES["items"]
TABLES = ("t", "u")
WRITERS = 3
Row = tuple[int, int, int]
"""Position, sequence and id."""
_ids = st.lists(st.integers(0, 5), max_size=4)
_ahead = st.sampled_from([0, 0, 0, 0, -1, 1])
_tables = st.fixed_dictionaries({"t": _ids, "u": _ids})


@dataclass
class Part:
    """What somebody put: its rows as (table, sequence, id)."""

    found: list[tuple[str, int, int]]

    @property
    def span(self) -> int:
        return len(self.found)


def part_of(ids: dict[str, list[int]]) -> tuple[Part, dict[str, pa.Table]]:
    """Rows numbered through all tables."""
    found: list[tuple[str, int, int]] = []
    tables = {}
    for table, each in ids.items():
        if each:
            tables[table] = rows(*each, first=len(found), text="x" * 200)
            found += [(table, len(found) + place, number) for place, number in enumerate(each)]
    return Part(found), tables


class Queue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.committed: list[tuple[int, list[tuple[str, int, int]]]] = []
        """The plain list: position, and rows of all tables."""
        self.in_memory = 0
        """How many of the last ones are nowhere else."""
        self.open_parts: dict[str, dict[int, Part]] = defaultdict(dict)
        self.consumed = 0
        self.trimmed = 0

    @initialize()
    def open(self) -> None:
        self.log = ElasticLog(self.folder, segment_bytes=3000, partition_bytes=2000, most_partitions=5)
        self.source = ProducerSource("s", dict.fromkeys(TABLES, ITEMS), self.log, self.clock)
        self.loader = self.source.attach("loader")
        self.names = {each: self.loader.begin_parts() for each in "ab"}
        self.writers = [self.writer() for _ in range(WRITERS)]
        self.open_parts.clear()

    def writer(self) -> BlockWriter:
        names: list[str] = []

        def open_segment() -> object:
            segment = self.log.open_segment()
            names.append(segment.name)
            return segment

        writer = BlockWriter(open_segment, segment_bytes=3000, memory_bytes=300)  # type: ignore[arg-type]
        writer.names = names  # type: ignore[attr-defined]
        return writer

    def note(self, parts: list[Part]) -> None:
        position, base = len(self.committed) + 1, 0
        found = []
        for part in parts:
            found += [(table, base + sequence, number) for table, sequence, number in part.found]
            base += part.span
        self.committed.append((position, found))

    @property
    def at(self) -> datetime:
        return self.clock.now()

    def number(self, transaction: str, ahead: int) -> int:
        """Of the next part; or of one put before, or of one that leaves a gap."""
        return max(0, len(self.open_parts[transaction]) + ahead)

    @rule(writer=st.integers(0, WRITERS - 1), transaction=st.sampled_from("ab"), ahead=_ahead, ids=_tables)
    def put(self, writer: int, transaction: str, ahead: int, ids: dict[str, list[int]]) -> None:
        part = self.number(transaction, ahead)
        found, tables = part_of(ids)
        for table, each in tables.items():
            self.writers[writer].put(table, each)
        self.loader.offer(self.names[transaction], part, self.writers[writer].finish(durable=False))
        self.open_parts[transaction][part] = found

    @rule(writer=st.integers(0, WRITERS - 1), ids=_tables)
    def put_and_drop(self, writer: int, ids: dict[str, list[int]]) -> None:
        for table, each in part_of(ids)[1].items():
            self.writers[writer].put(table, each)
        self.writers[writer].drop()

    @rule(transaction=st.sampled_from("ab"), more=st.sampled_from([0, 0, 0, 1, -1]))
    def commit(self, transaction: str, more: int) -> None:
        there = self.open_parts[transaction]
        parts = max(1, len(there) + more)
        if set(there) != set(range(parts)):
            with pytest.raises(TransactionError, match="were announced"):
                self.loader.commit_parts(self.names[transaction], parts)
            return
        self.loader.commit_parts(self.names[transaction], parts)
        if any(part.found for part in there.values()):
            self.note([there[number] for number in range(parts)])
            self.in_memory = 0
        del self.open_parts[transaction]
        self.names[transaction] = self.loader.begin_parts()

    @rule(transaction=st.sampled_from("ab"))
    def abandon(self, transaction: str) -> None:
        self.loader.abandon(self.names[transaction])
        self.names[transaction] = self.loader.begin_parts()
        self.open_parts.pop(transaction, None)

    @rule()
    def the_loader_goes_away(self) -> None:
        """What nobody can commit any more is forgotten."""
        self.loader.close()
        self.loader = self.source.attach("loader")
        self.names = {each: self.loader.begin_parts() for each in "ab"}
        self.open_parts.clear()

    @rule(ids=_tables)
    def append(self, ids: dict[str, list[int]]) -> None:
        part, tables = part_of(ids)
        if tables:
            self.log.append(len(self.committed) + 1, self.at, tables)
            self.note([part])
            self.in_memory = 0

    @rule(ids=_tables)
    def keep(self, ids: dict[str, list[int]]) -> None:
        part, tables = part_of(ids)
        if tables:
            self.log.keep(len(self.committed) + 1, self.at, tables)
            self.note([part])
            self.in_memory += 1

    @rule(choice=st.integers(0, 100))
    def split(self, choice: int) -> None:
        found = self.log.partitions.found
        if len(found) < 8:
            self.log.split(found[choice % len(found)].id)

    @precondition(lambda self: len(self.log.partitions) > 1)
    @rule(choice=st.integers(0, 100))
    def merge(self, choice: int) -> None:
        found = self.log.partitions.found
        place = choice % (len(found) - 1)
        self.log.merge(found[place].id, found[place + 1].id)

    @rule(size=st.integers(0, 6))
    def batch(self, size: int) -> None:
        """A consumer takes the next transactions by reference."""
        upto = min(len(self.committed), self.consumed + size)
        found: dict[str, list[Row]] = {table: [] for table in TABLES}
        known = {each.id for each in self.log.partitions.found}
        for table in TABLES:
            for place in self.log.next_batch(table, self.consumed, upto).frames:
                assert place.partition in known or place.partition < max(known)
                with Path(place.segment).open("rb") as segment:
                    read = stamped(read_rows(place, segment.fileno()), place.stamps)
                columns = (read[name].to_pylist() for name in ("__position", "__sequence", "id"))
                found[table] += zip(*columns, strict=True)
        assert {table: sorted(each) for table, each in found.items()} == self.expected(self.consumed, upto)
        self.consumed = upto
        if upto > len(self.committed) - self.in_memory:
            self.in_memory = 0

    @rule()
    def trim(self) -> None:
        self.log.trim(self.consumed)
        if self.log.trimmed > self.trimmed:
            self.trimmed = self.log.trimmed

    @rule(writer=st.integers(0, WRITERS - 1))
    def a_writer_dies(self, writer: int) -> None:
        """Its parts that were offered count as long as the owner lives: their bytes are there."""
        dead = self.writers[writer]
        dead.close()
        self.log.seal_segments(dead.names)  # type: ignore[attr-defined]
        self.writers[writer] = self.writer()

    @rule(clean=st.booleans(), kind=st.sampled_from([None, LocalLog]))
    def opened_again(self, clean: bool, kind: type[LocalLog] | None) -> None:
        """After a crash what was in memory alone is lost, and what was not committed does not exist."""
        if clean:
            self.log.close()
        elif self.in_memory:
            del self.committed[-self.in_memory :]
        self.in_memory = 0
        if kind is not None:
            kind(self.folder).close()
        for writer in self.writers:
            writer.close()
        self.open()

    @invariant()
    def the_queue_is_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.loss is None
        end = len(self.committed)
        assert (self.log.end, self.log.trimmed) == (end, self.trimmed)
        found = {}
        for table in TABLES:
            read = LocalLog.read(self.log, table, self.trimmed, end).table
            columns = () if read is None else (read[name].to_pylist() for name in ("__position", "__sequence", "id"))
            found[table] = list(zip(*columns, strict=True)) if read is not None else []
        assert found == self.expected(self.trimmed, end)
        counts = [sum(found.rows.values()) for found in self.log.transactions(self.trimmed, end)]
        assert counts == [len(each) for position, each in self.committed if position > self.trimmed]

    def expected(self, after: int, upto: int) -> dict[str, list[Row]]:
        return {
            table: [
                (position, sequence, number)
                for position, found in self.committed
                if after < position <= upto
                for name, sequence, number in found
                if name == table
            ]
            for table in TABLES
        }

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.trim(self.log.end)
            for writer in self.writers:
                writer.close()
            self.log.close()
            log = ElasticLog(self.folder)
            if log.trimmed == log.end:
                assert not (self.folder / "blocks").exists() or not list((self.folder / "blocks").iterdir())
            log.close()
        shutil.rmtree(self.folder)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
