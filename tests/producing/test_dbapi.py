"""The connection and its cursors as PEP 249 wants them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.errors import HeadgateError, ProducerBusy, StorageFull
from headgate.producing import Connection, dbapi
from tests.producing.shelf import START, Shelf, table

ORDERS = table("orders", "id long, item string, amount decimal(10,2), at timestamp", ("id",))
CLICKS = table("clicks", "who long, page string")
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(ORDERS, CLICKS)


def test_the_module_has_its_attributes() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "pyformat")
    assert issubclass(dbapi.IntegrityError, dbapi.DatabaseError)
    assert issubclass(dbapi.Error, HeadgateError)
    assert Connection.ProgrammingError is dbapi.ProgrammingError
    assert dbapi.Date(2024, 1, 2) == dt.date(2024, 1, 2)
    assert dbapi.Timestamp(2024, 1, 2, 3, 4, 5) == dt.datetime(2024, 1, 2, 3, 4, 5)
    assert dbapi.TimestampFromTicks(0) == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert dbapi.Binary(b"x") == b"x"
    assert dbapi.DATETIME == "timestamp"
    assert dbapi.STRING != "bigint"


@pytest.mark.parametrize(
    ("style", "text", "parameters"),
    [
        ("qmark", "INSERT INTO clicks (page, who) VALUES (?, ?)", ("a?:%s", 1)),
        ("numeric", "INSERT INTO clicks (page, who) VALUES (:2, :1)", (1, "a?:%s")),
        ("named", "INSERT INTO clicks (page, who) VALUES (:page, :who)", {"who": 1, "page": "a?:%s", "more": 2}),
        ("format", "INSERT INTO clicks (page, who) VALUES (%s, %s)", ["a?:%s", 1]),
        ("pyformat", "INSERT INTO clicks (page, who) VALUES (%(page)s, %(who)s)", {"who": 1, "page": "a?:%s"}),
        ("pyformat", "INSERT INTO clicks (page, who) VALUES (%s, %s)", ("a?:%s", 1)),
        ("pyformat", "INSERT INTO clicks (page, who) VALUES ('a?:%%s', %s)", (1,)),
        ("qmark", "INSERT INTO clicks (page, who) VALUES ('a?:%s', ?) -- is it?", (1,)),
    ],
)
def test_parameters_are_written_in_five_ways(shelf: Shelf, style: str, text: str, parameters: object) -> None:
    with shelf.connection(paramstyle=style) as connection:
        connection.cursor().execute(text, parameters)  # type: ignore[arg-type]
        connection.cursor().executemany(text, [parameters, parameters])  # type: ignore[list-item]
    assert shelf.content["clicks"] == [{"who": 1, "page": "a?:%s"}] * 3


def test_an_unknown_paramstyle_is_refused(shelf: Shelf) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=r"no paramstyle 'dollar'.*qmark"):
        shelf.connection(paramstyle="dollar")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ((1,), "2 parameters, but 1 are given"),
        ((1, 2, 3), "2 parameters, but 3 are given"),
        ({"a": 1}, "no names, but a mapping"),
        ("ab", "not str"),
    ],
)
def test_wrong_parameters_are_refused(shelf: Shelf, parameters: object, message: str) -> None:
    with shelf.connection() as connection:
        for text in (
            "INSERT INTO clicks VALUES (%s, %s)",
            "SELECT * FROM clicks WHERE who = %s AND page = %s",
            "UPDATE orders SET item = %s WHERE id = %s",
        ):
            with pytest.raises(dbapi.ProgrammingError, match=message):
                connection.cursor().execute(text, parameters)  # type: ignore[arg-type]
        with pytest.raises(dbapi.ProgrammingError, match="lack a value for the parameter 'who'"):
            connection.cursor().execute("INSERT INTO clicks (who, page) VALUES (%(who)s, %(page)s)", {"page": "x"})


def test_a_result_is_fetched_in_pieces(shelf: Shelf) -> None:
    with shelf.connection() as connection:
        cursor = connection.cursor()
        cursor.executemany(
            "INSERT INTO orders VALUES (%s, %s, %s, %s)", [(n, "pen", Decimal(n), NOON) for n in range(7)]
        )
        assert cursor.rowcount == 7
        assert cursor.description is None
        with pytest.raises(dbapi.InterfaceError, match="no result"):
            cursor.fetchone()
        cursor.execute("SELECT id, amount AS price, at FROM orders WHERE item = 'pen'")
        assert cursor.rowcount == 7
        assert cursor.description is not None
        assert [column[0] for column in cursor.description] == ["id", "price", "at"]
        assert [column[1] for column in cursor.description] == [dbapi.NUMBER, dbapi.NUMBER, dbapi.DATETIME]
        assert cursor.description[1][4:6] == (10, 2)
        assert cursor.fetchone() == (0, Decimal("0.00"), NOON)
        assert [row[0] for row in cursor.fetchmany(2)] == [1, 2]
        assert [row[0] for row in cursor.fetchmany()] == [3]
        assert [row[0] for row in cursor] == [4, 5, 6]
        assert (cursor.fetchone(), cursor.fetchmany(3), cursor.fetchall()) == (None, [], [])


def test_a_commit_makes_everything_visible_and_a_rollback_nothing(shelf: Shelf) -> None:
    connection = shelf.connection()
    cursor = connection.cursor()
    cursor.execute("INSERT INTO orders VALUES (1, 'pen', 2.5, NULL)")
    cursor.execute("INSERT INTO clicks VALUES (7, NULL)")
    assert shelf.content == {"orders": [], "clicks": []}
    assert connection.commit() == START + dt.timedelta(seconds=1)
    assert shelf.commits == [{"orders": 1, "clicks": 1}]
    assert connection.commit() is None
    cursor.execute("INSERT INTO orders VALUES (2, 'ink', 9, NULL)")
    cursor.insert("clicks", pa.table({"who": [8], "page": ["x"]}))
    connection.rollback()
    assert connection.commit() is None
    assert shelf.content["orders"] == [{"id": 1, "item": "pen", "amount": Decimal("2.50"), "at": None}]
    assert shelf.content["clicks"] == [{"who": 7, "page": None}]
    connection.close()


def test_a_with_block_commits_or_rolls_back_and_closes(shelf: Shelf) -> None:
    with shelf.connection() as connection:
        connection.cursor().execute("INSERT INTO clicks VALUES (1, 'a')")
    assert shelf.is_closed
    assert len(shelf.content["clicks"]) == 1
    with pytest.raises(ZeroDivisionError), shelf.connection() as connection:
        connection.cursor().execute("INSERT INTO clicks VALUES (2, 'a')")
        raise ZeroDivisionError
    assert len(shelf.content["clicks"]) == 1
    for use in (connection.cursor, connection.commit, connection.rollback):
        with pytest.raises(dbapi.InterfaceError, match="closed"):
            use()
    connection.close()


def test_closing_without_a_commit_drops_the_open_transaction(shelf: Shelf) -> None:
    closed: list[str] = []
    connection = shelf.connection(on_close=lambda: closed.append("yes"))
    cursor = connection.cursor()
    cursor.execute("INSERT INTO clicks VALUES (1, 'a')")
    connection.close()
    connection.close()
    assert (shelf.content["clicks"], closed) == ([], ["yes"])
    with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
        cursor.execute("SELECT 1")
    other = shelf.connection().cursor()
    other.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        other.fetchall()


def test_errors_of_the_warehouse_come_as_those_of_pep_249(shelf: Shelf) -> None:
    with pytest.raises(dbapi.OperationalError, match="written by another") as busy:
        Shelf(ORDERS, taken=["orders"]).connection()
    assert isinstance(busy.value.__cause__, ProducerBusy)
    assert busy.value.hint == "wait"
    with shelf.connection() as connection:
        with pytest.raises(dbapi.ProgrammingError, match="look at the catalog"):
            connection.cursor().execute("SELECT COUNT(*) FROM elsewhere.t")
        with pytest.raises(dbapi.ProgrammingError, match=r"no table order.*did you mean orders"):
            connection.cursor().execute("INSERT INTO order_ VALUES (1)")


def test_after_a_commit_that_failed_one_can_go_on(shelf: Shelf, tmp_path: Path) -> None:
    with shelf.connection(memory_bytes=1000) as connection:
        connection.cursor().executemany("INSERT INTO clicks VALUES (%s, %s)", ((n, "x") for n in range(5000)))
        shelf.failing = StorageFull("the disk is full", hint="make room")
        with pytest.raises(dbapi.OperationalError, match="make room"):
            connection.commit()
        shelf.failing = None
        connection.cursor().execute("INSERT INTO clicks VALUES (5000, 'x')")
        connection.commit()
        assert [row["who"] for row in shelf.content["clicks"]] == list(range(5001))


def test_many_rows_of_an_iterator_spill_to_scratch_files(shelf: Shelf) -> None:
    with shelf.connection(memory_bytes=100_000) as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO clicks VALUES (%s, %s)", ((n, f"page {n}") for n in range(200_000)))
        assert cursor.rowcount == 200_000
        scratch = connection._scratch
        assert any(scratch.iterdir())
        connection.commit()
        assert not any(scratch.iterdir())
        assert shelf.commits == [{"clicks": 200_000}]
        assert shelf.content["clicks"][199_999] == {"who": 199_999, "page": "page 199999"}
    assert not scratch.exists()


def test_rows_come_as_arrow_tuples_or_mappings(shelf: Shelf) -> None:
    with shelf.connection() as connection:
        cursor = connection.cursor()
        given = pa.table({"page": ["a", "b"], "who": pa.array([1, 2], pa.int32())})
        assert cursor.insert("clicks", given) == 2
        assert cursor.insert("ETL.Clicks", given.to_batches()[0]) == 2
        assert cursor.insert("clicks", given.to_reader()) == 2
        assert cursor.insert("clicks", ((n, "c") for n in range(2))) == 2
        assert cursor.insert("clicks", [{"page": "d"}, {"page": "e"}]) == 2
        assert cursor.insert("clicks", []) == 0
        with pytest.raises(dbapi.ProgrammingError, match="cannot be a int"):
            cursor.insert("clicks", 5)
        with pytest.raises(dbapi.ProgrammingError, match=r"no table cliks.*clicks"):
            cursor.insert("cliks", [])
    rows = [(row["who"], row["page"]) for row in shelf.content["clicks"]]
    assert rows == [(1, "a"), (2, "b")] * 3 + [(0, "c"), (1, "c"), (None, "d"), (None, "e")]
