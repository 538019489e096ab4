"""What is being read stays, however often the table is materialized, released and vacuumed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned import VersionedTable

SPEC = TableSpec("things", StructType([StructField("id", LongType()), StructField("n", LongType())]), key=("id",))


def run_job(table: VersionedTable) -> None:
    """The row's number becomes the job's."""
    job = table.through + 1
    rows = [{"id": 1, "n": job - 1, JOB: job, WEIGHT: -1}] if job > 1 else []
    rows += [{"id": 1, "n": job, JOB: job, WEIGHT: 1}]
    changes = ChangeSet.of_table(SPEC, pa.Table.from_pylist(rows, SPEC.change_arrow_schema), table.through, JobId(job))
    table.apply(changes, JobId(job))


def go_on(table: VersionedTable) -> None:
    """Two more jobs, each materialized, and nothing before is retained."""
    for _ in range(2):
        run_job(table)
        table.materialize(None, table.through)
    table.release(table.through)
    table.vacuum()


@pytest.fixture
def table(tmp_path: Path) -> VersionedTable:
    opened = VersionedTable.open(str(tmp_path), SPEC)
    run_job(opened)
    opened.materialize(None, JobId(1))
    run_job(opened)
    return opened


def test_a_pinned_snapshot_stays_when_its_job_is_materialized_before_it_is_read(
    spark: SparkSession, table: VersionedTable
) -> None:
    with table.pin(JobId(2)) as pin:
        table.materialize(None, JobId(2))
        frame = pin.frame(spark)
        go_on(table)
        assert [tuple(row) for row in frame.collect()] == [(1, 2)]
        with table.pin(JobId(2)) as other:
            assert [tuple(row) for row in other.frame(spark).collect()] == [(1, 2)]
    assert {base.version for base in table._state.bases} == {table.version}


@pytest.mark.parametrize("how", ["collected", "lookup"])
def test_rows_that_are_being_read_stay(table: VersionedTable, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    read = table._readings.rows.reader.rows

    def meanwhile(*arguments: Any, **more: Any) -> pa.Table:
        monkeypatch.undo()
        table.materialize(None, table.through)
        go_on(table)
        return read(*arguments, **more)

    monkeypatch.setattr(table._readings.rows.reader, "rows", meanwhile)
    reads = {
        "collected": lambda: table.collected(JobId(1)),
        "lookup": lambda: table.lookup(("id",), pa.table({"id": [1]}), JobId(1), ("id", "n")),
    }
    found = reads[how]()
    assert found.to_pylist() == [{"id": 1, "n": 1}]
    assert table.through == 4, "nothing happened while it was read"
