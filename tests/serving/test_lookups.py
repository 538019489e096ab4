"""Which columns an index would find the rows of a query by."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from headgate.errors import Location
from headgate.serving.lookups import MOST_INDEXES, WORTH_AN_INDEX, Lookups, looked_up, with_wanted
from headgate.serving.placed import PlacedTable, placed_table
from headgate.sql.positions import QueryText

SCHEMA = StructType().add("id", "long").add("a", "integer").add("b", "integer").add("c", "string").add("d", "date")


def table(indexes: str = "") -> PlacedTable:
    return placed_table("t", SCHEMA, SCHEMA.names, ("id",), indexes, "1")


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("WHERE a = 1", ("a",)),
        ("WHERE b = 2 AND a = 1", ("a", "b")),
        ("WHERE c IN ('x', 'y') AND d > DATE '2024-01-01' AND b < 3", ("c", "d")),
        ("WHERE d BETWEEN DATE '2024-01-01' AND DATE '2024-02-01'", ("d",)),
        ("WHERE a = 1 AND b = 2 AND c = 'x' AND d = DATE '2024-01-01'", ("a", "b", "c")),
        ("WHERE T.A = 1", ("a",)),
        ("WHERE a = b", None),
        ("WHERE a = 1 OR b = 2", None),
        ("WHERE a + 1 = 2", None),
        ("", None),
    ],
)
def test_values_that_columns_are_compared_with_count(condition: str, columns: tuple[str, ...] | None) -> None:
    tree = QueryText(f"SELECT id FROM t {condition}", Location("query")).parse()
    found = looked_up(tree, {"t": table()})
    assert found == (None if columns is None else ("t", columns))


def test_a_join_has_no_one_table() -> None:
    tree = QueryText("SELECT t.id FROM t JOIN u ON u.id = t.id WHERE t.a = 1", Location("query")).parse()
    assert looked_up(tree, {"t": table(), "u": table()}) is None


def test_an_index_is_made_once_and_only_where_no_other_one_serves() -> None:
    lookups = Lookups()
    told = [lookups.note("t", ("a",)) for _ in range(2 * WORTH_AN_INDEX)]
    assert told.index(True) == WORTH_AN_INDEX - 1 and told.count(True) == 1
    assert with_wanted(table("a b"), (), (("a",), ("id",), ("b",))) == (("a", "b"), ("b",))
    assert with_wanted(table(), (("b",),), (("b",), ("c",))) == (("b",), ("c",))
    many = tuple((column, other) for column in "abcd" for other in "abcd" if column != other)
    assert len(with_wanted(table("d"), (), many)) == 1 + MOST_INDEXES
