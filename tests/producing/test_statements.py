"""Which statements a producer's connection takes, and what they do."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pytest
import sqlglot
from pyspark.sql import types

from headgate.producing import Connection, dbapi
from headgate.producing.parameters import literal
from tests.producing.shelf import Shelf, table

ITEMS = table("items", "id long, name string, price double, made date, size integer", ("id",))
LINES = table("lines", "sale long, line long, item long, n integer", ("sale", "line"))
NOTES = table("notes", "text string, weight float")
OTHER = table("Other", "id long, name string", ("id",))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(ITEMS, LINES, NOTES, OTHER)


@pytest.fixture
def connection(shelf: Shelf) -> Connection:
    connection = shelf.connection("items", "lines", "notes")
    cursor = connection.cursor()
    cursor.execute(
        "INSERT INTO items VALUES (1, 'pen', 2, DATE '2024-01-01', 5), (2, 'ink', 1.5, NULL, NULL), (3, 'pen', 1e1, NULL, 5)"
    )
    connection.commit()
    cursor.execute("INSERT INTO items (name, id) VALUES (%s, %s)", ("cap", 4))
    return connection


def rows(connection: Connection, text: str, parameters: tuple[object, ...] | None = None) -> list[tuple[object, ...]]:
    return connection.cursor().execute(text, parameters).fetchall()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT name FROM items WHERE id = 4", [("cap",)]),
        ("select NAME as n from ETL.`Items` i where (i.ID = 1) and i.size = 5", [("pen",)]),
        ("SELECT id FROM items WHERE name = 'pen' AND size = 5 ORDER BY id DESC", [(3,), (1,)]),
        ("SELECT id FROM items WHERE 'pen' = name AND made IS NULL;", [(3,)]),
        ("SELECT id FROM items WHERE id IN (4, 2, 9)", [(4,), (2,)]),
        ("SELECT id, size FROM items ORDER BY size DESC NULLS FIRST, id DESC", [(4, None), (2, None), (3, 5), (1, 5)]),
        ("SELECT id FROM items ORDER BY size, id", [(2,), (4,), (1,), (3,)]),
        ("SELECT * FROM items WHERE made = DATE '2024-01-01'", [(1, "pen", 2.0, dt.date(2024, 1, 1), 5)]),
        ("SELECT id FROM items WHERE price = 1.5", [(2,)]),
        ("SELECT id FROM items WHERE id = NULL", []),
        ("SELECT MAX(id) FROM items", [(4,)]),
        ("SELECT MAX(size) AS largest FROM etl.items", [(5,)]),
        ("SELECT MAX(sale) FROM lines", [(None,)]),
    ],
)
def test_simple_selects_see_open_rows_without_the_warehouse(
    shelf: Shelf, connection: Connection, text: str, expected: list[tuple[object, ...]]
) -> None:
    assert rows(connection, text) == expected
    assert shelf.queries == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT COUNT(*) FROM items", [(3,)]),
        ("SELECT i.id FROM items i JOIN Other o ON i.id = o.id", []),
        ("SELECT id FROM items WHERE size > 4 ORDER BY id", [(1,), (3,)]),
        ("SELECT id FROM items WHERE id = 1 OR id = 3 ORDER BY id", [(1,), (3,)]),
        ("SELECT id + 1 FROM items WHERE id = 1", [(2,)]),
        ("SELECT DISTINCT name FROM items ORDER BY 1", [("ink",), ("pen",)]),
        ("SELECT id FROM items ORDER BY id LIMIT 1", [(1,)]),
        ("WITH items AS (SELECT 7 AS id) SELECT id FROM items", [(7,)]),
        ("SELECT items.id FROM items WHERE id = 1 UNION ALL SELECT 9", [(1,), (9,)]),
        ("SELECT MAX(id) FROM items WHERE size = 5", [(3,)]),
        ("SELECT name FROM other WHERE id = 1", []),
    ],
)
def test_other_queries_see_what_is_committed(
    shelf: Shelf, connection: Connection, text: str, expected: list[tuple[object, ...]]
) -> None:
    assert rows(connection, text) == expected
    assert len(shelf.queries) == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -5,
        2**40,
        0.1,
        Decimal("12.340"),
        Decimal("1E+3"),
        'it\'s \\ "quoted"\n; -- ü',
        b"\x00\xff",
        dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC),
    ],
)
def test_parameters_of_queries_become_literals_of_the_same_value(shelf: Shelf, value: object) -> None:
    with shelf.connection() as connection:
        cursor = connection.cursor().execute("SELECT %s AS given, 'a%%b' AS text WHERE 1 = 1", (value,))
        assert cursor.fetchall() == [(value, "a%b")]


def test_a_literal_cannot_break_out_of_its_quotes() -> None:
    hostile = "x\\' OR 1=1 --"
    text = f"SELECT {literal(hostile)}"
    tree = sqlglot.parse_one(text, dialect="spark")
    assert [each.name for each in tree.find_all(sqlglot.exp.Literal)] == [hostile]
    assert duckdb.execute(tree.sql("duckdb")).fetchall() == [(hostile,)]
    with pytest.raises(dbapi.NotSupportedError, match="cannot be a list"):
        literal([1])


def test_rows_change_by_key_and_by_other_columns(shelf: Shelf, connection: Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("UPDATE items SET name = %s, size = 7 WHERE id = %s", ("tip", 4)).rowcount == 1
    assert cursor.execute("UPDATE items SET price = 3 WHERE name = 'pen'").rowcount == 2
    assert cursor.execute("UPDATE items SET size = 1 WHERE id IN (1, 2)").rowcount == 2
    assert cursor.execute("UPDATE items SET name = 'x' WHERE id = 99").rowcount == 0
    assert cursor.execute("UPDATE items SET id = 30 WHERE id = 3").rowcount == 1
    assert cursor.execute("DELETE FROM items WHERE id = 2 AND name = 'ink'").rowcount == 1
    assert cursor.execute("DELETE FROM items WHERE id = 2").rowcount == 0
    expected = [(1, "pen", 3.0, dt.date(2024, 1, 1), 1), (4, "tip", None, None, 7), (30, "pen", 3.0, None, 5)]
    assert rows(connection, "SELECT * FROM items ORDER BY id") == expected
    connection.commit()
    assert [tuple(row.values()) for row in sorted(shelf.content["items"], key=str)] == sorted(expected, key=str)
    assert cursor.executemany("DELETE FROM items WHERE id = %s", [(1,), (4,), (5,)]).rowcount == 2
    assert cursor.executemany("UPDATE items SET size = %s WHERE id = %s", [(8, 30), (9, 30)]).rowcount == 2
    connection.commit()
    assert [(row["id"], row["size"]) for row in shelf.content["items"]] == [(30, 9)]
    assert shelf.queries == []


def test_a_table_without_a_key_only_takes_rows(shelf: Shelf, connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO notes VALUES ('a', 0.1), ('a', 0.1)")
    for text in ("UPDATE notes SET text = 'b'", "DELETE FROM notes WHERE text = 'a'"):
        with pytest.raises(dbapi.NotSupportedError, match=r"etl.notes has no key.*PRIMARY KEY"):
            cursor.execute(text)
    assert rows(connection, "SELECT text FROM notes WHERE text = 'a'") == [("a",), ("a",)]
    connection.commit()
    cursor.execute("INSERT INTO notes VALUES ('a', 0.5)")
    found = rows(connection, "SELECT weight FROM notes WHERE text = 'a'")
    assert found[0] == (shelf.content["notes"][0]["weight"],)
    assert len(found) == 3
    assert rows(connection, "SELECT MAX(weight) FROM notes") == [(0.5,)]
    connection.rollback()
    assert len(rows(connection, "SELECT weight FROM notes WHERE text = 'a'")) == 2
    assert rows(connection, "SELECT MAX(weight) FROM notes") == [found[0]]


def test_rows_of_a_query_join_the_open_transaction(shelf: Shelf, connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO lines (sale, line, item) SELECT id, size, id FROM items WHERE size = %s", (5,))
    assert cursor.rowcount == 2
    cursor.execute("INSERT INTO TABLE etl.Other (id, name) VALUES (1 + 1, upper(%s)), (7, 'x')", ("two",))
    assert cursor.rowcount == 2
    assert "other" in {name.lower() for name in shelf.claimed}
    cursor.execute("INSERT INTO other WITH x AS (SELECT 8 AS id) SELECT id, 'y' FROM x")
    assert rows(connection, "SELECT name FROM other WHERE id IN (2, 7, 8)") == [("TWO",), ("x",), ("y",)]
    connection.commit()
    assert [row["id"] for row in shelf.content["Other"]] == [2, 7, 8]
    assert [(row["sale"], row["line"], row["n"]) for row in shelf.content["lines"]] == [(1, 5, None), (3, 5, None)]
    with pytest.raises(dbapi.ProgrammingError, match="1 columns are given for 2"):
        cursor.execute("INSERT INTO other SELECT 1")


def test_tables_are_created_and_dropped(shelf: Shelf, connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS etl.made (a INT NOT NULL, b DECIMAL(12, 3), c VARCHAR(20), d TEXT, e TIMESTAMP,"
        " f BIGINT, g DOUBLE, h BOOLEAN, i DATE, j BINARY, k SMALLINT, l FLOAT, m NUMERIC(5), PRIMARY KEY (F, a))"
    )
    made = shelf.tables["made"]
    assert made.key == ("f", "a")
    assert made.schema["f"].nullable is False
    assert made.schema["g"].nullable is True
    kinds = [field.dataType for field in made.schema.fields]
    assert kinds[:5] == [
        types.IntegerType(), types.DecimalType(12, 3), types.StringType(), types.StringType(), types.TimestampType()
    ]  # fmt: skip
    assert kinds[-1] == types.DecimalType(5, 0)
    cursor.execute("CREATE TABLE IF NOT EXISTS Made (a INT PRIMARY KEY)")
    with pytest.raises(dbapi.ProgrammingError, match="has a table made already"):
        cursor.execute("CREATE TABLE made (a INT PRIMARY KEY)")
    cursor.execute("INSERT INTO made (a, f, b) VALUES (1, 2, 1.5)")
    with pytest.raises(dbapi.ProgrammingError, match="cannot be dropped while"):
        cursor.execute("DROP TABLE made")
    connection.commit()
    cursor.execute("DROP TABLE made")
    assert "made" not in shelf.tables
    cursor.execute("DROP TABLE IF EXISTS made")
    with pytest.raises(dbapi.ProgrammingError, match="no table made"):
        cursor.execute("INSERT INTO made (a, f) VALUES (1, 2)")


@pytest.mark.parametrize(
    "text",
    [
        "TRUNCATE TABLE items",
        "COMMIT",
        "SELECT 1; SELECT 2",
        "",
        "INSERT OVERWRITE items SELECT 1",
        "UPDATE items SET size = size + 1 WHERE id = 1",
        "UPDATE items SET size = 1 WHERE id > 1",
        "DELETE FROM items WHERE id = 1 OR id = 2",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE t (a INT) USING delta",
        "CREATE TABLE t AS SELECT 1",
        "CREATE TABLE t (a ARRAY<INT>)",
        "CREATE TABLE t (a INT DEFAULT 3)",
        "INSERT INTO elsewhere.items VALUES (1)",
        "MERGE INTO items USING other ON items.id = other.id WHEN MATCHED THEN DELETE",
    ],
)
def test_other_statements_are_refused_with_what_is_possible(connection: Connection, text: str) -> None:
    with pytest.raises(dbapi.NotSupportedError) as refused:
        connection.cursor().execute(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO items (id, nam) VALUES (1, 'x')", "no column nam.*name"),
        ("INSERT INTO items (id, ID) VALUES (1, 2)", "a column twice"),
        ("INSERT INTO items (id) VALUES (1, 2)", "2 values are given for 1 columns"),
        ("INSERT INTO item VALUES (1)", "no table item.*items"),
        ("UPDATE items SET nam = 1", "no column nam"),
        ("SELECT FROM WHERE", "."),
        ("SELECT 'a", "."),
        ("CREATE TABLE t (a INT, A INT)", "two columns"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "a column that it does not have"),
    ],
)
def test_mistakes_are_named(connection: Connection, text: str, message: str) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=message):
        connection.cursor().execute(text)
    with pytest.raises(dbapi.ProgrammingError):
        connection.cursor().executemany("SELECT id FROM items WHERE id = %s", [(1,)])
