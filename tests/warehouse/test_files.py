"""Picking files, merging files, full disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse, StorageFull
from headgate.warehouse.base import FileLimits
from headgate.warehouse.changes import TooManyRows
from headgate.warehouse.compaction import DEPTH, plan
from headgate.warehouse.files import FileReader, FileWriter
from headgate.warehouse.index import FileIndex, Wanted
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile, Range
from headgate.warehouse.storage import Folder
from headgate.warehouse.versioned import VersionedTable
from tests.disks import mount_disk, unmount_disk
from tests.warehouse.model import change_set

LONG = TableSpec("longs", StructType([StructField("k", LongType()), StructField("v", LongType())]), key=("k",))


def file(path: str, low: Any, high: Any, nulls: int | None = 0, rows: int = 10) -> DataFile:
    return DataFile(path, rows, 100, 0, {"k": Range(low, high, nulls)})


def index_of(files: list[DataFile], kind: pa.DataType | None = None) -> FileIndex:
    return FileIndex.of(files, "k", kind or pa.int64())


ranges = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5), st.sampled_from([0, 1, None])), max_size=12)


@given(ranges, st.lists(st.one_of(st.none(), st.integers(-12, 12)), max_size=5), st.sampled_from([int, str, Decimal]))
def test_picked_files_are_those_whose_range_holds_a_value(
    found: list[tuple[int, int, int | None]], wanted: list[int | None], kind: type
) -> None:
    def value(number: int | None) -> Any:
        if number is None:
            return None
        return f"{number + 50:03d}" if kind is str else kind(number)

    files = [file(str(n), value(low), value(low + width), nulls) for n, (low, width, nulls) in enumerate(found)]
    files += [file("unknown", None, None, None), file("only nulls", None, None, 10)]
    types = {int: pa.int64(), str: pa.string(), Decimal: pa.decimal128(10, 2)}
    picked = index_of(files, types[kind]).pick(Wanted.of(pa.array([value(n) for n in wanted], types[kind])))
    expected = {
        str(number)
        for number, (low, width, nulls) in enumerate(found)
        if any((n is None and nulls != 0) or (n is not None and low <= n <= low + width) for n in wanted)
    }
    expected |= {"unknown"} if wanted else set()
    expected |= {"only nulls"} if None in wanted else set()
    assert set(picked.paths) == expected


def test_nan_and_types_without_ranges_pick_every_file() -> None:
    files = [file("a", 1.0, 2.0), file("b", 5.0, 6.0)]
    index = index_of(files, pa.float64())
    assert index.pick(Wanted.of(pa.array([5.5]))).paths == ["b"]
    assert index.pick(Wanted.of(pa.array([float("nan")]))).paths == ["a", "b"]
    assert index.pick(Wanted.of(pa.array([b"x"]))).paths == ["a", "b"]


def test_a_commit_takes_files_out_of_the_index_and_adds_some() -> None:
    index = index_of([file(str(n), 10 * n, 10 * n + 9) for n in range(5)])
    found = index.updated(index_of([file("new", 7, 12, rows=3)]), index.take(np.array([1, 3])))
    assert found.paths == ["0", "2", "4", "new"]
    assert (found.rows, found.bytes) == (33, 400) and index.paths == ["0", "1", "2", "3", "4"]
    assert found.pick(Wanted.of(pa.array([8, 45]))).paths == ["0", "4", "new"]


def test_files_of_one_value_are_never_merged_for_depth() -> None:
    assert plan(index_of([file(str(n), 5, 5, rows=1000) for n in range(50)]), 1000) == []


def test_small_files_of_a_large_table_are_merged_over_several_folds() -> None:
    files = index_of([file(str(n), 10 * n, 10 * n + 9, rows=8) for n in range(40)])
    groups = plan(files, 64, limit=1_000)
    assert [len(group) for group in groups] == [8, 8]
    assert sum(len(group) for group in plan(files, 64)) == 40


def test_no_more_rows_are_read_than_the_driver_may_hold(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path))
    folder.child("attempt").create()
    writer = FileWriter(folder, "attempt", LONG, rows_per_file=40, rows_per_group=10)
    files = writer.write(pa.table({"k": np.arange(120), "v": np.arange(120) % 40}))
    paths, reader = [each.path for each in files], FileReader(folder, LONG)
    assert len(paths) == 3
    assert reader.rows(paths, most_rows=120).num_rows == 120
    with pytest.raises(TooManyRows) as raised:
        reader.rows(paths, most_rows=25)
    assert raised.value.rows == 30, "it read on"
    # Only rows that match are held: few of very many are found.
    few = reader.rows(paths, ("k", "v"), None, 25, lambda rows: rows.filter(pc.less(rows.column("v"), 5)))
    assert sorted(few.column("k").to_pylist()) == [*range(5), *range(40, 45), *range(80, 85)]
    with pytest.raises(TooManyRows):
        reader.rows(paths, None, None, 25, lambda rows: rows.filter(pc.less(rows.column("v"), 30)))


def test_files_grow_with_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FileLimits().for_rows(10**9).rows_per_file == FileLimits().rows_per_file
    assert FileLimits().for_rows(10**10).rows_per_file == 500_000
    monkeypatch.setattr("headgate.warehouse.base.MOST_FILES", 8)
    spec = TableSpec("t", StructType([StructField("id", LongType())]), key=("id",))
    table = VersionedTable.open(str(tmp_path), spec, limits=FileLimits(rows_per_file=10))
    for job in range(1, 33):
        rows = [{"id": job * 100 + number, "__job": job, "__weight": 1} for number in range(25)]
        table.apply(change_set(spec, rows, job - 1, job), JobId(job))
        table.materialize(None, JobId(job))
    assert table.rows == 800 and len(table.store.index) <= 16


def test_jobs_behind_files_that_a_base_took_have_their_rows_while_earlier_jobs_are_kept(tmp_path: Path) -> None:
    table = VersionedTable.open(str(tmp_path), LONG)

    def insert(job: int) -> None:
        table.apply(change_set(LONG, [{"k": job, "v": 0, "__job": job, "__weight": 1}], job - 1, job), JobId(job))

    def keys(job: int) -> list[int]:
        return sorted(table.collected(JobId(job)).column("k").to_pylist())

    insert(1)
    table.materialize(None, JobId(1))
    attempt = table.store.begin()
    table.add_files(attempt, FileWriter(table.store.folder, attempt, LONG, 10).write(pa.table({"k": [10], "v": [0]})))
    for job in (2, 3):
        insert(job)
    table.materialize(None, JobId(3))
    assert (keys(0), keys(2), keys(3)) == ([], [1, 2, 10], [1, 2, 3, 10])
    table.release(JobId(3))
    assert keys(3) == [1, 2, 3, 10] and {base.version for base in table._state.bases} == {table.version}


def test_a_row_group_of_nulls_leaves_the_range_of_its_file_known(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    folder.child("a").create()
    keys = pa.array([3, 1, None, None, 2, None], pa.int64())
    (written,) = FileWriter(folder, "a", LONG, 10, rows_per_group=2).write(pa.table({"k": keys, "v": keys}))
    assert written.range("k") == Range(1, 3, 3)


def test_a_lookup_reads_only_the_row_groups_that_can_hold_its_keys(tmp_path: Path) -> None:
    table = VersionedTable.open(str(tmp_path / "t"), LONG, limits=FileLimits(rows_per_file=64, rows_per_group=8))
    rows = [{"k": n, "v": n, "__job": 1, "__weight": 1} for n in range(64)]
    table.apply(change_set(LONG, rows, 0, 1), JobId(1))
    table.materialize(None, JobId(1))
    (stored,) = table.store.index.paths
    spoil_row_group(tmp_path / "t" / stored, 3)
    found = table.lookup(("k",), pa.table({"k": [5, 60]}), JobId(1), ("k", "v"))
    assert found.column("v").to_pylist() == [5, 60]
    with pytest.raises(CorruptWarehouse):
        table.lookup(("k",), pa.table({"k": [25]}), JobId(1), ("k", "v"))


def spoil_row_group(path: Path, number: int) -> None:
    """Overwrites a row group's last column, so that its checksum is wrong."""
    column = pq.read_metadata(path).row_group(number).column(1)
    with path.open("r+b") as content:
        first = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
        content.seek(first + column.total_compressed_size - 8)
        content.write(b"spoiled!")


def test_scattered_inserts_and_small_folds_keep_the_files_of_a_key_few(tmp_path: Path) -> None:
    table = VersionedTable.open(str(tmp_path / "t"), LONG, limits=FileLimits(rows_per_file=100))
    random = np.random.default_rng(3)
    keys = random.permutation(20_000)
    for job in range(1, 101):
        part = keys[(job - 1) * 150 : job * 150]
        rows = [{"k": int(k), "v": job, "__job": job, "__weight": 1} for k in part]
        table.apply(change_set(LONG, rows, job - 1, job), JobId(job))
        table.materialize(None, JobId(job))
        table.release(JobId(job))
    index = table.store.index
    assert index.rows == 15_000
    assert len(index) < 2 * 150
    opened = [len(index.pick(Wanted.of(pa.array([key])))) for key in range(0, 20_000, 97)]
    assert max(opened) <= 2 * DEPTH and sum(opened) / len(opened) <= DEPTH


def test_many_small_folds_at_the_end_do_not_leave_many_files(tmp_path: Path) -> None:
    table = VersionedTable.open(str(tmp_path / "t"), LONG, limits=FileLimits(rows_per_file=100))
    for job in range(1, 61):
        rows = [{"k": job * 10 + n, "v": job, "__job": job, "__weight": 1} for n in range(10)]
        table.apply(change_set(LONG, rows, job - 1, job), JobId(job))
        table.materialize(None, JobId(job))
    assert table.rows == 600 and len(table.store.index) <= 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB; skipped where mounting one is not allowed."""
    place = mount_disk(tmp_path / "disk", "size=1m")
    yield place
    unmount_disk(place)


def test_a_full_disk_says_so_and_changes_nothing(small_disk: Path) -> None:
    table = VersionedTable.open(str(small_disk / "t"), LONG)
    table.apply(change_set(LONG, [{"k": 1, "v": 1, "__job": 1, "__weight": 1}], 0, 1), JobId(1))
    table.materialize(None, JobId(1))
    random = np.random.default_rng(1).integers(0, 2**62, 200_000)
    changes = pa.table({"k": random, "v": random, "__job": [2] * 200_000, "__weight": [1] * 200_000})
    table.apply(change_set(LONG, [], 1, 2).of_table(LONG, changes, JobId(1), JobId(2)), JobId(2))
    with pytest.raises(StorageFull, match=r"MiB needed.*free"):
        table.materialize(None, JobId(2))
    assert (table.version, table.base_through, table.through) == (1, 1, 2)
    assert len(list((small_disk / "t").rglob("*.parquet"))) == 1
    assert table.lookup(("k",), pa.table({"k": [1]}), JobId(2), ("v",)).to_pylist() == [{"v": 1}]


def test_a_full_disk_is_recognised_in_other_libraries_words(tmp_path: Path) -> None:
    for error in (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError("Generic LocalFileSystem error: Unable to write: No space left on device (os error 28)"),
        pa.ArrowException("IOError: No space left on device"),
    ):
        with pytest.raises(StorageFull, match="3 bytes needed"), storage_problems(Folder.at(tmp_path), 3):
            raise error
