"""What producers commit and what readers can see of it: the source alone, with the examples of the paper.

Christian Thomsen, Torben Bach Pedersen, Wolfgang Lehner: RiTE: Providing On-Demand Data for Right-Time Data Warehousing, ICDE 2008.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from headgate.capture.locallog import LocalLog
from headgate.capture.producer import Producer, ProducerSource
from headgate.capture.shape import Shape
from headgate.capture.source import SourceTable
from headgate.clock import ManualClock
from headgate.delta.events import UPSERT
from headgate.errors import ProducerBusy, TransactionError

START = datetime(2024, 5, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=1)
TABLES = {
    name: SourceTable(name, StructType().add(names[0], "integer").add(names[1], "integer"), ())
    for name, names in {"X": ("A", "B"), "Y": ("C", "D")}.items()
}


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


class Shop:
    """A producer source with the paper's two tables and a clock that counts minutes."""

    def __init__(self, folder: Path, unwritten_bytes: int = 1 << 20) -> None:
        self.clock = ManualClock(START)
        self.log = LocalLog(folder, unwritten_bytes=unwritten_bytes)
        self.source = ProducerSource("dw", TABLES, self.log, self.clock)

    def at(self, number: float) -> None:
        self.clock.set(minute(number))

    def seen(self, table: str) -> list[tuple[int, int]]:
        """What a job that closes now has of a table."""
        events = self.log.read(table, 0, self.source.cut()).table
        if events is None:
            return []
        names = TABLES[table].schema.names
        return list(zip(*(events.column(name).to_pylist() for name in names), strict=True))

    def demand(self, since: datetime) -> datetime:
        """What a reader whose bound reaches back to an instant gets: the time of its snapshot."""
        assert self.source.capture(self.source.sample(since), WINDOW)
        return self.source.captured.at


def rows(table: str, *values: tuple[int, int]) -> tuple[str, pa.RecordBatch]:
    names = TABLES[table].schema.names
    batch = pa.RecordBatch.from_pydict({name: [row[place] for row in values] for place, name in enumerate(names)})
    return table, Shape("dw", TABLES[table]).build_many(batch, UPSERT, 0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    yield made
    made.source.close()


@pytest.fixture
def producer(shop: Shop) -> Producer:
    found = shop.source.attach("the test")
    found.claim(["X", "Y"])
    return found


def test_flushed_rows_are_seen_and_archives_are_not(shop: Shop, producer: Producer) -> None:
    """Examples 3.1 to 3.3."""
    shop.at(1)
    producer.commit([rows("X", (1, 1), (2, 2)), rows("Y", (3, 3))], lazy=True)
    assert shop.seen("X") == shop.seen("Y") == []
    assert producer.archives == [minute(1)]
    producer.flush()
    assert shop.seen("X") == [(1, 1), (2, 2)]
    assert shop.seen("Y") == [(3, 3)]
    assert producer.archives == []


def test_a_demand_pulls_only_the_archives_that_it_needs(shop: Shop, producer: Producer) -> None:
    """Example 3.4."""
    shop.at(2)
    producer.commit([rows("X", (1, 1))], lazy=True)
    shop.at(4)
    producer.commit([rows("X", (2, 2))], lazy=True)
    shop.at(5)
    assert shop.demand(minute(5 - 2)) >= minute(3)
    assert shop.seen("X") == [(1, 1)]
    assert producer.archives == [minute(4)]
    assert shop.demand(minute(5)) >= minute(5)
    assert shop.seen("X") == [(1, 1), (2, 2)]


def test_rows_have_a_place_and_commits_a_time(shop: Shop, producer: Producer) -> None:
    """Examples 4.1 and 4.2: which rows a commit time stands for, by their places in the order of all."""
    shop.at(1)
    producer.commit([rows("X", (1, 1), (2, 2))])
    shop.at(2)
    producer.commit([rows("X", (3, 3), (4, 4))])
    times = {found.commit_at: found for found in shop.log.transactions(0, shop.log.end)}
    assert [(at, found.position, found.rows) for at, found in times.items()] == [
        (minute(1), 1, {"X": 2}),
        (minute(2), 2, {"X": 2}),
    ]
    for at, expected in ((1, 2), (2, 4)):
        events = shop.log.read("X", 0, times[minute(at)].position).table
        assert events is not None and events.column("A").to_pylist() == list(range(1, expected + 1))


def test_an_empty_demand_advances_the_time(shop: Shop, producer: Producer) -> None:
    """Example 4.3: nothing was inserted, and that is worth knowing."""
    shop.at(1)
    producer.commit([rows("X", (1, 1))], lazy=True)
    assert shop.source.captured.at == minute(1)
    shop.at(3)
    assert shop.demand(minute(3)) == minute(3)
    shop.at(7)
    assert shop.demand(minute(6)) == minute(7)
    assert shop.seen("X") == [(1, 1)]


def test_a_reader_of_two_tables_gets_both_at_one_time(shop: Shop, producer: Producer) -> None:
    """Example 4.4: what one table has too much is not shown."""
    shop.at(1)
    producer.commit([rows("X", (1, 1)), rows("Y", (1, 1))], lazy=True)
    shop.at(3)
    producer.commit([rows("X", (3, 3)), rows("Y", (3, 3))], lazy=True)
    shop.at(5)
    assert shop.demand(minute(5 - 4)) >= minute(1)
    assert shop.seen("X") == shop.seen("Y") == [(1, 1)]


def test_a_reader_without_a_bound_sees_every_commit(shop: Shop, producer: Producer) -> None:
    for number in range(4):
        shop.at(number)
        producer.commit([rows("X", (number, number))], lazy=True)
    assert shop.source.capture(shop.source.sample(), WINDOW)
    assert shop.seen("X") == [(number, number) for number in range(4)]


class Catalyst:
    """Algorithm 1 of the paper on a model of its own: time indexes per table, archives per table."""

    def __init__(self, tables: tuple[str, ...]) -> None:
        self.times: dict[str, set[int]] = {table: set() for table in tables}
        self.archives: dict[str, list[int]] = {table: [] for table in tables}

    def commit(self, time: int) -> None:
        for archive in self.archives.values():
            archive.append(time)

    def flush(self, table: str, upto: int) -> None:
        self.times[table] |= {time for time in self.archives[table] if time <= upto} | {upto}
        self.archives[table] = [time for time in self.archives[table] if time > upto]

    def ensure_accuracy(self, time: int, tables: tuple[str, ...]) -> int:
        usable = []
        for table in tables:
            enough = {known for known in self.times[table] if known >= time}
            if not enough:
                self.flush(table, time)
            usable.append(enough | {time})
        return max(set.intersection(*usable))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.just(0), st.just(False)),
        st.tuples(st.just("flush"), st.integers(0, 6), st.booleans()),
        st.tuples(st.just("demand"), st.integers(0, 6), st.booleans()),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_newest_time_that_all_tables_can_serve(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    """Both rules give at least what was asked, whole commits, and ours what the paper's algorithm gives or newer."""
    shop = Shop(tmp_path_factory.mktemp("shop") / "log")
    producer = shop.source.attach("the test")
    catalyst = Catalyst(("X", "Y"))
    committed: list[int] = []
    try:
        for now, (what, back, both) in enumerate(steps, start=1):
            shop.at(now)
            since = max(0, now - back)
            if what == "commit":
                producer.commit([rows("X", (now, now)), rows("Y", (now, now))], lazy=True)
                catalyst.commit(now)
                committed.append(now)
            elif what == "flush":
                producer.flush(minute(since))
                for table in ("X", "Y") if both else ("X",):
                    catalyst.flush(table, since)
            else:
                theirs = catalyst.ensure_accuracy(since, ("X", "Y"))
                ours = shop.demand(minute(since))
                assert ours >= minute(since)
                shown = shop.seen("X")
                assert shown == shop.seen("Y")
                assert shown == [(time, time) for time in committed[: len(shown)]]
                assert theirs >= since
                assert len(shown) >= len([time for time in committed if time <= theirs])
    finally:
        shop.source.close()


def test_what_was_not_durable_is_reported_after_a_crash(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "log")
    producer = shop.source.attach("the test")
    producer.commit([rows("X", (1, 1))])
    producer.commit([rows("X", (2, 2), (3, 3))], durable=False)
    producer.commit([rows("Y", (4, 4))], durable=False)
    assert shop.seen("X") == [(1, 1), (2, 2), (3, 3)]
    shutil.copytree(tmp_path / "log", tmp_path / "crashed")
    again = LocalLog(tmp_path / "crashed")
    assert again.lost is not None
    assert (again.lost.commits, again.lost.rows) == (2, 3)
    source = ProducerSource("dw", TABLES, again, shop.clock)
    assert any("3 rows of 2 commits were lost" in alarm for alarm in source.status.alarms)
    assert again.end == 1
    source.close()
    assert LocalLog(tmp_path / "crashed").lost is None
    shop.source.close()


def test_closing_makes_everything_durable(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "log")
    shop.source.attach("the test").commit([rows("X", (1, 1))], durable=False)
    shop.source.close()
    again = LocalLog(tmp_path / "log")
    assert again.lost is None and again.durable == 1
    again.close()


def test_commits_in_memory_stand_in_the_log_in_order(shop: Shop, producer: Producer) -> None:
    producer.commit([rows("X", (1, 1))], durable=False)
    assert (shop.log.durable, shop.log.end) == (0, 1)
    producer.commit([rows("X", (2, 2))])
    assert shop.log.durable == shop.log.end == 2
    producer.commit([rows("X", (3, 3))], durable=False)
    assert shop.seen("X") == [(1, 1), (2, 2), (3, 3)]
    assert [found.position for found in shop.log.transactions(0, 9)] == [1, 2, 3]
    assert shop.log.rows_held(0, 9) == 3


def test_memory_is_bounded(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "log", unwritten_bytes=2_000)
    producer = shop.source.attach("the test")
    for number in range(40):
        producer.commit([rows("X", *[(number, each) for each in range(20)])], durable=False)
    assert shop.log.held_bytes > 0
    assert len(shop.seen("X")) == 800
    producer.commit([rows("X", *[(99, each) for each in range(2_000)])], durable=False)
    assert shop.log.read("X", 40, 41).rows == 2_000
    shop.source.close()


def test_a_table_has_one_producer_at_a_time(shop: Shop, producer: Producer) -> None:
    other = shop.source.attach("another program")
    with pytest.raises(ProducerBusy, match=r"dw\.X is written by the test"):
        other.claim(["X"])
    with pytest.raises(TransactionError, match="no table Z"):
        other.claim(["Z"])
    producer.commit([rows("X", (1, 1))], lazy=True)
    producer.close()
    assert shop.seen("X") == [(1, 1)]
    other.claim(["X"])


def test_a_commit_that_is_not_lazy_takes_earlier_ones_along(shop: Shop, producer: Producer) -> None:
    reasons: list[str] = []
    lazy = shop.source.attach("a lazy program", reasons.append)
    lazy.commit([rows("X", (1, 1))], lazy=True)
    producer.commit([rows("Y", (2, 2))])
    assert (shop.seen("X"), shop.seen("Y")) == ([(1, 1)], [(2, 2)])
    assert reasons == ["order"]


def test_readers_see_a_growing_beginning_of_all_commits(shop: Shop) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def produce(table: str, lazy: bool) -> None:
        producer = shop.source.attach(table)
        for number in range(150):
            producer.commit([rows(table, (number, number))], durable=False, lazy=lazy and number % 3 > 0)
        producer.close()

    def read() -> None:
        last = 0
        try:
            while not done.is_set():
                position = shop.source.cut()
                assert position >= last
                last = position
                for table in TABLES:
                    found = shop.log.read(table, 0, position).table
                    values = [] if found is None else found.column(0).to_pylist()
                    assert values == list(range(len(values)))
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=produce, args=each) for each in (("X", True), ("Y", False))]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join()
    shop.log.sync()
    done.set()
    for thread in readers:
        thread.join()
    assert not failures
    assert [len(shop.seen(table)) for table in TABLES] == [150, 150]
