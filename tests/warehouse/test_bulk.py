"""Changes in files: frames, lookups and folds that never collect them; how dead rows are named."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse, EnvironmentProblem
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse import bulk
from headgate.warehouse.base import FileLimits
from headgate.warehouse.borders import part_text
from headgate.warehouse.changes import ChangeSet, TooManyRows
from headgate.warehouse.folding import Prepared
from headgate.warehouse.problems import translate
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned import VersionedTable
from tests.warehouse.model import BY_KEY, BY_NUMBER, SCHEMA, Key, Model, Row, canonical, change_set

LIMITS = FileLimits(rows_per_file=20, rows_per_group=8, local_rows=10, driver_rows=100)


def stored_changes(table: VersionedTable, spark: SparkSession, rows: list[Row], after: int, upto: int) -> ChangeSet:
    folder = table._state.staging.new_folder().address
    changes = change_set(table.spec, rows, after, upto)
    changes.frame(spark).repartition(2).write.parquet(f"file://{folder}")
    return ChangeSet.of_files(table.spec, folder, JobId(after), JobId(upto))


def values(table: VersionedTable, spark: SparkSession, job: int) -> list[str]:
    return canonical(table.frame(spark, JobId(job)).toArrow().cast(table.spec.arrow_schema).to_pylist())


@pytest.mark.parametrize("spec", [BY_KEY, BY_NUMBER], ids=["by key", "by other columns"])
def test_changes_in_files_behave_as_changes_in_memory(tmp_path: Path, spark: SparkSession, spec: TableSpec) -> None:
    model = Model(spec)
    table = VersionedTable.open(str(tmp_path / "t"), spec, limits=LIMITS)
    first = model.run({(number, "x"): number for number in range(200)} | {(None, None): 7})
    table.apply(stored_changes(table, spark, first, 0, 1), JobId(1))
    assert values(table, spark, 1) == canonical(model.snapshots[1].values())
    assert not len(table.materialize(spark, JobId(1)).removes)
    files = table.store.index.paths
    assert len(files) >= 10 and table.rows == 201
    footers = [pq.read_metadata(tmp_path / "t" / file) for file in files]
    assert max(footer.row_group(group).num_rows for footer in footers for group in range(footer.num_row_groups)) == 8

    second = model.run({(number, "x"): None for number in range(0, 40, 3)} | {(None, None): 8, (500, "y"): 1})
    third = model.run({(0, "x"): 5, (1, "x"): 6, (500, "y"): None})
    table.apply(stored_changes(table, spark, second + third, 1, 3), JobId(3))
    fourth = model.run({(2, "x"): 9, (1, "x"): None})
    table.apply(change_set(spec, fourth, 3, 4), JobId(4))
    asked = [None, 0, 1, 2, 3, 500] if spec is BY_KEY else [None, 0]
    keys = pa.table({spec.lead: pa.array(asked, spec.arrow_schema.field(spec.lead).type)})
    wanted = set(keys.column(0).to_pylist())
    for job in (1, 2, 3, 4):
        rows = list(model.snapshots[job].values())
        assert values(table, spark, job) == canonical(rows)
        found = table.lookup((spec.lead,), keys, JobId(job), tuple(SCHEMA.names))
        assert canonical(found.to_pylist()) == canonical(found for found in rows if found[spec.lead] in wanted)
    prepared = table.materialize(spark, JobId(4))
    assert len(prepared.removes)
    if spec is BY_KEY:
        assert len(prepared.removes) < 6
    table.release(JobId(4))
    assert values(table, spark, 4) == canonical(model.snapshots[4].values())
    assert not list((tmp_path / "t" / "_overlay").rglob("*.parquet"))


@pytest.mark.parametrize("key", [("a", "b"), ("a",)], ids=["two columns", "one whole number"])
def test_what_counts_of_changes_in_files_is_worked_out_once(
    tmp_path: Path, spark: SparkSession, key: tuple[str, ...]
) -> None:
    spec = TableSpec("t", SCHEMA, key=key)
    model = Model(spec)
    table = VersionedTable.open(str(tmp_path / "t"), spec, limits=LIMITS)
    staged = tmp_path / "t" / "_overlay"

    def wide(*edits: dict[Key, int | None]) -> int:
        after, rows = model.job, [row for job in edits for row in model.run(job)]
        table.apply(stored_changes(table, spark, rows, after, model.job), JobId(model.job))
        return model.job

    def narrow(edits: dict[Key, int | None]) -> int:
        rows = model.run(edits)
        table.apply(change_set(spec, rows, model.job - 1, model.job), JobId(model.job))
        return model.job

    def check(*jobs: int) -> None:
        for job in jobs:
            assert values(table, spark, job) == canonical(model.snapshots[job].values())

    wide({(number, "x"): number for number in range(60)} | {(None, "x"): 1})
    table.materialize(spark, JobId(1))
    one_job = wide({(number, "x"): None if number % 3 else number + 1 for number in range(0, 60, 2)} | {(None, "x"): 2})
    assert "Window" not in plan(table, spark, one_job)
    # Deleted and inserted again, replaced twice, new and deleted, with a job in memory on each side.
    before = narrow({(0, "x"): 3, (2, "x"): 4, (70, "x"): 5, (None, "x"): None})
    many = wide(
        {(0, "x"): None, (4, "x"): 6, (70, "x"): 7}, {(0, "x"): 8, (71, "x"): 9}, {(4, "x"): None, (71, "x"): None}
    )
    check(one_job, before, many - 2, many - 1, many)
    written = set(staged.rglob("*.parquet"))
    last = narrow({(0, "x"): 10, (4, "x"): 11, (None, "x"): 3})
    assert "Window" not in plan(table, spark, last)
    check(before, many, last)
    assert set(staged.rglob("*.parquet")) == written
    table.release(JobId(last))
    check(last)
    table.materialize(spark, JobId(last))
    check(last)
    assert not list(staged.rglob("*.parquet"))


def test_a_large_fold_cuts_rows_by_what_statistics_tell(
    tmp_path: Path, spark_sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = spark_sessions.bulk
    parts: list[int] = []
    monkeypatch.setattr(
        bulk, "part_text", lambda column, cuts: (parts.append(len(cuts) + 1), part_text(column, cuts))[1]
    )
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=LIMITS)

    def fold(edits: dict[Key, int | None]) -> Prepared:
        changes = stored_changes(table, spark, model.run(edits), model.job - 1, model.job)
        table.apply(changes, JobId(model.job))
        prepared = table.materialize(spark, JobId(model.job))
        table.release(JobId(model.job))
        assert values(table, spark, model.job) == canonical(model.snapshots[model.job].values())
        ranges = sorted(zip(table.store.index.lows, table.store.index.highs, strict=True))
        assert all(high < low for (_, high), (low, _) in pairwise(ranges))
        return prepared

    fold({(number, "x"): abs(number) for number in range(-1_000, 1_000)} | {(None, "x"): 1})
    assert len(table.store.index) >= 100
    # So many in their range that all of its files are rewritten, the one with NULL too; those outside are not.
    many = {(number, "x"): None if number % 3 else number + 1 for number in range(1_000)}
    removed = fold({**many, (None, "x"): 2, (5_000, "x"): 1}).removes
    assert 50 <= len(removed) < 60
    few = fold({(-1_000, "x"): 3, (-1, "x"): None, (3, "x"): 4})
    assert 1 <= len(few.removes) <= 3
    assert parts[:2] == [7, 8]


@pytest.mark.parametrize("count", [5, 150], ids=["on the driver", "by executors"])
def test_changes_that_remove_rows_which_are_not_there_are_not_folded(
    tmp_path: Path, spark: SparkSession, count: int
) -> None:
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=LIMITS)
    first = model.run({(number, "x"): number for number in range(200)})
    table.apply(change_set(BY_KEY, first[3:], 0, 1), JobId(1))
    table.materialize(spark, JobId(1))
    changes = stored_changes(table, spark, model.run({(number, "x"): None for number in range(count)}), 1, 2)
    table.apply(changes, JobId(2))
    with pytest.raises(CorruptWarehouse, match=r"3 rows that changes remove from table .* are not in it"):
        table.materialize(spark, JobId(2))


def test_a_large_fold_up_to_a_job_in_the_middle_of_files_takes_its_rows_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=FileLimits(driver_rows=0))
    rows = [*model.run({(n, "x"): n for n in range(30)}), *model.run({(n, "x"): n for n in range(50)})]
    table.apply(stored_changes(table, spark, rows, 0, 2), JobId(2))
    for job in (1, 2):
        table.materialize(spark, JobId(job))
        assert values(table, spark, job) == canonical(model.snapshots[job].values())


def test_large_folds_merge_small_files_too(tmp_path: Path, spark: SparkSession) -> None:
    model = Model(BY_KEY)
    limits = FileLimits(rows_per_file=1_000, driver_rows=100)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=limits)
    for job in range(1, 7):
        rows = model.run({(number, "x"): job for number in range(200 * job, 200 * job + 110)})
        table.apply(stored_changes(table, spark, rows, job - 1, job), JobId(job))
        table.materialize(spark, JobId(job))
    assert len(table.store.index) < 4
    assert values(table, spark, 6) == canonical(model.snapshots[6].values())


def test_a_fold_in_the_background_has_no_more_tasks_than_its_session_allows(
    tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    spark = spark_sessions.background
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=LIMITS)
    table.apply(stored_changes(table, spark, model.run({(n, "x"): n for n in range(2_000)}), 0, 1), JobId(1))
    spark.sparkContext.setJobGroup("fold", "a fold in the background")
    table.materialize(spark, JobId(1))
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup("fold") for stage in tracker.getJobInfo(job).stageIds]
    tasks = [info.numTasks for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
    assert tasks and max(tasks) == spark.sparkContext.defaultParallelism - 1 == 1
    assert values(table, spark, 1) == canonical(model.snapshots[1].values())


def test_the_driver_never_holds_more_rows_than_it_may(tmp_path: Path, spark: SparkSession) -> None:
    model = Model(BY_KEY)
    limits = FileLimits(rows_per_file=20, driver_rows=30, lookup_bytes=0)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=limits)
    columns = tuple(SCHEMA.names)

    def keys(last: int) -> pa.Table:
        return pa.table({"a": list(range(last))})

    def check(job: int) -> None:
        for session in (None, spark):
            assert table.lookup(("a",), keys(30), JobId(job), columns, session).num_rows == 30
            with pytest.raises(TooManyRows):
                table.lookup(("a",), keys(31), JobId(job), columns, session)
        with pytest.raises(TooManyRows):
            table.collected(JobId(job))
        assert values(table, spark, job) == canonical(model.snapshots[job].values())

    for job in (1, 2):
        rows = model.run({(number, "x"): number for number in range(20 * job - 20, 20 * job)})
        table.apply(change_set(BY_KEY, rows, job - 1, job), JobId(job))
        assert table.has_files == (job == 2), "more than 30 rows are spilled"
    check(2)
    assert not len(table.materialize(spark, JobId(2)).removes)
    table.release(JobId(2))
    check(2)
    table.apply(change_set(BY_KEY, model.run({(5, "x"): None, (7, "x"): 8}), 2, 3), JobId(3))
    assert table.changes(JobId(2), JobId(3)).read(0).num_rows == 3, "rows in memory are no further ones"
    table.apply(stored_changes(table, spark, model.run({(6, "x"): 9}), 3, 4), JobId(4))
    assert len(table.materialize(None, JobId(4)).removes) == 1, "few changes in files are folded without Spark"
    assert values(table, spark, 4) == canonical(model.snapshots[4].values())


def test_a_lookup_in_many_bytes_goes_through_spark(tmp_path: Path, spark: SparkSession) -> None:
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=FileLimits(rows_per_file=20, lookup_bytes=0))
    table.apply(change_set(BY_KEY, model.run({(n, "x"): n for n in range(50)} | {(None, None): 1}), 0, 1), JobId(1))
    table.materialize(None, JobId(1))
    table.apply(change_set(BY_KEY, model.run({(3, "x"): None, (4, "x"): 9}), 1, 2), JobId(2))
    keys = pa.table({"a": [3, 4, 5, None]})
    found = table.lookup(("a",), keys, JobId(2), tuple(SCHEMA.names), spark)
    expected = [row for row in model.snapshots[2].values() if row["a"] in (4, 5, None)]
    assert canonical(found.to_pylist()) == canonical(expected)


def test_dead_rows_are_bits_or_named_by_one_long(tmp_path: Path, spark: SparkSession) -> None:
    one = TableSpec("one", SCHEMA, key=("a",))
    for spec, far, expected in ((BY_KEY, 4, "xxhash64"), (one, 4, None), (one, 1 << 40, "a#")):
        model = Model(spec)
        table = VersionedTable.open(str(tmp_path / f"{spec.name}{far}"), spec)
        table.apply(change_set(spec, model.run({(n, "x"): 1 for n in (*range(9), far)}), 0, 1), JobId(1))
        table.materialize(None, JobId(1))
        table.apply(change_set(spec, model.run({(20, "x"): 1}), 1, 2), JobId(2))
        assert "Join" not in plan(table, spark, 2) and "getbit" not in plan(table, spark, 2)
        table.apply(change_set(spec, model.run({(3, "x"): 4, (far, "x"): 5}), 2, 3), JobId(3))
        shown = plan(table, spark, 3)
        joined = re.search(r"BroadcastHashJoin \[([^\[]*)\], \[__hash#\d+L\], LeftAnti", shown)
        if expected is None:
            assert "getbit" in shown and "Join" not in shown
        else:
            assert joined and joined.group(1).startswith(expected)
        assert values(table, spark, 3) == canonical(model.snapshots[3].values())


@pytest.mark.parametrize("local_rows", [2, 5_000], ids=["new rows in the same scan", "new rows in the plan"])
def test_replaced_rows_are_read_once_whatever_their_keys(tmp_path: Path, spark: SparkSession, local_rows: int) -> None:
    keys = [None, -(1 << 33), -70, -64, -1, 0, 1, 63, 64, 65, 127, 128, 1000, (1 << 62)]
    for place, (first, last) in enumerate([(0, 14), (1, 13), (2, 13), (5, 6), (0, 1), (8, 12)]):
        spec = TableSpec(f"t{place}", SCHEMA, key=("a",))
        model = Model(spec)
        table = VersionedTable.open(str(tmp_path / spec.name), spec, limits=FileLimits(local_rows=local_rows))
        table.apply(change_set(spec, model.run({(key, "x"): 1 for key in keys}), 0, 1), JobId(1))
        table.materialize(None, JobId(1))
        chosen = keys[first:last]
        changes = {(key, "x"): None if number % 3 == 2 else number for number, key in enumerate(chosen)}
        table.apply(change_set(spec, model.run(changes | {(5000 + first, "x"): 7}), 1, 2), JobId(2))
        assert values(table, spark, 2) == canonical(model.snapshots[2].values())


def plan(table: VersionedTable, spark: SparkSession, job: int) -> str:
    short = spark.conf.get("spark.sql.maxPlanStringLength")
    spark.conf.set("spark.sql.maxPlanStringLength", "1000000")
    try:
        return str(table.frame(spark, JobId(job))._jdf.queryExecution().executedPlan().toString())
    finally:
        spark.conf.set("spark.sql.maxPlanStringLength", short)


def test_a_frame_takes_as_many_calls_into_java_for_many_files_as_for_few(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = spark._jvm._gateway_client  # type: ignore[union-attr]
    calls: list[str] = []
    send = client.send_command
    counts = {}
    for rows in (10, 200):
        model = Model(BY_KEY)
        table = VersionedTable.open(str(tmp_path / f"t {rows}"), BY_KEY, limits=FileLimits(rows_per_file=5))
        table.apply(change_set(BY_KEY, model.run({(n, "x"): n for n in range(rows)}), 0, 1), JobId(1))
        table.materialize(None, JobId(1))
        monkeypatch.setattr(
            client, "send_command", lambda *given, **named: (calls.append(given[0]), send(*given, **named))[1]
        )
        calls.clear()
        table.frame(spark, JobId(1))
        # Java objects that Python let go of are told of at any time.
        counts[len(table.store.index)] = sum(not call.startswith("m\nd\n") for call in calls)
        monkeypatch.undo()
        assert values(table, spark, 1) == canonical(model.snapshots[1].values())
    assert sorted(counts) == [2, 40] and len(set(counts.values())) == 1


def test_a_damaged_file_is_named_when_spark_reads_it(tmp_path: Path, spark: SparkSession) -> None:
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY)
    table.apply(change_set(BY_KEY, model.run({(n, "x"): n for n in range(50)}), 0, 1), JobId(1))
    table.materialize(None, JobId(1))
    frame = table.frame(spark, JobId(1))
    (file,) = table.store.index.paths
    path = tmp_path / "t" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        frame.collect()
    problem = translate(caught.value, table.store.folder)
    assert isinstance(problem, CorruptWarehouse) and file in str(problem)


def test_timestamps_without_ranges_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=FileLimits(driver_rows=0))
    table.apply(stored_changes(table, spark, model.run({(1, "x"): 1}), 0, 1), JobId(1))
    with pytest.raises(EnvironmentProblem, match="TIMESTAMP_MICROS"):
        table.materialize(session, JobId(1))
