"""Rows out of Spark in batches of bounded size: the same rows as Spark's own way gives, as far as the limit."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.runtime.spark import partitions
from headgate.runtime.spark.partitions import FEW_BYTES, Batches, ReadLimit, read_partitions
from headgate.runtime.spark.sessions import SparkSessions

TYPES = """
SELECT id, CAST(id AS DECIMAL(38, 9)) AS price, CAST(id AS DOUBLE) / 3 AS share, CAST(id AS STRING) AS text, id % 2 = 0 AS even,
       DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:00:00' AS at, TIMESTAMP_NTZ '2024-02-29 12:00:00' AS local,
       CAST('x' AS BINARY) AS raw, array(id, NULL) AS list, named_struct('a', id, 'b', 'x') AS pair, map('k', id) AS pairs,
       INTERVAL '1' DAY AS lasts, CAST(NULL AS VOID) AS nothing, IF(id > 2, NULL, 'few') AS some
FROM range(0, {rows}, 1, {partitions})
"""


LARGE = ReadLimit(bytes=1 << 30)


class Reading:
    def __init__(self, sessions: SparkSessions, folder: Path) -> None:
        self.sessions = sessions
        self.folder = folder
        self.done = 0

    def __call__(self, sql: str, limit: ReadLimit = LARGE) -> Batches:
        def done() -> None:
            self.done += 1

        return read_partitions(self.sessions.query.sql(sql), limit, self.folder, done)

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*"))


@pytest.fixture
def reading(spark_sessions: SparkSessions, tmp_path: Path) -> Reading:
    return Reading(spark_sessions, tmp_path / "answer")


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(("rows", "partitions"), [(0, 2), (5, 3), (20_000, 2)])
def test_rows_and_types_are_those_that_spark_gives(reading: Reading, rows: int, partitions: int, flat: bool) -> None:
    sql = TYPES.format(rows=rows, partitions=partitions)
    if flat:
        sql = f"SELECT * EXCEPT (list, pair, pairs) FROM ({sql})"
    expected = reading.sessions.query.sql(sql).toArrow()
    found = reading(sql)
    assert found.rows == rows and not found.is_cut
    assert found.schema == expected.schema and found.to_arrow().equals(expected)


def test_few_rows_leave_no_file_and_many_leave_theirs_until_nobody_holds_them(reading: Reading) -> None:
    few = reading("SELECT id FROM range(10)")
    assert reading.done == 1 and not reading.folder.exists() and few.to_arrow().num_rows == 10
    many = reading("SELECT id, array(id) AS ids FROM range(0, 100000, 1, 2)")
    assert len(reading.files) == 2 and reading.done == 1
    assert [stat.S_IMODE(path.stat().st_mode) for path in (reading.folder, *reading.files)] == [0o700, 0o600, 0o600]
    assert [row for batch in many for row in batch.column(0).to_pylist()] == list(range(100_000))
    assert max(batch.nbytes for batch in many) < 2 << 20
    del many
    assert reading.done == 2 and not reading.folder.exists()


def test_few_rows_take_no_python_worker(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a Python worker is used")

    monkeypatch.setattr(partitions, "partition_task", refuse)
    grouped = "SELECT CAST(id % 100 AS STRING) AS x, COUNT(*) AS n FROM range(0, 100000, 1, 3) GROUP BY 1"
    assert reading(grouped, ReadLimit(bytes=1 << 20)).rows == 100
    assert reading("SELECT repeat('x', 256) AS x FROM range(0, 20, 1, 2)", ReadLimit(rows=5)).rows == 10
    with pytest.raises(AssertionError, match="worker"):
        reading("SELECT IF(id = 19, repeat('x', 257), '') AS x FROM range(0, 20, 1, 2)")
    with pytest.raises(AssertionError, match="worker"):
        reading(f"SELECT id FROM range(0, {FEW_BYTES // 16 + 1}, 1, 1)")


def test_rows_that_are_not_few_are_read_again_from_the_same_shuffles(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    session = reading.sessions.query
    session.sql("SELECT id, repeat('x', 300) AS x FROM range(10)").write.parquet(str(source))
    few_rows = partitions._few_rows

    def lose_source(*args: Any) -> pa.Table | None:
        found = few_rows(*args)
        shutil.rmtree(source)
        return found

    monkeypatch.setattr(partitions, "_few_rows", lose_source)
    session.read.parquet(str(source)).createOrReplaceTempView("read_again")
    try:
        found = reading("SELECT x, COUNT(*) AS n FROM read_again GROUP BY x")
    finally:
        session.catalog.dropTempView("read_again")
    assert found.to_arrow().to_pylist() == [{"x": "x" * 300, "n": 10}]


def test_a_read_that_fails_leaves_no_file(reading: Reading) -> None:
    sql = "SELECT IF(id = 99999, raise_error('late'), repeat('x', 100)) AS x FROM range(0, 100000, 1, 1)"
    with pytest.raises(Exception, match="late"):
        reading(sql)
    assert reading.done == 1 and not reading.folder.exists()


def test_an_answer_is_cut_where_it_has_more_bytes_than_allowed(reading: Reading) -> None:
    limit = ReadLimit(bytes=4 << 20)
    # The last rows would fail: nobody gets there.
    endless = (
        "SELECT IF(id % 1000000 < 900000, repeat('x', 10000), raise_error('too far')) AS x FROM range(0, 4000000, 1, 4)"
    )
    cut = reading(endless, limit)
    assert cut.is_cut and cut.rows == 0 and list(cut) == [] and not reading.folder.exists()
    # Each partition for itself is within the limit, all of them are not.
    assert reading("SELECT repeat('x', 1000) AS x FROM range(0, 10000, 1, 4)", limit).is_cut
    inline = reading("SELECT repeat('x', 1000) AS x FROM range(0, 400, 1, 10)", ReadLimit(bytes=200_000))
    assert inline.is_cut and 0 < inline.rows < 400
    assert not reading("SELECT repeat('x', 1000) AS x FROM range(0, 100, 1, 4)", limit).is_cut


def test_a_partition_ends_when_it_has_the_rows_that_are_asked_for(reading: Reading) -> None:
    # Row 3,000,000 would fail: nobody gets there.
    sql = "SELECT IF(id < 3000000, id, raise_error('too far')) AS id FROM range(0, 4000000, 1, 1)"
    found = reading(sql, ReadLimit(rows=10))
    assert found.rows == 10 and not found.is_cut
    assert next(iter(found)).column(0).to_pylist() == list(range(10))
    assert reading(sql, ReadLimit(rows=0)).rows == 0


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT CAST(id AS STRING) AS x FROM range(0, 30000, 1, 7) ORDER BY id DESC", range(29_999, -1, -1)),
        (
            "SELECT CAST(id AS STRING) AS x FROM range(0, 30000, 1, 7) ORDER BY id DESC LIMIT 20000",
            range(29_999, 9_999, -1),
        ),
    ],
)
def test_rows_keep_their_order(reading: Reading, sql: str, expected: range) -> None:
    assert reading(sql).to_arrow().column("x").to_pylist() == [str(number) for number in expected]


def test_columns_may_share_a_name(reading: Reading) -> None:
    found = reading("SELECT 'a' AS `x.y`, id AS `x.y`, NULL AS nothing FROM range(2)")
    assert [column.to_pylist() for column in found.to_arrow()] == [["a", "a"], [0, 1], [None, None]]
    assert found.schema.names == ["x.y", "x.y", "nothing"]


def test_all_rows_of_a_large_table_wait_in_files(reading: Reading, tmp_path: Path) -> None:
    session = reading.sessions.query
    rows = FEW_BYTES // 8 + 1_000
    # Numbers that cannot be packed: Spark expects as many bytes as the files have.
    session.sql(f"SELECT xxhash64(id) AS x FROM range(0, {rows}, 1, 2)").write.parquet(str(tmp_path / "large"))
    session.read.parquet(str(tmp_path / "large")).createOrReplaceTempView("large")
    try:
        found = reading("SELECT x FROM large", ReadLimit())
    finally:
        session.catalog.dropTempView("large")
    assert found.rows == rows and len(reading.files) >= 2
    assert max(batch.nbytes for batch in found) < 2 << 20


def test_all_rows_of_little_or_of_a_small_plan_are_collected_as_pyspark_does(reading: Reading) -> None:
    assert reading("SELECT CAST(id AS STRING) AS x FROM range(100000)", ReadLimit()).to_arrow().num_rows == 100_000
    assert reading("SELECT SUM(id) AS x FROM range(100000)").to_arrow().to_pylist() == [{"x": 4_999_950_000}]
    assert reading.done == 2 and not reading.folder.exists()
    assert reading("SELECT SUM(id) AS x FROM range(10)", ReadLimit(bytes=1)).is_cut
