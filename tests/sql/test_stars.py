"""A star stands for the columns that are not hidden; a hidden column is there exactly where it is named."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headgate.errors import DefiniteError, Location
from headgate.sql.references import TableReference, read_tables

TABLES = {
    "dim": ("SELECT 1 AS id, 'a' AS name, 10L AS __sk, 1 AS __start_at, CAST(NULL AS INT) AS __end_at", 2),
    "shop.items": ("SELECT 1 AS id, 'x' AS item, 5 AS __commit_at", 2),
    "shop.sales": ("SELECT 1 AS id, 7 AS amount, 5 AS __commit_at", 2),
}
VISIBLE = ["id", "name"]
QUERY = Location("query")


def columns_of(text: str, spark: SparkSession) -> list[str]:
    """What Spark says the query's columns are; it is run, too."""

    def relation(table: TableReference) -> str:
        query, shown = TABLES[table.name.lower()]
        return f"(SELECT {', '.join([*all_columns(table.name)[:shown], *table.hidden])} FROM ({query}))"

    def all_columns(name: str) -> list[str]:
        return spark.sql(TABLES[name.lower()][0]).columns

    query = read_tables(text, QUERY, lambda name: all_columns(name)[TABLES[name.lower()][1] :])
    frame = spark.sql(query.replaced(relation).text)
    assert len(frame.collect()) == 1
    return frame.columns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM dim", VISIBLE),
        ("SELECT * FROM dim WHERE __end_at IS NULL", VISIBLE),
        ("SELECT *, __sk FROM dim", [*VISIBLE, "__sk"]),
        ("SELECT __SK, d.* FROM Dim AS d", ["__SK", *VISIBLE]),
        ("SELECT `dim`.*, dim.`__sk` AS sk FROM dim", [*VISIBLE, "sk"]),
        ("SELECT * EXCEPT (name), __sk FROM dim", ["id", "__sk"]),
        ("SELECT * EXCEPT (name, __end_at), __sk FROM dim", ["id", "__sk"]),
        ("SELECT dim.* EXCEPT (id) FROM dim ORDER BY __start_at", ["name"]),
        ("SELECT DISTINCT * FROM dim WHERE __sk > 1", VISIBLE),
        ("SELECT * FROM (SELECT *, __sk FROM dim) WHERE __sk = 10", [*VISIBLE, "__sk"]),
        ("WITH d AS (SELECT * FROM dim WHERE __end_at IS NULL) SELECT * FROM d", VISIBLE),
        ("WITH d AS (SELECT *, __sk FROM dim) SELECT * FROM d JOIN dim USING (id)", ["id", "name", "__sk", "name"]),
        ("SELECT * FROM dim a JOIN dim b ON a.__sk = b.__sk", [*VISIBLE, *VISIBLE]),
        ("SELECT a.*, b.__sk FROM dim a, dim b WHERE a.__sk = b.__sk", [*VISIBLE, "__sk"]),
        ("SELECT *, __sk FROM dim JOIN shop.items USING (id)", ["id", "name", "item", "__sk"]),
        ("SELECT *, dim.__sk FROM shop.items RIGHT JOIN dim USING (id)", ["id", "item", "name", "__sk"]),
        ("SELECT * FROM shop.items JOIN shop.sales USING (__commit_at)", ["id", "item", "id", "amount"]),
        ("SELECT * FROM (shop.items JOIN shop.sales USING (__commit_at))", ["id", "item", "id", "amount"]),
        (
            "SELECT *, items.__commit_at FROM shop.items NATURAL JOIN shop.sales",
            ["id", "item", "amount", "__commit_at"],
        ),
        ("SELECT shop.items.*, shop.items.__commit_at FROM shop.items", ["id", "item", "__commit_at"]),
        ("SELECT * FROM shop.items i LEFT SEMI JOIN dim d ON d.id = i.id AND d.__sk > 1", ["id", "item"]),
        (
            "SELECT *, (SELECT max(amount) FROM shop.sales s WHERE s.id <= d.__sk) AS most FROM dim d",
            [*VISIBLE, "most"],
        ),
        ("SELECT * FROM dim WHERE EXISTS (SELECT * FROM shop.sales WHERE amount < __sk)", VISIBLE),
        ("SELECT * FROM dim UNION ALL SELECT * FROM dim WHERE __sk < 0", VISIBLE),
        ("SELECT * FROM dim d LATERAL VIEW explode(array(d.__sk)) t AS one", [*VISIBLE, "one"]),
        ("SELECT * FROM (dim) d WHERE d.__sk = 10", VISIBLE),
        ("SELECT * FROM (dim d JOIN shop.items i ON i.id = d.id AND d.__sk = 10)", ["id", "name", "id", "item"]),
        ("SELECT * FROM dim PIVOT (max(__sk) FOR name IN ('a' AS a))", ["id", "a"]),
        ("SELECT * FROM dim AS d(one, two)", ["one", "two"]),
        ("FROM dim SELECT *, __sk", [*VISIBLE, "__sk"]),
        ("SELECT '__sk' AS text, * FROM dim -- __sk", ["text", *VISIBLE]),
    ],
)
def test_a_star_stands_for_what_is_not_hidden(text: str, expected: list[str], spark: SparkSession) -> None:
    assert columns_of(text, spark) == expected


def test_stars_in_functions_leave_hidden_columns_out(spark: SparkSession) -> None:
    text = "SELECT count(*) AS n, count(d.*) AS whole, count(DISTINCT *) AS kinds, max(struct(*)) AS s FROM dim d"
    query = read_tables(f"{text} WHERE __end_at IS NULL", QUERY, lambda _: ["__end_at"])
    row = spark.sql(query.replaced(lambda _: f"({TABLES['dim'][0]})").text).collect()[0]
    assert (row.n, row.whole, row.kinds) == (1, 1, 1)
    assert row.s.asDict() == {"id": 1, "name": "a", "__sk": 10, "__start_at": 1}


def test_a_natural_join_does_not_compare_hidden_columns() -> None:
    text = "SELECT items.__commit_at, sales.__commit_at\nFROM shop.items\nNATURAL JOIN shop.sales"
    with pytest.raises(DefiniteError, match=r"query:3:1: a NATURAL JOIN would compare the hidden column __commit_at"):
        read_tables(text, QUERY, lambda _: ["__commit_at"])
