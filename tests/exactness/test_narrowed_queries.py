"""Queries of some keys, asked of a warehouse whose ranges stand at different jobs: each answer is that of all rows.

The range columns are of every type that may have ranges; the oracle runs the query's own text over the model's rows.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.exactness.comparing import Rows, difference
from tests.exactness.model import Change, Delete, Insert, Table, Update
from tests.exactness.world import View, World
from tests.seed import SEED

QUERIES = int(os.environ.get("HEADGATE_QUERIES", 14))
DAY, INSTANT = date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)
TABLES = {
    name: Table({"k": kind, "n": "int", "v": "int"}, ("k", "n"))
    for name, kind in {"numbers": "bigint", "days": "date", "instants": "timestamp", "texts": "string"}.items()
} | {"heads": Table({"k": "bigint", "g": "int"}, ("k",))}
RANGES = {
    "numbers": {"column": "k", "bounds": [3, 6], "family": "numbers"},
    "heads": {"column": "k", "family": "numbers"},
    "days": {"column": "k", "bounds": ["2024-01-04", "2024-01-07"], "family": "days"},
    "instants": {"column": "k", "bounds": ["2024-01-01T03:00:00Z", "2024-01-01T06:00:00Z"], "family": "instants"},
    "texts": {"column": "k", "bounds": ["d", "g"], "family": "texts"},
}
VIEWS = (
    View("sums", "SELECT k, sum(v) AS s FROM s.numbers GROUP BY k"),
    View("joined", "SELECT f.k, f.n, h.g FROM s.numbers f JOIN s.heads h ON h.k = f.k"),
    View("per_day", "SELECT k, max(v) AS s FROM s.days GROUP BY k"),
    View("per_instant", "SELECT k, count(*) AS s FROM s.instants GROUP BY k"),
    View("per_text", "SELECT k, min(v) AS s FROM s.texts GROUP BY k"),
    # Run when it is read, over what is stored.
    View("largest", "SELECT k, n, v FROM s.numbers WHERE k >= 2 ORDER BY v DESC, k, n LIMIT 5"),
)


def value(table: str, number: int) -> object:
    match table:
        case "days":
            return DAY + timedelta(days=number)
        case "instants":
            return INSTANT + timedelta(hours=number)
        case "texts":
            return "abcdefghi"[number]
    return number


def literal(choice: random.Random, table: str) -> str:
    number = choice.randint(0, 8)
    match table:
        case "days":
            day = DAY + timedelta(days=number)
            return choice.choice((f"DATE '{day}'", f"'{day}'", f"DATE '{day}' + INTERVAL 1 DAY"))
        case "instants":
            return choice.choice((f"TIMESTAMP '2024-01-01 0{number}:00:00'", f"'2024-01-01 0{number}:00:00+01:00'"))
        case "texts":
            return f"'{'abcdefghi'[number]}'"
    return choice.choice((str(number), f"{number} + 1", f"'{number}'", f"{number}.0"))


def predicate(choice: random.Random, table: str, column: str = "k", depth: int = 1) -> str:
    if depth and choice.random() < 0.5:
        one, other = (predicate(choice, table, column, depth - 1) for _ in range(2))
        return choice.choice((f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"))
    one, other = (literal(choice, table) for _ in range(2))
    shapes = [
        f"{column} = {one}",
        f"{column} < {one}",
        f"{column} BETWEEN {one} AND {other}",
        f"{column} IN ({one}, {other})",
    ]
    return choice.choice([*shapes, f"{column} LIKE '{'abcdefghi'[choice.randint(0, 8)]}%'"] if table == "texts" else shapes)  # fmt: skip


def query(choice: random.Random) -> str:
    number, other = predicate(choice, "numbers"), predicate(choice, "numbers")
    kind, view = choice.choice((("days", "per_day"), ("instants", "per_instant"), ("texts", "per_text")))
    aliased = predicate(choice, "numbers", "a.k")
    return choice.choice(
        (
            f"SELECT k, s FROM sums WHERE {number}",
            f"SELECT k, s FROM {view} WHERE {predicate(choice, kind)}",
            f"SELECT k, s FROM {view} WHERE {predicate(choice, kind)}",
            f"SELECT k, n, v FROM s.{kind} WHERE {predicate(choice, kind)}",
            f"SELECT a.k, a.s, b.n FROM sums a LEFT JOIN joined b ON a.k = b.k WHERE {aliased}",
            f"SELECT a.k, b.k AS bk FROM joined a JOIN joined b ON a.g = b.g WHERE {aliased}",
            f"SELECT k, s FROM sums WHERE k = (SELECT max(k) FROM s.heads WHERE {number})",
            f"SELECT k FROM sums WHERE {number} EXCEPT SELECT k FROM s.heads WHERE {other}",
            f"SELECT k, n FROM largest WHERE {number}",
            f"WITH x AS (SELECT k AS z, g FROM joined) SELECT z, count(*) AS c FROM x WHERE {predicate(choice, 'numbers', 'z')} GROUP BY z",
            f"SELECT k, s FROM sums WHERE k IN (SELECT k FROM s.heads WHERE {number})",
        )
    )  # fmt: skip


def change(choice: random.Random) -> Change:
    table = choice.choice(("numbers", "numbers", "days", "instants", "texts", "heads"))
    k, n = value(table, choice.randint(0, 8)), choice.randint(0, 1)
    if table == "heads":
        return Insert("heads", {"k": k, "g": choice.randint(0, 2)})
    match choice.randint(0, 4):
        case 0:
            return Delete(table, {"k": k, "n": n})
        case 1:
            moved = {"k": value(table, choice.randint(0, 8)), "n": n, "v": choice.randint(0, 9)}
            return Update(table, moved, {"k": k, "n": n})
    return Insert(table, {"k": k, "n": n, "v": choice.randint(0, 9)})


@pytest.mark.slow
def test_answers_over_ranges_at_different_jobs_are_those_of_all_rows(oracle: SparkSession, tmp_path: Path) -> None:
    choice = random.Random(f"narrowed queries {SEED}")
    behind = 0
    with World(tmp_path, oracle, TABLES, (), VIEWS, {"small_table_rows": 1, "rows_per_file": 4}, RANGES) as world:
        for name in ("sums", "joined", "per_day", "per_instant", "per_text"):
            assert world.stored(name).range_map.count == 3, name
        world.commit(*[change(choice) for _ in range(30)])
        for number in range(QUERIES):
            if number % 2 == 0:
                world.commit(*[change(choice) for _ in range(choice.randint(2, 6))])
            text = query(choice)
            with world.warehouse.sql(text, max_staleness="0s") as answer:
                actual, receipt = Rows.of(answer.dataframe), answer.receipt
            world.model.close_job() if receipt.job > len(world.model.jobs) else None
            assert receipt.job == len(world.model.jobs)
            behind += sum(each.left_behind for each in receipt.ranges)
            world._register(int(receipt.job), {})
            found = difference(actual, Rows.of(oracle.sql(text.replace("s.", ""))))
            assert found is None, f"{text}\n{found}\n{receipt.ranges}"
    assert behind  # some ranges were left where they were
