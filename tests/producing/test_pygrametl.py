"""pygrametl, an ETL framework for PEP 249 connections, fills facts and dimensions through a producer's connection unchanged."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pygrametl
import pytest
from pygrametl.tables import (
    AccumulatingSnapshotFactTable,
    BatchFactTable,
    BulkFactTable,
    CachedDimension,
    Dimension,
    FactTable,
    SlowlyChangingDimension,
    TypeOneSlowlyChangingDimension,
)

import headgate
from tests.producing.shelf import Shelf, table

TABLES = (
    table("book", "bookid long, title string, genre string", ("bookid",)),
    table("time", "timeid long, day integer, month integer", ("timeid",)),
    table("place", "placeid long, city string, region string", ("placeid",)),
    table(
        "customer",
        "id long, name string, city string, phone string, version integer, validfrom date, validto date",
        ("id",),
    ),
    table("sales", "bookid long, timeid long, placeid long, sale long", ("bookid", "timeid", "placeid")),
    table("visits", "bookid long, timeid long, n long"),
    table("orders", "orderid long, placed long, shipped long, n long", ("orderid",)),
)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(*TABLES)


@pytest.fixture
def target(shelf: Shelf) -> Iterator[Any]:
    connection = shelf.connection()
    wrapper = pygrametl.ConnectionWrapper(connection=connection)
    yield wrapper
    wrapper.close()
    pygrametl._alltables.clear()


def rows(shelf: Shelf, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in shelf.content[name])


def test_facts_with_dimensions(shelf: Shelf, target: Any) -> None:
    book = Dimension("book", "bookid", ["title", "genre"], lookupatts=["title"])
    time = CachedDimension("time", "timeid", ["day", "month"], prefill=True, cachefullrows=True)
    place = TypeOneSlowlyChangingDimension("place", "placeid", ["city", "region"], lookupatts=["city"])
    sales = FactTable("sales", ["bookid", "timeid", "placeid"], ["sale"])
    for number in range(60):
        row: dict[str, object] = {
            "title": f"book {number % 5}",
            "genre": "novel",
            "day": number % 3,
            "month": 1,
            "city": f"city {number % 2}",
            "region": "north" if number < 30 else "south",
            "sale": number,
        }
        row["bookid"] = book.ensure(row)
        row["timeid"] = time.ensure(row)
        row["placeid"] = place.scdensure(row)
        if number < 30:
            sales.insert(row)
        else:
            assert sales.ensure(row) is True
    assert shelf.commits == []
    target.commit()
    assert rows(shelf, "book") == [(n + 1, f"book {n}", "novel") for n in range(5)]
    assert rows(shelf, "time") == [(n + 1, n, 1) for n in range(3)]
    assert rows(shelf, "place") == [(1, "city 0", "south"), (2, "city 1", "south")]
    assert len(rows(shelf, "sales")) == 30
    assert sales.lookup({"bookid": 1, "timeid": 1, "placeid": 1}) == {
        "bookid": 1, "timeid": 1, "placeid": 1, "sale": 0
    }  # fmt: skip
    assert book.getbykey(2)["title"] == "book 1"
    assert [found["bookid"] for found in book.getbyvals({"genre": "novel"})] == [1, 2, 3, 4, 5]
    book.update({"bookid": 2, "genre": "essay"})
    target.rollback()
    assert book.getbykey(2)["genre"] == "novel"
    assert len(shelf.commits) == 1
    assert shelf.queries == []


def test_a_later_load_goes_on_with_the_keys(shelf: Shelf, target: Any) -> None:
    shelf.content["book"] = [{"bookid": 41, "title": "old", "genre": "x"}]
    book = CachedDimension("book", "bookid", ["title", "genre"], lookupatts=["title"], prefill=True)
    assert book.lookup({"title": "old"}) == 41
    assert book.ensure({"title": "new", "genre": "y"}) == 42
    target.commit()
    assert rows(shelf, "book") == [(41, "old", "x"), (42, "new", "y")]


@pytest.mark.parametrize("cachesize", [1, -1])
def test_a_slowly_changing_dimension(shelf: Shelf, target: Any, cachesize: int) -> None:
    customer = SlowlyChangingDimension(
        "customer",
        "id",
        ["name", "city", "phone", "version", "validfrom", "validto"],
        lookupatts=["name"],
        versionatt="version",
        fromatt="validfrom",
        toatt="validto",
        type1atts=["phone"],
        srcdateatt="seen",
        srcdateparser=lambda day: day,
        cachesize=cachesize,
    )

    def see(day: int, name: str, city: str, phone: str) -> int:
        seen = dt.date(2024, 1, day)
        row = {"name": name, "city": city, "phone": phone, "seen": seen}
        return int(customer.scdensure(row))

    assert see(1, "Ann", "Aalborg", "1") == 1
    assert see(1, "Bo", "Skagen", "7") == 2
    target.commit()
    assert see(2, "Ann", "Aarhus", "1") == 3
    assert see(3, "Ann", "Odense", "2") == 4
    assert customer.lookup({"name": "Ann"}) == 4
    assert customer.lookupasof({"name": "Ann"}, dt.date(2024, 1, 2), (True, False)) == 3
    target.commit()
    found = rows(shelf, "customer")
    assert [(row[0], row[2], row[3], row[4]) for row in found] == [
        (1, "Aalborg", "2", 1),
        (2, "Skagen", "7", 1),
        (3, "Aarhus", "2", 2),
        (4, "Odense", "2", 3),
    ]
    assert [row[6] for row in found] == [dt.date(2024, 1, 2), None, dt.date(2024, 1, 3), None]
    assert shelf.queries == []


@pytest.mark.parametrize("usemultirow", [False, True])
def test_facts_in_batches(shelf: Shelf, target: Any, usemultirow: bool) -> None:
    sales = BatchFactTable("sales", ["bookid", "timeid", "placeid"], ["sale"], batchsize=40, usemultirow=usemultirow)
    for number in range(100):
        sales.insert({"bookid": number, "timeid": 1, "placeid": 2, "sale": number * 2})
    assert sales.lookup({"bookid": 99, "timeid": 1, "placeid": 2})["sale"] == 198
    target.commit()
    assert rows(shelf, "sales") == [(number, 1, 2, number * 2) for number in range(100)]


def test_facts_in_bulk(shelf: Shelf, target: Any) -> None:
    cursor = target.cursor()

    def load(name: str, attributes: list[str], fieldsep: str, rowsep: str, nullsubst: object, tempdest: Any) -> None:
        lines = csv.reader(io.StringIO(tempdest.read().decode()), delimiter=fieldsep)
        columns = zip(*(map(int, line) for line in lines), strict=True)
        cursor.insert(name, pa.table([pa.array(column) for column in columns], names=attributes))

    visits = BulkFactTable("visits", ["bookid", "timeid"], ["n"], bulkloader=load, bulksize=1000)
    for number in range(2500):
        visits.insert({"bookid": number, "timeid": number % 7, "n": 1})
    target.commit()
    assert rows(shelf, "visits") == [(number, number % 7, 1) for number in range(2500)]


def test_facts_that_change(shelf: Shelf, target: Any) -> None:
    orders = AccumulatingSnapshotFactTable("orders", ["orderid"], ["placed", "shipped"], ["n"])
    for number in range(10):
        orders.ensure({"orderid": number, "placed": 1, "shipped": None, "n": number})
    orders.ensure({"orderid": 3, "placed": 1, "shipped": 5, "n": 3})
    target.commit()
    assert [row for row in rows(shelf, "orders") if row[2] is not None] == [(3, 1, 5, 3)]


def test_the_module_is_found(target: Any) -> None:
    module = target.getunderlyingmodule()
    assert module is headgate
    assert (module.paramstyle, module.Date(2024, 1, 2)) == ("pyformat", dt.date(2024, 1, 2))
