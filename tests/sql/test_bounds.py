"""No text of SQL, however long, deep or broken, gives anything but a tree or an error that says what is wrong."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import DefiniteError, HeadgateError, Location
from headgate.sql.bounds import MOST_CHAINED, MOST_LEVELS, MOST_TOKENS
from headgate.sql.guard import require_select
from headgate.sql.lower import lower_view
from headgate.sql.references import read_tables
from headgate.sql.statements import CreateView, parse_statements
from headgate.sql.tail import parse_setting, split_tail
from headgate.text import LONGEST_TEXT
from tests.sql.catalogs import SHOP

QUERIES = (
    "SELECT a, sum(b) AS s FROM shop.lines l JOIN stores USING (store) WHERE a > 1 GROUP BY a HAVING sum(b) > 2",
    "WITH t AS (SELECT 1 AS x UNION ALL SELECT 2) SELECT * FROM t WHERE x IN (1, 2) ORDER BY x DESC LIMIT 3",
    "SELECT CASE WHEN a IS NULL THEN 'it''s' ELSE `b c` END, DATE'2024-01-01', x[0].y::int FROM t CURRENCY BOUND 10 MIN",
    "SELECT rank() OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t DEADLINE 5 SEC",
    "SET max_staleness = '10m'",
    "RESET deadline",
)
FLOW = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('lookup_miss' = 'drop') AS SELECT 1 AS a;"
NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "SELECT " + "(" * n + "1" + ")" * n,
    "subqueries": lambda n: "SELECT * FROM " + "(SELECT * FROM " * n + "t" + ")" * n,
    "NOT": lambda n: "SELECT " + "NOT " * n + "a FROM t",
    "minus": lambda n: "SELECT " + "- " * n + "1",
    "CASE": lambda n: "SELECT " + "CASE WHEN a THEN " * n + "1" + " END" * n + " FROM t",
    "functions": lambda n: "SELECT " + "abs(" * n + "1" + ")" * n,
    "types": lambda n: "SELECT CAST(NULL AS " + "array<" * n + "int" + "> " * n + ")",
    "lists": lambda n: "SELECT " + "[" * n,
}
CHAINED: dict[str, Callable[[int], str]] = {
    "sums": lambda n: "SELECT " + "1+" * n + "1",
    "conditions": lambda n: "SELECT 1 FROM t WHERE " + "a=1 AND " * n + "a=1",
    "unions": lambda n: "SELECT 1 " + "UNION ALL SELECT 1 " * n,
    "casts": lambda n: "SELECT 1" + "::int" * n,
    "parts of a name": lambda n: "SELECT a" + ".b" * n + " FROM t",
    "subscripts": lambda n: "SELECT a" + "[0]" * n + " FROM t",
}


def read(text: str) -> None:
    """All that happens to a query's text before Spark gets it."""
    if parse_setting(text) is not None:
        return
    query, _ = split_tail(text)
    require_select(query)
    read_tables(query, Location("query"))


@pytest.mark.parametrize("form", NESTED)
def test_levels_are_bounded_and_the_bound_is_named(form: str) -> None:
    for levels in (MOST_LEVELS * 2, 5_000):
        with pytest.raises(DefiniteError, match=rf"more than {MOST_LEVELS} levels|{MOST_TOKENS:,} are the most"):
            read(NESTED[form](levels))


@pytest.mark.parametrize("form", CHAINED)
def test_chains_are_bounded_and_the_bound_is_named(form: str) -> None:
    read(CHAINED[form](MOST_CHAINED - 10))
    for length in (MOST_CHAINED + 1, 3_000):
        with pytest.raises(DefiniteError, match=rf"more than {MOST_CHAINED:,} operators|{MOST_TOKENS:,} are the most"):
            read(CHAINED[form](length))


@pytest.mark.parametrize("form", sorted(set(NESTED) - {"lists"}))
def test_as_many_levels_as_the_bound_are_read_in_a_thread_too(form: str) -> None:
    problems: list[BaseException] = []

    def work(depth: int = 200) -> None:
        if depth:
            return work(depth - 1)
        try:
            read(NESTED[form](MOST_LEVELS - 1))
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert problems == []


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("SELECT '\ud800'", "U\\+D800, at character 9"),
        ("SELECT 1\n-- \udfff", "query:2: .*U\\+DFFF"),
        ("SELECT 'a\0b'", "a NUL"),
        ("SELECT '" + "x" * LONGEST_TEXT + "'", "longer than 1,048,576 characters"),
        ("SELECT * FROM t WHERE a IN (" + "1," * MOST_TOKENS + "1)", "50,000 are the most"),
    ],
)
def test_a_text_that_is_none_is_refused_wherever_sql_comes_in(text: str, telling: str) -> None:
    with pytest.raises(DefiniteError, match=telling):
        read(text)
    with pytest.raises(DefiniteError, match=telling.replace("query:2", "v.sql:2").partition(", at")[0]):
        parse_statements(f"CREATE MATERIALIZED VIEW v AS {text}", "v.sql")


pieces = st.sampled_from(
    [
        *[
            "(",
            ")",
            "'",
            '"',
            "`",
            "--",
            "/*",
            "*/",
            ";",
            "\x00",
            "�",
            "1e999",
            "SELECT",
            "DEADLINE",
            "${",
            "\\",
            "::",
            "->",
            "[",
            "CASE",
            "END",
            "x'",
            "😀",
        ],
        *("9" * 5000, "NOT " * 60, "((" * 30, "CURRENCY BOUND", "OVER (", "\r", " "),
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid query in which a few places were deleted, doubled or overwritten."""
    text = draw(st.sampled_from((*QUERIES, FLOW)))
    for _ in range(draw(st.integers(1, 4))):
        first, length = draw(st.integers(0, len(text))), draw(st.integers(0, 20))
        put = draw(st.one_of(pieces, st.text(max_size=5), st.just(text[first : first + length] * 2)))
        text = text[:first] + put + text[first + length :]
    return text


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(mutated(), st.lists(pieces, max_size=20).map(" ".join), st.text(max_size=200)))
@example("SELECT 1 DEADLINE " + "9" * 5000 + " SEC")
@example("SET deadline = '" + "9" * 5000 + "s'")
@example("SELECT 1 CURRENCY BOUND 1e400 DAY")
def test_any_text_is_read_or_refused_with_words(text: str) -> None:
    for reading in (read, lambda text: parse_statements(text, "v.sql")):
        try:
            reading(text)
        except HeadgateError as error:
            str(error).encode()


CONSTRUCTED: dict[str, Callable[[int], str]] = {
    "conditions": lambda n: "SELECT a FROM s.t WHERE " + " OR ".join(f"b = {i}" for i in range(n)),
    "branches over two tables": lambda n: (
        "SELECT t.a FROM s.t JOIN s.u ON t.a = u.a WHERE " + " OR ".join(f"(b = {i} AND e = {i})" for i in range(n))
    ),
    "sums of aggregates": lambda n: (
        "SELECT a, " + " + ".join(f"sum(b + {i})" for i in range(n)) + " AS x FROM s.t GROUP BY a"
    ),
    "unions": lambda n: " UNION ALL ".join(f"SELECT a, {i} AS x FROM s.t" for i in range(n)),
    "views of views": lambda n: (
        "WITH q0 AS (SELECT a FROM s.t)"
        + "".join(f", q{i} AS (SELECT a + 1 AS a FROM q{i - 1} WHERE a > {i})" for i in range(1, n))
        + f" SELECT * FROM q{n - 1}"
    ),
    "sums of a key": lambda n: "SELECT " + " + ".join("a" for _ in range(n)) + " AS x FROM s.t GROUP BY a",
}


@pytest.mark.parametrize("form", CONSTRUCTED)
def test_a_chain_that_is_twice_as_long_takes_about_twice_the_steps(form: str) -> None:
    assert steps_of_lowering(CONSTRUCTED[form](160)) < 2.6 * steps_of_lowering(CONSTRUCTED[form](80))


def steps_of_lowering(query: str) -> int:
    """Calls of Python functions while the query is lowered."""
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "flows/v.sql")
    assert isinstance(statement, CreateView)
    steps = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += event == "call"

    sys.setprofile(count)
    try:
        lower_view(statement, SHOP)
    finally:
        sys.setprofile(None)
    return steps
