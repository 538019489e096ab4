"""A source whose rows come from programs: producers, each the only writer of some tables, commit transactions to it.

    commits   1 ─ 2 ─ 3 ─ 4 ─ 5        4 and 5 were lazy: readers see them when they are flushed, or when a bound demands it
                      └ announced

All commits of a source are one sequence and are announced in that order, so every cut has whole commits, and what one table
shows fits what another one shows: the newest time that all tables can serve. A commit that is not durable is in memory, or in a
segment that was not synced, until something that depends on it is made durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from types import MappingProxyType

import pyarrow as pa

from headgate.capture.block_writer import Put
from headgate.capture.events import Committed
from headgate.capture.memory import MemorySource
from headgate.capture.parts import OpenParts
from headgate.capture.shape import Shape
from headgate.capture.source import Sample, SourceFreshness, SourceStatus, SourceTable
from headgate.capture.streamlog import StreamLog
from headgate.capture.transaction import Transaction
from headgate.clock import Clock
from headgate.errors import ProducerBusy, TransactionError

_LOGGER = logging.getLogger(__name__)

Rows = Iterable[tuple[str, pa.RecordBatch]]
Flushed = Callable[[str], None]
"""Hears why lazy commits were announced."""


@dataclass(frozen=True, slots=True)
class _Lazy:
    position: int
    commit_at: datetime
    producer: Producer


class ProducerSource(MemorySource):
    """Tables that programs fill; implements `Source`."""

    def __init__(self, name: str, tables: Mapping[str, SourceTable], log: StreamLog, clock: Clock) -> None:
        super().__init__(name, tables, log, clock)
        self._announced = log.end
        self._lazy: list[_Lazy] = []
        self._owners: dict[str, Producer] = {}
        self.parts = OpenParts(log)
        if log.lost is not None:
            _LOGGER.warning("rows of producers were lost: source=%s; %s", name, self._loss())

    def transaction(self, commit_at: datetime | None = None, initial: bool = False) -> Transaction:
        raise TransactionError(
            f"the tables of {self.name} are written by producers",
            hint="write them through a producer's connection, which names its tables",
        )

    # tables and producers

    def declare(self, table: SourceTable) -> None:
        """Adds a table."""
        self._shapes = {**self._shapes, table.name: Shape(self.name, table)}
        self.tables = MappingProxyType({**self.tables, table.name: table})

    def forget(self, table: str) -> None:
        """Without a table."""
        self.tables = MappingProxyType({name: found for name, found in self.tables.items() if name != table})
        self._shapes = {name: found for name, found in self._shapes.items() if name != table}
        self._owners.pop(table, None)

    def attach(self, who: str, flushed: Flushed | None = None) -> Producer:
        """A new producer, which has no table yet; `who` is named to others that want one of its tables."""
        return Producer(self, who, flushed)

    def claim(self, producer: Producer, tables: Collection[str]) -> None:
        producer = producer.writes_for
        with self._commit_lock:
            for table in tables:
                if table not in self.tables:
                    raise TransactionError(
                        f"{self.name} has no table {table}",
                        hint=f"its tables are {', '.join(self.tables) or 'none'}; CREATE TABLE makes one",
                    )
                owner = self._owners.get(table)
                if owner is not None and owner is not producer:
                    raise ProducerBusy(
                        f"{self.name}.{table} is written by {owner.who}",
                        hint="one producer at a time writes to a table; wait until it has closed its connection",
                    )
            self._owners |= dict.fromkeys(tables, producer)

    def detach(self, producer: Producer) -> None:
        """Gives its tables back; what it committed stays."""
        self.parts.expire(producer)
        self.flush(producer, None, "close")
        with self._commit_lock:
            self._owners = {table: owner for table, owner in self._owners.items() if owner is not producer}

    # what readers see

    @property
    def captured(self) -> SourceFreshness:
        """What is announced: all that was acknowledged before the first lazy commit that is not."""
        now = self._clock.now()
        with self._commit_lock:
            return SourceFreshness(self._announced, min([now, *(each.commit_at for each in self._lazy[:1])]))

    def sample(self, since: datetime | None = None) -> Sample:
        """The last commit; or, for whoever needs no more than was acknowledged before an instant, the last one before it."""
        now = self._clock.now()
        upto = now if since is None else min(since, now)
        with self._commit_lock:
            later = next((each for each in self._lazy if since is not None and each.commit_at > upto), None)
            position = self.log.end if later is None else later.position - 1
            return Sample(now if later is None else later.commit_at, position, timedelta(0), timedelta(0))

    def capture(self, upto: Sample | datetime, window: timedelta) -> bool:
        """A demand: announces the lazy commits that are needed and no others."""
        sample = upto if isinstance(upto, Sample) else self.sample(upto)
        self.announce(sample.position, "demand")
        return True

    def cut(self) -> int:
        return self._announced

    def announce(self, upto: int, reason: str) -> None:
        """Lets readers see the commits up to a position."""
        told: set[Producer] = set()
        with self._commit_lock:
            if self._lazy:
                told = {each.producer for each in self._lazy if each.position <= upto}
                self._lazy = [each for each in self._lazy if each.position > upto]
            self._announced = max(self._announced, upto)
        for producer in told:
            producer.tell(reason)

    def lazy_of(self, producer: Producer) -> list[datetime]:
        """The commit times of its lazy commits that are not announced."""
        with self._commit_lock:
            return [each.commit_at for each in self._lazy if each.producer is producer]

    def flush(self, producer: Producer, upto: datetime | None, reason: str) -> None:
        with self._commit_lock:
            due = [
                each.position
                for each in self._lazy
                if each.producer is producer and (upto is None or each.commit_at <= upto)
            ]
        if due:
            self.announce(max(due), reason)

    def commit(
        self,
        producer: Producer,
        write: Callable[[datetime], Committed | None],
        *,
        durable: bool,
        lazy: bool,
        commit_at: datetime | None,
    ) -> Committed | None:
        """Commits what `write` puts into the log at the commit time that it is given."""
        with self._commit_lock:
            now = self._clock.now() if commit_at is None else commit_at
            last = self.log.end_commit_at
            time = now if last is None else max(now, last)
            committed = write(time)
            if committed is None:
                return None
            if lazy:
                self._lazy.append(_Lazy(committed.position, time, producer))
        if durable:
            self.log.sync(committed.position)
        if not lazy:
            self.announce(committed.position, "order")
        return committed

    @property
    def status(self) -> SourceStatus:
        lost = () if self.log.lost is None else (self._loss(),)
        return SourceStatus(
            self.captured,
            self.log.held_bytes,
            self.log.limit_bytes,
            self.problems,
            waiting=len(self._lazy),
            queue=self.log.queue,
            alarms=lost,
        )

    def _loss(self) -> str:
        lost = self.log.lost
        assert lost is not None
        return (
            f"{lost.rows} rows of {lost.commits} commits were lost when the process ended, because they were not durable;"
            " load them again"
        )

    def write_blocks(self, parts: Sequence[Sequence[Put]], synced: bool, time: datetime) -> Committed | None:
        """References to what producers wrote themselves, part after part."""
        return self.log.append_blocks(self.log.end + 1, time, parts, synced=synced) if any(parts) else None

    def write(self, rows: Rows, time: datetime) -> Committed | None:
        """Into memory, or into files when it is more than memory should hold."""
        batches: dict[str, list[pa.RecordBatch]] = {}
        size = 0
        remaining = iter(rows)
        for table, batch in remaining:
            if batch.num_rows == 0:
                continue
            batches.setdefault(table, []).append(batch)
            size += batch.nbytes
            if size > self.log.unwritten_bytes:
                return self._write_files(chain(_flattened(batches), remaining), time)
        if not batches:
            return None
        tables = {table: pa.Table.from_batches(parts).combine_chunks() for table, parts in batches.items()}
        return self.log.keep(self.log.end + 1, time, tables)

    def _write_files(self, rows: Iterator[tuple[str, pa.RecordBatch]], time: datetime) -> Committed:
        with self.log.begin(self.log.end + 1, time) as writer:
            for table, batch in rows:
                writer.write(table, batch)
            return writer.commit()


class Producer:
    """One program that writes; its methods are called by one thread at a time, but for `flush`."""

    def __init__(self, source: ProducerSource, who: str, flushed: Flushed | None) -> None:
        self.source = source
        self.who = who
        self._flushed = flushed
        self.writes_for = self
        """Whose tables it writes: its own, or those of the producer whose transaction it puts parts of."""

    def claim(self, tables: Collection[str]) -> None:
        """Makes this the only producer of the tables."""
        self.source.claim(self, tables)

    def commit(
        self, rows: Rows, *, durable: bool = True, lazy: bool = False, commit_at: datetime | None = None
    ) -> Committed | None:
        """Commits one transaction of event rows; None when there are none."""
        write = partial(self.source.write, rows)
        return self.source.commit(self, write, durable=durable, lazy=lazy, commit_at=commit_at)

    def commit_blocks(self, puts: Sequence[Put], *, durable: bool = True, lazy: bool = False) -> Committed | None:
        """The same for rows that are in segments of the log, on the disk already if the commit is to be durable."""
        write = partial(self.source.write_blocks, [puts], durable)
        return self.source.commit(self, write, durable=durable, lazy=lazy, commit_at=None)

    def begin_parts(self) -> str:
        """Opens a transaction that other producers put parts of; it goes when this producer detaches."""
        return self.source.parts.begin(self)

    def join(self, transaction: str) -> None:
        """From now on writes the tables of the producer that began the transaction."""
        owner = self.source.parts.owner(transaction)
        assert isinstance(owner, Producer)
        self.writes_for = owner

    def offer(self, transaction: str, part: int, puts: Sequence[Put]) -> None:
        """A part of a transaction is in segments of the log."""
        self.source.parts.offer(transaction, part, puts)

    def commit_parts(
        self, transaction: str, parts: int, *, durable: bool = True, lazy: bool = False
    ) -> Committed | None:
        """Commits a transaction of this producer with its parts 0 … parts − 1; unless all are there it raises, and stays open."""
        found = self.source.parts.whole(transaction, parts, self)
        self.claim({table for puts in found for table, _ in puts})
        write = partial(self.source.write_blocks, found, False)
        committed = self.source.commit(self, write, durable=durable, lazy=lazy, commit_at=None)
        self.source.parts.end(transaction)
        return committed

    def abandon(self, transaction: str) -> None:
        """Forgets a transaction."""
        self.source.parts.end(transaction)

    @property
    def archives(self) -> list[datetime]:
        """The commit times of lazy commits that readers do not see yet."""
        return self.source.lazy_of(self)

    def flush(self, upto: datetime | None = None, reason: str = "policy") -> None:
        """Lets readers see lazy commits, by default all."""
        self.source.flush(self, upto, reason)

    def tell(self, reason: str) -> None:
        if self._flushed is not None:
            self._flushed(reason)

    def close(self) -> None:
        self.source.detach(self)


def _flattened(batches: Mapping[str, list[pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    return ((table, batch) for table, parts in batches.items() for batch in parts)
