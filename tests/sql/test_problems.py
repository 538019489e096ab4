"""Mistakes in a view's query: each has its own message, with file, line and a hint."""

from __future__ import annotations

import pytest

from headgate.errors import DefiniteError, FlowError, Location, UnknownTable
from headgate.sql.lower import lower_view
from headgate.sql.references import read_tables, replace_tables
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP


def problem(query: str) -> FlowError:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS\n{query}", "v.sql")
    assert isinstance(statement, CreateView)
    with pytest.raises(FlowError) as raised:
        lower_view(statement, SHOP)
    return raised.value


@pytest.mark.parametrize(
    ("query", "line", "what", "hint"),
    [
        ("SELECT 1\nFROM s.tt", 3, "unknown table 's.tt'", "did you mean s.t"),
        ("SELECT a,\n bb FROM s.t", 3, "unknown column 'bb'", "did you mean b"),
        ("SELECT t.zz FROM s.t", 2, "unknown column 't.zz'", "known: "),
        ("SELECT x.a FROM s.t", 2, "no table or column 'x'", "known: s.t"),
        ("SELECT a\nFROM s.t, s.u", 2, "column 'a' is ambiguous: it is in s.t, s.u", "put the table's name"),
        ("SELECT a, b AS A FROM s.t", 2, "two columns called 'A'", "another name"),
        ("SELECT __commit_at FROM s.t", 2, "cannot be called '__commit_at'", "rename it with AS"),
        ("SELECT a, b FROM s.t GROUP BY a", 2, "column 'b' is neither grouped nor", "GROUP BY"),
        ("SELECT a FROM s.t WHERE sum(b) > 1", 2, "aggregate sum() is not allowed here", "HAVING"),
        ("SELECT a FROM s.t WHERE rank() OVER (PARTITION BY a ORDER BY b) = 1", 2, "window function", "QUALIFY"),
        ("SELECT a FROM s.t UNION SELECT a, e FROM s.u", 2, "UNION of 1 and 2 columns", "as many"),
        ("SELECT a FROM s.t GROUP BY 3", 2, "GROUP BY 3", ""),
        ("SELECT a FROM s.t WHERE a IN (SELECT a, e FROM s.u)", 2, "IN compares 1 with 2 columns", ""),
        ("SELECT 1 AS x FROM s.t JOIN s.t ON true", 2, "two tables of the query are called 's.t'", "alias"),
        ("SELECT sum(b) OVER w FROM s.t", 2, "unknown window 'w'", "WINDOW"),
        ("SELECT a\nFROM s.t WHERE (a", 3, "cannot read this SQL", "Spark SQL"),
        (
            "SELECT a FROM s.t x JOIN s.k FOR SYSTEM_TIME AS OF x.at k ON k.a = x.a",
            2,
            "keeps no versions",
            "SCD TYPE 2",
        ),
        (
            "SELECT 1 AS x FROM s.t JOIN item FOR SYSTEM_TIME AS OF t.at i ON i.item_id = t.a AND i.name = 'x'",
            2,
            "only equalities on the key of 'item'",
            "into WHERE",
        ),
        (
            "SELECT 1 AS x FROM s.t JOIN item FOR SYSTEM_TIME AS OF t.at i ON i.name = t.c",
            2,
            "the whole key of 'item': item_id",
            "",
        ),
        ("SELECT 1 AS x FROM s.t CROSS JOIN item FOR SYSTEM_TIME AS OF t.at i", 2, "inner or a left join", "LEFT"),
    ],
)
def test_a_mistake_names_its_line_and_a_way_out(query: str, line: int, what: str, hint: str) -> None:
    error = problem(query)
    assert error.where is not None and (error.where.file, error.where.line) == ("v.sql", line)
    assert what in error.what
    assert hint in (error.hint or "")


def test_an_unknown_table_is_an_unknown_table_too() -> None:
    assert isinstance(problem("SELECT 1 AS x FROM s.nothing"), UnknownTable)


@pytest.mark.parametrize(
    "text", ["DROP TABLE t", "INSERT INTO t SELECT 1", "SELECT 1; SELECT 2", "SET x = 1", "CREATE TABLE t AS SELECT 1"]
)
def test_only_one_query_is_taken(text: str) -> None:
    with pytest.raises(DefiniteError):
        read_tables(text, Location("query"))


def test_references_leave_common_tables_out() -> None:
    text = (
        "WITH t AS (SELECT * FROM t), U AS (SELECT 1) SELECT * FROM t JOIN u JOIN `S`.`x y` z ON (SELECT 1 FROM w) = 1"
    )
    found = [(item.name, item.alias) for item in read_tables(text, Location("query")).references]
    assert found == [("t", None), ("S.x y", "z"), ("w", None)]


def test_replacing_tables_touches_nothing_else() -> None:
    text = (
        "SELECT purchases.x, SHOP.purchases.y, 'shop.purchases' -- shop.purchases\nFROM Shop . purchases, shop.items i"
    )
    replaced = replace_tables(text, {"shop.purchases": "view_1", "shop.items": "(SELECT 1)"})
    assert replaced == (
        "SELECT purchases.x, purchases.y, 'shop.purchases' -- shop.purchases\nFROM view_1 AS `purchases`, (SELECT 1) i"
    )


def test_tables_that_are_not_in_the_mapping_stay() -> None:
    assert replace_tables("SELECT * FROM parquet.`/x` p, t", {"T": "v"}) == "SELECT * FROM parquet.`/x` p, v AS `t`"
