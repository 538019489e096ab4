"""Bad rows are named, what the failing call did is taken back, and the transaction can go on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.capture.shape import Shape
from headgate.errors import TransactionError
from headgate.producing import Connection, Cursor, dbapi
from headgate.producing.columns import ColumnDoesNotFit, arrow_column, exact_rows
from tests.producing.shelf import Shelf, table

KEYED = table("keyed", "id long, n integer!, name string", ("id",))
BAG = table("bag", "id long, n integer!, name string")
ALL = table(
    "everything",
    "a byte, b short, c integer, d long, e float, f double, g decimal(6,2), h string, i boolean, j date, k timestamp,"
    " l timestamp_ntz, m binary".replace(",  ", ", "),
)
SQL = "INSERT INTO {} VALUES (%s, %s, %s)"

Insert = Callable[[Cursor, str, list[Any]], object]


def one_by_one(cursor: Cursor, name: str, rows: list[Any]) -> None:
    for row in rows:
        cursor.execute(SQL.format(name), row)


def many(cursor: Cursor, name: str, rows: Iterable[Any]) -> None:
    cursor.executemany(SQL.format(name), iter(rows))


def insert(cursor: Cursor, name: str, rows: Iterable[Any]) -> None:
    cursor.insert(name, iter(rows))


def several_values(cursor: Cursor, name: str, rows: list[Any]) -> None:
    text = SQL.format(name) + ", (%s, %s, %s)" * (len(rows) - 1)
    cursor.execute(text, [value for row in rows for value in row])


GOOD = [(n, n, "ok") for n in range(3)]
BAD = [
    ((5, "5", "x"), dbapi.DataError, r"\.n cannot hold the value '5' \(expected int\)"),
    ((5, 2**31, "x"), dbapi.DataError, "out of range"),
    ((5, 1.0, "x"), dbapi.DataError, r"cannot hold the value 1\.0"),
    ((5, True, "x"), dbapi.DataError, "cannot hold the value True"),
    ((5, None, "x"), dbapi.IntegrityError, "cannot be NULL"),
    ((5, 1, "\ud800"), dbapi.DataError, "not valid Unicode"),
    ((5, 1, b"x"), dbapi.DataError, "cannot hold the value b'x'"),
]


@pytest.mark.parametrize("name", ["keyed", "bag"])
@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("insert_rows", [many, insert, several_values])
@pytest.mark.parametrize(("bad", "kind", "message"), BAD)
def test_a_bad_row_is_named_and_its_call_taken_back(
    name: str, size: int, insert_rows: Insert, bad: Any, kind: type[Exception], message: str
) -> None:
    if insert_rows is several_values and size > 10:
        size = 4
    shelf = Shelf(KEYED, BAG)
    with shelf.connection() as connection:
        cursor = connection.cursor()
        cursor.execute(SQL.format(name), (-1, 1, "before"))
        rows = [(n + 10, n, "ok") for n in range(size)]
        with pytest.raises(kind, match=f"row {size + 1} .*{message}"):
            insert_rows(cursor, name, [*rows, bad, (6, 6, "never")])
        cursor.execute(SQL.format(name), (10_000, 1, "after"))
    assert [row["id"] for row in shelf.content[name]] == [-1, 10_000]


@pytest.mark.parametrize(("bad", "kind", "message"), BAD)
def test_a_bad_execute_leaves_the_transaction_as_it_was(bad: Any, kind: type[Exception], message: str) -> None:
    shelf = Shelf(KEYED, BAG)
    with shelf.connection() as connection:
        cursor = connection.cursor()
        for name in ("keyed", "bag"):
            one_by_one(cursor, name, GOOD)
            with pytest.raises(kind, match=f"the row .*{message}"):
                cursor.execute(SQL.format(name), bad)
            with pytest.raises(dbapi.ProgrammingError, match="3 parameters, but 2"):
                cursor.execute(SQL.format(name), (1, 2))
    assert [tuple(row.values()) for row in shelf.content["keyed"]] == GOOD
    assert [tuple(row.values()) for row in shelf.content["bag"]] == GOOD


@pytest.mark.parametrize("size", [3, 5000])
def test_a_row_of_the_wrong_length_is_named(size: int) -> None:
    shelf = Shelf(BAG)
    rows: list[Any] = [(n, n, "ok") for n in range(size)]
    with shelf.connection() as connection:
        for bad in ((1, 2), (1, 2, "x", 4), "abc", {"id": 1}):
            with pytest.raises(dbapi.ProgrammingError, match=f"row {size + 1} "):
                many(connection.cursor(), "bag", [*rows, bad])
        with pytest.raises(dbapi.ProgrammingError, match=rf"row {size + 1} .*lack a value for the parameter 'name'"):
            connection.cursor().insert("bag", [{"id": 1, "n": 1, "name": "x"}] * size + [{"id": 1, "n": 1}])
        with pytest.raises(dbapi.ProgrammingError, match=r"no column 'nam'.*did you mean name"):
            connection.cursor().insert("bag", [{"id": 1, "n": 1, "nam": "x"}])
    assert shelf.commits == []


@pytest.mark.parametrize("insert_rows", [many, insert, several_values])
@pytest.mark.parametrize("size", [2, 3000, 100_000])
def test_a_duplicate_key_is_named_and_its_call_taken_back(insert_rows: Insert, size: int) -> None:
    if insert_rows is several_values and size > 10:
        size = 5
    shelf = Shelf(KEYED)
    shelf.content["keyed"] = [{"id": 0, "n": 0, "name": "old"}]
    growing = [(n, n, "x") for n in range(1, size)]
    with shelf.connection() as connection:
        cursor = connection.cursor()
        for again in (0, 1):
            with pytest.raises(
                dbapi.IntegrityError, match=f"row {size} .*etl.keyed has a row with id = {again} already"
            ):
                insert_rows(cursor, "keyed", [*growing, (again, 1, "again")])
        insert_rows(cursor, "keyed", growing)
        with pytest.raises(dbapi.IntegrityError, match=r"the row .*id = 1 already"):
            cursor.execute(SQL.format("keyed"), (1, 1, "again"))
        cursor.execute("DELETE FROM keyed WHERE id = 1")
        cursor.execute(SQL.format("keyed"), (1, 1, "again"))
    assert sorted(row["id"] for row in shelf.content["keyed"]) == list(range(size))  # type: ignore[type-var]
    assert {"id": 1, "n": 1, "name": "again"} in shelf.content["keyed"]


def test_bad_arrow_rows_are_named() -> None:
    shelf = Shelf(KEYED)
    with shelf.connection() as connection:
        cursor = connection.cursor()
        good = pa.table({"id": [1, 2], "n": [1, 2], "name": ["a", "b"]})
        cases: list[tuple[pa.Table, type[Exception], str]] = [
            (pa.table({"id": [3, 4], "n": [1, 2**40]}), dbapi.DataError, r"row 4 .*1099511627776"),
            (pa.table({"id": [3, 4], "n": [None, 2]}), dbapi.IntegrityError, r"row 3 .*\.n cannot be NULL"),
            (pa.table({"id": [3, 4], "n": ["1", "2"]}), dbapi.DataError, r"row 3 .*\.n cannot hold"),
            (pa.table({"id": [3, 2], "n": [1, 2]}), dbapi.IntegrityError, "row 4 .*id = 2 already"),
        ]
        for bad, kind, message in cases:
            schema = pa.schema([("id", pa.int64()), ("n", bad.schema.field("n").type), ("name", pa.string())])
            first = pa.table({"id": good["id"], "n": good["n"].cast(schema.field("n").type), "name": good["name"]})
            batches = [*first.to_batches(), *bad.append_column("name", pa.nulls(2, pa.string())).to_batches()]
            if pa.types.is_string(schema.field("n").type):
                batches, message = batches[1:], message.replace("row 3", "row 1")
            with pytest.raises(kind, match=message):
                cursor.insert("keyed", pa.RecordBatchReader.from_batches(schema, batches))
        with pytest.raises(dbapi.ProgrammingError, match="no column 'm'"):
            cursor.insert("keyed", good.append_column("m", pa.array([1, 2])))
        with pytest.raises(dbapi.ProgrammingError, match="lack the column n"):
            cursor.insert("keyed", pa.table({"id": [1]}))
        assert cursor.insert("keyed", good) == 2
    assert [row["id"] for row in shelf.content["keyed"]] == [1, 2]


def test_a_failing_iterator_takes_its_rows_along() -> None:
    def rows() -> Iterable[tuple[int, int, str]]:
        for n in range(10_000):
            yield n, n, "x"
        raise ZeroDivisionError

    shelf = Shelf(KEYED, BAG)
    with shelf.connection() as connection:
        for name in ("keyed", "bag"):
            with pytest.raises(ZeroDivisionError):
                connection.cursor().executemany(SQL.format(name), rows())
        with pytest.raises(dbapi.DataError, match=r"row 2 \('x', 1\)"):
            connection.cursor().executemany("UPDATE keyed SET n = %s WHERE id = %s", [(1, 1), ("x", 1)])
    assert shelf.commits == []


VALUES: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.integers(-200, 200),
    st.floats(width=64),
    st.sampled_from([1e39, 1.0, 0.1]),
    st.decimals(-99999, 99999, places=3),
    st.sampled_from([Decimal("1.50"), Decimal("NaN"), Decimal("1E+2"), Decimal(9999), Decimal("9999.99")]),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "ü"]),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=5))])),
    st.sampled_from([np.int64(3), np.float64(0.5), np.int8(-1), bytearray(b"x")]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_columns_take_what_single_values_take(values: list[object]) -> None:
    """The bulk path refuses what the converters refuse, and gives what they give."""
    shape = Shape("etl", ALL)
    for place, field in enumerate(shape.fields):
        row = [None] * len(shape.fields)
        try:
            slow = [shape.values([*row[:place], value, *row[place + 1 :]])[place] for value in values]
        except TransactionError:
            slow = None
        try:
            fast = arrow_column(values, field)
        except ColumnDoesNotFit:
            continue
        assert slow is not None, (field, values)
        expected = pa.array(slow, field.type)
        assert str(fast.to_pylist()) == str(expected.to_pylist())
        check = exact_rows([field])
        for value, converted in zip(values, slow, strict=True):
            if check(value):
                assert value is converted or value == converted or value != value


@pytest.mark.parametrize("bad", [True, None, 1.0, "1", 2**31, -(2**31) - 1, 2**70])
def test_whole_numbers_in_bulk_are_checked_like_single_ones(bad: object) -> None:
    """Many rows of whole numbers take a way of their own; what does not belong there is told the same way."""
    shelf = Shelf(table("numbers", "a integer!, b integer!"))
    with Connection(shelf, ["numbers"], paramstyle="qmark") as connection:
        cursor = connection.cursor()
        rows: list[tuple[object, object]] = [(number, number % 2) for number in range(5000)]
        cursor.executemany("INSERT INTO numbers VALUES (?, ?)", rows)
        rows[4321] = (7, bad)
        with pytest.raises(connection.Error, match="row 4322"):
            cursor.executemany("INSERT INTO numbers VALUES (?, ?)", rows)
        connection.commit()
    assert shelf.rows("numbers").to_pydict() == {"a": list(range(5000)), "b": [number % 2 for number in range(5000)]}
