"""Rows that a query only picks by values are read without Spark, and are those that Spark reads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
import sqlglot
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

import headgate
from headgate import Answer, Warehouse
from headgate.errors import HeadgateError
from headgate.ranges.key_set import KeySet, any_of
from headgate.runtime.reading import picking
from headgate.runtime.reading.result import PickedResult
from headgate.runtime.spark.partitions import ReadLimit
from headgate.runtime.spark.sessions import SparkSessions
from headgate.sql.picks import picks_of
from tests.scheduling.bank import SPARK
from tests.seed import SEED

TABLES = {
    "numbers": {
        "columns": {
            "a": "bigint",
            "b": "string",
            "Small": "smallint",
            "text": "string",
            "amount": "decimal(12,3)",
            "ratio": "double",
            "day": "date",
            "at": "timestamp",
            "local": "timestamp_ntz",
            "yes": "boolean",
            "raw": "binary",
        },
        "key": ["a", "b"],
    },
    "texts": {"columns": {"name": "string", "v": "int"}, "key": ["name"]},
    "times": {"columns": {"at": "timestamp", "v": "int"}, "key": ["at"]},
}
FLOWS = """
CREATE MATERIALIZED VIEW sums AS SELECT a, text, COUNT(*) AS n, MAX(day) AS latest FROM s.numbers GROUP BY a, text;
CREATE MATERIALIZED VIEW ranked AS SELECT name, v, rank() OVER (ORDER BY v) AS place FROM s.texts;
"""
TEXTS = ["", "x", "Ünï", "two words", "null"]


def random_row(random: Random, a: int, b: str) -> dict[str, object]:
    def maybe(value: object) -> object:
        return None if random.random() < 0.2 else value

    return {
        "a": a,
        "b": b,
        "Small": maybe(random.randint(-3, 3)),
        "text": maybe(random.choice(TEXTS)),
        "amount": maybe(Decimal(random.randint(-9999, 9999)) / 1000),
        "ratio": maybe(random.choice([0.0, -0.0, 1.5, float("inf")])),
        "day": maybe(date(2024, 2, random.randint(1, 29))),
        "at": maybe(datetime(2024, 2, 29, 12, 0, 0, random.randint(0, 999_999), tzinfo=UTC)),
        "local": maybe(datetime(2024, 2, 29, 12, 0, 0, random.randint(0, 999_999))),
        "yes": maybe(random.random() < 0.5),
        "raw": maybe(random.choice(TEXTS).encode()),
    }


def commit(warehouse: Warehouse, random: Random) -> None:
    """A transaction that inserts, overwrites and deletes."""
    with warehouse.source("s").transaction() as transaction:
        for _ in range(12):
            a, b = random.randint(-9, 9), random.choice(TEXTS)
            if random.random() < 0.3:
                transaction.delete("numbers", {"a": a, "b": b})
            else:
                transaction.insert("numbers", random_row(random, a, b))
        transaction.insert("texts", {"name": random.choice(TEXTS), "v": random.randint(0, 9)})
        transaction.insert("times", {"at": datetime(2024, 1, random.randint(1, 9), tzinfo=UTC), "v": 1})


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    """Tables whose rows lie in several files and in the overlay."""
    folder = tmp_path_factory.mktemp("picking")
    (folder / "flows").mkdir()
    (folder / "flows" / "flows.sql").write_text(FLOWS)
    project = {
        "name": "picking",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "limits": {"rows_per_file": 9},
        "sources": {"s": {"type": "memory", "tables": TABLES}},
        "background": {"system_jobs": False, "idle_after": "1h"},
    }
    random = Random(SEED)
    with headgate.open(project) as warehouse:
        for number in range(9):
            commit(warehouse, random)
            warehouse.refresh()
            if number in (3, 6):
                warehouse.materialize()
        yield warehouse


def rows(found: object) -> list[str]:
    return sorted(repr(row) for row in found)  # type: ignore[attr-defined]


def is_picked(answer: Answer) -> bool:
    return isinstance(answer._result, PickedResult)


def random_query(random: Random) -> str:
    columns = list(TABLES["numbers"]["columns"])  # type: ignore[call-overload]
    chosen = random.sample(columns, random.randint(1, 4))
    outputs = random.choice(
        [
            "*",
            ", ".join(chosen),
            ", ".join(f"t.{name.upper()} AS `{name} 2`" for name in chosen),
            "a, a AS a, __commit_at",
        ]
    )
    values = random.sample(range(-12, 13), random.randint(1, 5))
    lead = random.choice([f"a = {values[0]}", f"{values[0]} = A", f"t.a IN ({', '.join(map(str, values))})"])
    more = random.choice(
        [
            "",
            f" AND b = '{random.choice(TEXTS)}'",
            " AND (small IN (1, 2, -3, 99999))",
            " AND text IN ('x', 'Ünï') AND a = 3",
        ]
    )
    return f"SELECT {outputs} FROM s.numbers{random.choice([' t', ' AS T'])} WHERE {lead}{more}"


def test_picked_rows_are_those_that_spark_reads(warehouse: Warehouse) -> None:
    random = Random(SEED)
    queries = [random_query(random) for _ in range(25)]
    queries += [f"SELECT * FROM sums WHERE a = {number}" for number in (-2, 0, 5, 1 << 70)]
    queries += [f"SELECT v, name FROM s.texts WHERE name IN ('{text}', 'none')" for text in TEXTS]
    for query in queries:
        with warehouse.sql(query) as answer:
            assert is_picked(answer), query
            found, expected = answer.to_arrow(), answer.dataframe.toArrow()
            assert found.schema == expected.schema, query
            assert answer.schema == answer.dataframe.schema
            assert rows(found.to_pylist()) == rows(expected.to_pylist()), query
            assert rows(answer.collect()) == rows(answer.dataframe.collect())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a + 1 FROM s.numbers WHERE a = 1",
        "SELECT a FROM s.numbers WHERE a = 1.0",
        "SELECT a FROM s.numbers WHERE a = '1'",
        "SELECT a FROM s.numbers WHERE a = 1 OR a = 2",
        "SELECT a FROM s.numbers WHERE a > 1",
        "SELECT a FROM s.numbers WHERE b = 'x'",
        "SELECT a FROM s.numbers WHERE a = 1 AND day = '2024-02-01'",
        "SELECT a FROM s.numbers WHERE a IN (1, NULL)",
        "SELECT a FROM s.numbers WHERE a = 1 LIMIT 1",
        "SELECT DISTINCT a FROM s.numbers WHERE a = 1",
        "SELECT a FROM s.numbers WHERE a = 1 ORDER BY b",
        "SELECT COUNT(*) FROM s.numbers WHERE a = 1",
        "SELECT n.a FROM s.numbers n JOIN s.texts t ON t.v = n.a WHERE n.a = 1",
        "SELECT v FROM s.times WHERE at = TIMESTAMP '2024-01-01'",
        "SELECT v FROM s.texts WHERE name = 'two\\x20words'",
        "SELECT v FROM s.texts WHERE name = 'it''s'",
        "SELECT place FROM ranked WHERE name = 'x'",
        "SELECT *, __commit_at FROM s.numbers WHERE a = 1",
    ],
)
def test_whatever_else_a_query_says_is_read_by_spark(warehouse: Warehouse, query: str) -> None:
    with warehouse.sql(query) as answer:
        assert not is_picked(answer)
        assert rows(answer.to_arrow().to_pylist()) == rows(answer.dataframe.toArrow().to_pylist())


def test_a_mistake_in_a_query_that_picks_is_told_as_in_any_other(warehouse: Warehouse) -> None:
    for query, told in {
        "SELECT nope FROM s.numbers WHERE a = 1": "nope",
        "SELECT a FROM s.numbers WHERE nope = 1": "nope",
        "SELECT s.numbers.a FROM s.numbers t WHERE a = 1": "numbers",
    }.items():
        with pytest.raises(HeadgateError, match=told):
            warehouse.sql(query)


def test_limits_hold_for_picked_rows(warehouse: Warehouse) -> None:
    query = f"SELECT * FROM s.numbers WHERE a IN ({', '.join(map(str, range(-9, 10)))})"
    with warehouse.sql(query) as answer:
        assert is_picked(answer) and answer.to_arrow().num_rows > 4
        assert answer.read(ReadLimit(rows=2)).rows == 2
        assert answer.read(ReadLimit(bytes=10)).is_cut


def test_much_to_read_is_left_to_spark(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picking, "MOST_BYTES", 0)
    with warehouse.sql(f"SELECT * FROM s.numbers WHERE a IN ({', '.join(map(str, range(-9, 10)))})") as answer:
        assert not is_picked(answer)


def test_an_older_job_is_picked_as_it_was(warehouse: Warehouse, tmp_path: Path) -> None:
    query = "SELECT * FROM s.numbers WHERE a IN (0, 1, 2, 3)"
    for job in (warehouse.newest_job - 1, warehouse.newest_job):
        with warehouse.sql(query, job=job) as answer:
            assert is_picked(answer)
            assert rows(answer.to_arrow().to_pylist()) == rows(answer.dataframe.toArrow().to_pylist())


@pytest.mark.parametrize(
    ("where", "column", "keys"),
    [
        ("id = 5", "Id", any_of([5])),
        ("id IN (5, 7) AND t = 'a'", "Id", any_of([5, 7])),
        ("id = 5 AND id = 6", "Id", any_of([5])),
        ("t = 'a'", "t", any_of(["a"])),
        ("t = 'a'", "Id", None),
        ("id = '5'", "Id", None),
        ("id = 99999999999999999999999", "Id", None),
        ("d = 5", "d", None),
    ],
)
def test_the_keys_of_picked_rows_are_known_without_a_plan(where: str, column: str, keys: KeySet | None) -> None:
    text = f"SELECT t FROM x WHERE {where}"
    picks = picks_of(sqlglot.parse_one(text, dialect="spark"), text)
    assert picks is not None
    schema = StructType([StructField("Id", LongType()), StructField("t", StringType()), StructField("d", DoubleType())])
    assert picking.picked_keys(picks, schema, column) == keys
