"""The in-process source: transactions are whole, ordered and checked."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import CalendarIntervalType, LongType, MapType, StringType, StructField, StructType

from headgate.capture.memory import MemorySource
from headgate.capture.source import Source, SourceTable
from headgate.clock import ManualClock
from headgate.delta.changes import BEGINNING
from headgate.errors import ConfigError, TransactionError
from tests.capture.shop import ITEMS, TABLES, items, open_shop

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def shop(tmp_path: Path, clock: ManualClock) -> MemorySource:
    return open_shop(tmp_path, clock)


def events(shop: MemorySource, table: str = "items") -> list[dict[str, object]]:
    found = shop.log.read(table, 0, shop.log.end).table
    return [] if found is None else found.to_pylist()


def brief(shop: MemorySource, table: str = "items") -> list[tuple[object, ...]]:
    return [
        (event["__position"], event["__sequence"], event["__op"], event["id"], event.get("name"), event["__unchanged"])
        for event in events(shop, table)
    ]


def test_it_is_a_source(shop: MemorySource) -> None:
    source: Source = shop
    assert source.name == "shop"
    assert source.capabilities.deletes
    assert source.sample().position == 0


def test_a_transaction_becomes_visible_when_its_block_ends(shop: MemorySource) -> None:
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 1, "name": "a", "price": Decimal("1.50")})
        transaction.insert("sales", {"id": 1, "line": 1})
        assert shop.log.end == 0
        assert shop.sample().position == 0
    assert (transaction.position, transaction.commit_at) == (1, NOON)
    assert shop.sample().position == 1
    assert shop.log.durable == 1
    assert events(shop) == [
        {
            "id": 1,
            "name": "a",
            "price": Decimal("1.50"),
            "__op": 1,
            "__unchanged": [],
            "__sequence": 0,
            "__position": 1,
            "__commit_at": NOON,
        }
    ]
    assert events(shop, "sales")[0]["__sequence"] == 1


def test_every_kind_of_change_becomes_events_in_order(shop: MemorySource) -> None:
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 1, "name": "a"})
        transaction.update("items", {"id": 1, "price": 2})
        transaction.update("items", {"id": 2, "name": "b", "price": None}, key={"id": 1})
        transaction.update("items", {"id": 2, "name": "c"}, key={"id": 2})
        transaction.delete("items", {"id": 2})
        transaction.truncate("items")
        transaction.insert_many("items", items(5, 7))
        transaction.delete_many("items", pa.table({"id": pa.array([5], pa.int32())}))
    assert brief(shop) == [
        (1, 0, 1, 1, "a", []),
        (1, 1, 1, 1, None, ["name"]),
        (1, 2, 0, 1, None, []),
        (1, 3, 1, 2, "b", []),
        (1, 4, 1, 2, "c", ["price"]),
        (1, 5, 0, 2, None, []),
        (1, 6, 2, None, None, []),
        (1, 7, 1, 5, "item 5", []),
        (1, 8, 1, 6, "item 6", []),
        (1, 9, 0, 5, None, []),
    ]


def test_an_exception_changes_nothing(shop: MemorySource) -> None:
    with pytest.raises(RuntimeError, match="stop"), shop.transaction() as transaction:
        transaction.insert("items", {"id": 1})
        raise RuntimeError("stop")
    assert (transaction.position, transaction.commit_at) == (None, None)
    assert shop.log.end == 0
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 2})
    assert brief(shop) == [(1, 0, 1, 2, None, [])]


def test_an_exception_in_a_large_transaction_leaves_no_file(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, transaction_bytes=1000)
    with pytest.raises(RuntimeError), shop.transaction() as transaction:
        transaction.insert_many("items", items(0, 1000))
        assert list(shop.log.spool_folder.iterdir())
        raise RuntimeError("stop")
    assert not list(shop.log.spool_folder.iterdir())
    assert not list(shop.log.files_folder.iterdir())


def test_a_large_transaction_keeps_every_row_and_its_order(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, transaction_bytes=1000)
    reader = pa.RecordBatchReader.from_batches(
        items(0, 1).schema, (items(start, start + 100).to_batches()[0] for start in range(0, 5000, 100))
    )
    with shop.transaction(initial=True) as transaction:
        transaction.insert("items", {"id": -1, "name": "first"})
        transaction.insert_many("items", reader)
        transaction.delete("items", {"id": 7})
    found = shop.log.read("items", 0, 1)
    assert found.table is None
    assert found.rows == 5002
    rows = pq.read_table(found.files[0].path).sort_by("__sequence")
    assert rows["__sequence"].to_pylist() == list(range(5002))
    assert rows["id"].to_pylist() == [-1, *range(5000), 7]
    assert set(rows["__commit_at"].to_pylist()) == {BEGINNING}
    assert not list(shop.log.spool_folder.iterdir())


def test_an_empty_transaction_takes_no_position(shop: MemorySource) -> None:
    with shop.transaction() as transaction:
        transaction.insert_many("items", items(0, 0))
    assert transaction.position is None
    assert shop.log.end == 0


def test_commit_times_never_go_back(shop: MemorySource, clock: ManualClock) -> None:
    with shop.transaction(commit_at=NOON + timedelta(hours=1)) as transaction:
        transaction.insert("items", {"id": 1})
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 2})
    assert transaction.commit_at == NOON + timedelta(hours=1)
    with pytest.raises(TransactionError, match="before the last transaction's"), shop.transaction(NOON) as transaction:
        transaction.insert("items", {"id": 3})
    assert shop.log.end == 2
    clock.advance(timedelta(hours=2))
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 4})
    assert transaction.commit_at == NOON + timedelta(hours=2)


def test_an_explicit_commit_time_may_have_any_zone_but_needs_one(shop: MemorySource) -> None:
    zone = timezone(timedelta(hours=2))
    with shop.transaction(commit_at=datetime(2025, 1, 1, 2, tzinfo=zone)) as transaction:
        transaction.insert("items", {"id": 1})
    assert transaction.commit_at == datetime(2025, 1, 1, tzinfo=UTC)
    with pytest.raises(TransactionError, match="no time zone"):
        shop.transaction(commit_at=datetime(2025, 1, 1))


def test_a_reopened_source_goes_on_where_it_was(tmp_path: Path, clock: ManualClock) -> None:
    shop = open_shop(tmp_path, clock)
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 1})
    shop.close()
    shop = open_shop(tmp_path, ManualClock(NOON - timedelta(days=1)))
    with shop.transaction() as transaction:
        transaction.insert("items", {"id": 2})
    assert (transaction.position, transaction.commit_at) == (2, NOON)
    assert [event["id"] for event in events(shop)] == [1, 2]


def test_concurrent_transactions_commit_one_after_another(shop: MemorySource) -> None:
    def work(worker: int) -> None:
        for turn in range(20):
            with shop.transaction() as transaction:
                for row in range(3):
                    transaction.insert("items", {"id": row, "name": f"{worker} {turn}"})

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert shop.log.end == shop.log.durable == 120
    found = events(shop)
    assert [event["__position"] for event in found] == [position for position in range(1, 121) for _ in range(3)]
    for position in range(120):
        assert len({event["name"] for event in found[position * 3 : position * 3 + 3]}) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "nam": "a"}, r"shop\.items has no column 'nam' \(did you mean name\?\)"),
        ({"id": 1, "quux": "a"}, r"its columns are id, name, price"),
        ({"name": "a"}, r"lacks the column id: .*its key is \(id\)"),
        ({"id": None}, r"shop\.items\.id cannot be NULL \(it is a key column\)"),
        ({"id": "1"}, r"shop\.items\.id cannot hold the value '1' \(expected bigint\)"),
        ({"id": 1 << 63}, r"out of range \(expected bigint\)"),
        ({"id": True}, r"cannot hold the value True"),
        ({"id": 1, "price": 1.5}, r"shop\.items\.price cannot hold the value 1\.5 \(expected decimal\(10,2\)\)"),
        ({"id": 1, "price": Decimal("1.005")}, "more than 2 decimal places"),
        ({"id": 1, "price": 10**8}, "out of range"),
        ({"id": 1, "name": "\ud800"}, "not valid Unicode"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_where_it_is_given(
    shop: MemorySource, row: dict[str, object], message: str
) -> None:
    with shop.transaction() as transaction:
        with pytest.raises(TransactionError, match=message):
            transaction.insert("items", row)
        transaction.insert("items", {"id": 9})
    assert [event["id"] for event in events(shop)] == [9]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"at": date(2024, 1, 1)}, "expected timestamp"),
        ({"tags": "text"}, r"expected array<string>"),
        ({"tags": ["a", 1]}, r"expected array<string>"),
        ({"place": {"town": "x", "sip": 1}}, "it has no field sip"),
        ({"place": {"zip": "1"}}, "struct<town:string,zip:int>"),
    ],
)
def test_nested_values_are_checked_too(shop: MemorySource, row: dict[str, object], message: str) -> None:
    with shop.transaction() as transaction, pytest.raises(TransactionError, match=message):
        transaction.insert("sales", {"id": 1, "line": 1, **row})


def test_nested_values_and_times_are_kept(shop: MemorySource) -> None:
    zone = timezone(timedelta(hours=-5))
    with shop.transaction() as transaction:
        transaction.insert(
            "sales",
            {"id": 1, "line": 1, "at": datetime(2024, 1, 1, 1, tzinfo=zone), "tags": ["ä", None], "place": {"zip": 1}},
        )
        transaction.insert("sales", {"id": 1, "line": 2, "at": datetime(2024, 1, 1, 6, 0, 0, 7)})
    first, second = events(shop, "sales")
    assert first["at"] == datetime(2024, 1, 1, 6, tzinfo=UTC)
    assert second["at"] == datetime(2024, 1, 1, 6, 0, 0, 7, tzinfo=UTC)
    assert (first["tags"], first["place"]) == (["ä", None], {"town": None, "zip": 1})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": ["1"]}), r"shop\.items\.id cannot hold Arrow string \(expected bigint\)"),
        (pa.table({"id": [1, None]}), "cannot be NULL"),
        (pa.table({"name": ["a"]}), "lack the column id"),
        (pa.table({"id": [1], "nme": ["a"]}), "did you mean name"),
        (pa.table([[1], [2]], names=["id", "id"]), "twice"),
        (
            pa.table({"id": [1, 2], "price": [Decimal("1.25"), Decimal("1.255")]}),
            r"cannot hold the value Decimal\('1.25",
        ),
        (pa.table({"id": [1, 2], "price": [5, 123456789]}), "cannot hold the value 123456789"),
        ([{"id": 1}], "must be a pyarrow Table"),
    ],
)
def test_arrow_rows_that_do_not_fit_end_the_transaction(shop: MemorySource, rows: object, message: str) -> None:
    with pytest.raises(TransactionError, match=message), shop.transaction() as transaction:
        transaction.insert_many("items", items(0, 10))
        transaction.insert_many("items", rows)
    assert shop.log.end == 0


def test_a_failed_bulk_call_is_not_committed_even_when_its_error_is_caught(shop: MemorySource) -> None:
    batches = [items(0, 5).to_batches()[0], pa.record_batch({"id": [6], "name": ["x"], "price": [10**12]})]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    with pytest.raises(TransactionError, match="was not committed"), shop.transaction() as transaction:
        try:
            transaction.insert_many("items", reader)
        except TransactionError as error:
            assert "1000000000000" in str(error)
    assert shop.log.end == 0


def test_arrow_columns_may_have_other_widths_and_encodings(shop: MemorySource) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.uint8()),
            "line": pa.array([1, 2], pa.int64()),
            "at": pa.array([0, 1500], pa.timestamp("ms")),
            "tags": pa.array([["a"], None], pa.large_list(pa.large_string())),
        }
    )
    with shop.transaction() as transaction:
        transaction.insert_many("sales", rows)
        transaction.insert_many("items", pa.table({"id": [1], "name": pa.array(["a"]).dictionary_encode()}))
    first, second = events(shop, "sales")
    assert (first["id"], first["line"], first["tags"]) == (1, 1, ["a"])
    assert second["at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert events(shop)[0]["name"] == "a"


def test_a_key_change_needs_all_columns(shop: MemorySource) -> None:
    with shop.transaction() as transaction, pytest.raises(TransactionError, match="lacks the column price"):
        transaction.update("items", {"id": 2, "name": "b"}, key={"id": 1})
    assert shop.log.end == 0


def test_a_delete_takes_the_key_only(shop: MemorySource) -> None:
    with shop.transaction() as transaction:
        with pytest.raises(TransactionError, match=r"name is not a key column of shop\.items"):
            transaction.delete("items", {"id": 1, "name": "a"})
        with pytest.raises(TransactionError, match="lacks the column line"):
            transaction.delete("sales", {"id": 1})
        with pytest.raises(TransactionError, match="is not a key column"):
            transaction.delete_many("items", items(0, 1))


def test_an_unknown_table_is_named(shop: MemorySource) -> None:
    with (
        shop.transaction() as transaction,
        pytest.raises(TransactionError, match=r"no table item \(did you mean items"),
    ):
        transaction.insert("item", {"id": 1})


def test_a_transaction_is_used_once_and_inside_its_block(shop: MemorySource) -> None:
    transaction = shop.transaction()
    with pytest.raises(TransactionError, match="is not begun"):
        transaction.insert("items", {"id": 1})
    with transaction:
        pass
    with pytest.raises(TransactionError, match="is over"):
        transaction.insert("items", {"id": 1})
    with pytest.raises(TransactionError, match="used before"), transaction:
        pass


def test_types_that_a_source_cannot_have_are_refused(shop: MemorySource, clock: ManualClock) -> None:
    schema = StructType([StructField("id", LongType()), StructField("gap", CalendarIntervalType())])
    with pytest.raises(ConfigError, match=r"column gap of s\.t has the type interval"):
        MemorySource("s", {"t": SourceTable("t", schema, ("id",))}, shop.log, clock)
    schema = StructType([StructField("id", MapType(StringType(), LongType()))])
    with pytest.raises(ConfigError, match="nested type"):
        MemorySource("s", {"t": SourceTable("t", schema, ("id",))}, shop.log, clock)
    with pytest.raises(ConfigError, match="key column nr"):
        MemorySource("s", {"t": SourceTable("t", ITEMS, ("nr",))}, shop.log, clock)
    assert set(TABLES) == set(shop.tables)
