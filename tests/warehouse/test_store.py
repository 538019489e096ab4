"""One Delta table: ranges, conflicts, restore, vacuum, other readers, damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse
from headgate.warehouse.base import FileLimits
from headgate.warehouse.bulk import written_files
from headgate.warehouse.files import FileWriter
from headgate.warehouse.index import FileIndex
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.storage import Folder, StoredFile
from headgate.warehouse.store import DeltaStore, ForeignCommit
from headgate.warehouse.versioned import VersionedTable
from tests.warehouse.model import BY_KEY, SCHEMA, Model, canonical, change_set, row

PLAIN = TableSpec("plain", StructType([StructField("id", LongType()), StructField("name", StringType())]), key=("id",))


def write(store: DeltaStore, ids: list[int | None]) -> list[DataFile]:
    attempt = store.begin()
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{value}" for value in ids]})
    files = FileWriter(store.folder, attempt, store.spec, 1000).write(table)
    store.end(attempt, discard=False)
    return files


def ids_of(path: Path, version: int | None = None) -> list[int]:
    return sorted(DeltaTable(path, version=version).to_pyarrow_table().column("id").to_pylist())


def test_ranges_survive_the_log_for_every_type(tmp_path: Path) -> None:
    store = DeltaStore.open(Folder.at(tmp_path / "t"), BY_KEY)
    attempt = store.begin()
    rows = [row(number, f"b{number}" * 30, number) for number in range(1, 40)]
    files = FileWriter(store.folder, attempt, BY_KEY, 10).write(pa.Table.from_pylist(rows, schema=BY_KEY.arrow_schema))
    store.commit(files)
    reopened = DeltaStore.open(Folder.at(tmp_path / "t"), BY_KEY)
    assert reopened.version == 1
    assert len(reopened.index) == len(files) == 4
    for name in ("a", "b", "number", "day", "moment", "amount", "ratio"):
        written = FileIndex.of(files, name, BY_KEY.arrow_schema.field(name).type).table.sort_by("path")
        assert reopened.index_by(name).table.sort_by("path").equals(written), name
    assert store.index.table.sort_by("path").equals(reopened.index.table.sort_by("path"))


def test_spark_written_files_have_the_same_ranges(tmp_path: Path, spark: SparkSession) -> None:
    rows = pa.Table.from_pylist([row(n, f"b{n}", n) for n in range(1, 40) if n % 7], schema=BY_KEY.arrow_schema)
    folder = Folder.at(tmp_path)
    folder.child("driver").create()
    (driver,) = FileWriter(folder, "driver", BY_KEY, 100).write(rows)
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    frame.write.parquet(folder.child("spark").spark_address)
    (executor,) = written_files(folder, "spark", BY_KEY)
    for name in ("a", "b", "number", "text", "day", "moment", "amount", "ratio"):
        assert executor.range(name) == driver.range(name), name


def test_long_strings_are_cut_and_their_upper_bound_rounded_up(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    folder.child("a").create()
    texts = ["é" * 50, "\U0010ffff" * 40]
    spec = TableSpec("t", StructType([StructField("s", StringType())]), key=("s",))
    for text in texts:
        (file,) = FileWriter(folder, "a", spec, 10).write(pa.table({"s": [text]}))
        found = file.range("s")
        assert isinstance(found.low, str) and len(found.low) == 32 and found.low <= text
        assert found.high is None or (isinstance(found.high, str) and len(found.high) <= 33 and text <= found.high)
    assert found.high is None


def test_a_foreign_commit_is_noticed_and_repaired(tmp_path: Path) -> None:
    owner = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    owner.commit(write(owner, [1, 2]))
    former = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    known = owner.version
    former.commit(write(former, [99]))
    files = write(owner, [3])
    with pytest.raises(ForeignCommit) as caught:
        owner.commit(files)
    assert caught.value.known == known
    owner.repair(known)
    owner.commit(files)
    assert ids_of(tmp_path / "t") == [1, 2, 3]


def test_a_commit_on_a_version_that_was_cleaned_away_is_refused(tmp_path: Path) -> None:
    former = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    owner = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    for number in range(120):
        owner.commit(write(owner, [number]))
    owner.vacuum()
    assert not (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").exists()
    with pytest.raises(ForeignCommit):
        former.commit(write(former, [999]))
    assert ids_of(tmp_path / "t") == list(range(120))
    assert DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN).version == 120


def test_the_number_of_log_files_stays_flat(tmp_path: Path) -> None:
    store = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    counts = []
    for number in range(400):
        store.commit(write(store, [number]), store.index)
        if number % 10 == 9:
            store.vacuum([store.version - 1])
            counts.append(len(list((tmp_path / "t").rglob("*"))))
    assert max(counts[20:]) <= max(counts[5:20])
    assert ids_of(tmp_path / "t") == [399]
    assert ids_of(tmp_path / "t", store.version - 1) == [398]


def test_vacuum_keeps_what_a_kept_version_names_and_removes_the_rest(tmp_path: Path) -> None:
    store = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    first = store.commit(write(store, [1]))
    store.commit(write(store, [2]), store.index)
    store.commit(write(store, [3]), store.index)
    orphan = tmp_path / "t" / "0123" / "part-00000.parquet"
    orphan.parent.mkdir()
    pq.write_table(pa.table({"id": [5], "name": ["x"]}), orphan)
    running = store.begin()
    (tmp_path / "t" / running / "part-00000.parquet").write_bytes(b"half written")
    assert store.vacuum([first]) == 2
    assert ids_of(tmp_path / "t", first) == [1] and ids_of(tmp_path / "t") == [3]
    assert not orphan.parent.exists()
    assert (tmp_path / "t" / running / "part-00000.parquet").exists()
    assert store.restore(first) == 4
    assert ids_of(tmp_path / "t") == [1]


class Meanwhile(Folder):
    """A folder in which something happens, in another thread, after it was listed and before the listing is used."""

    events: ClassVar[list[Callable[[], object]]] = []

    def files(self, below: str = "", *, recursive: bool = True) -> list[StoredFile]:
        found = super().files(below, recursive=recursive)
        while self.events and not below:
            thread = Thread(target=self.events.pop(), daemon=True)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        return found


def test_readers_and_folds_go_on_while_vacuum_lists_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=FileLimits(rows_per_file=7))
    for job in (1, 2, 3):
        rows = model.run({(number, "x"): number + job for number in range(30)})
        table.apply(change_set(BY_KEY, rows, job - 1, job), JobId(job))
        table.materialize(None, JobId(min(job, 2)))
    table.release(JobId(3))
    prepared = table.prepare(None, JobId(3))
    table.store.folder = Meanwhile(table.store.folder.filesystem, table.store.folder.path)
    # Under the lock that readers need, no log is read.
    monkeypatch.setattr(table.store, "at", None)
    Meanwhile.events[:] = [lambda: table.commit(prepared), lambda: table.pin(JobId(3)).release()]
    assert table.vacuum() > 0 and not Meanwhile.events
    assert table.base_through == 3
    assert canonical(table.collected(JobId(3)).to_pylist()) == canonical(model.snapshots[3].values())
    table.vacuum()
    assert {str(file.relative_to(tmp_path / "t")) for file in tmp_path.rglob("part-*")} == set(table.store.index.paths)


def test_other_readers_see_a_plain_delta_table(tmp_path: Path) -> None:
    model = Model(BY_KEY)
    table = VersionedTable.open(str(tmp_path / "t"), BY_KEY, limits=FileLimits(rows_per_file=7))
    for step in range(3):
        rows = model.run({(number, str(step)): number + step for number in range(30)} | {(3, "0"): None})
        table.apply(change_set(BY_KEY, rows, step, step + 1), JobId(step + 1))
        table.materialize(None, JobId(step + 1))
    expected = canonical(model.snapshots[3].values())
    delta = DeltaTable(tmp_path / "t")
    assert canonical(delta.to_pyarrow_table().cast(BY_KEY.arrow_schema).to_pylist()) == expected
    total = duckdb.from_arrow(delta.to_pyarrow_dataset()).aggregate("count(*), sum(amount)").fetchall()
    amounts = [found["amount"] or Decimal(0) for found in model.snapshots[3].values()]
    assert total == [(len(expected), sum(amounts))]
    files = delta.file_uris()
    assert duckdb.read_parquet(files).aggregate("count(*)").fetchall() == [(len(expected),)]
    wanted = delta.to_pyarrow_table(filters=[("a", "=", 5)])
    assert wanted.num_rows == sum(found["a"] == 5 for found in model.snapshots[3].values())


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_damaged_data_file_is_named(tmp_path: Path, damage: str) -> None:
    table = VersionedTable.open(str(tmp_path / "t"), PLAIN)
    rows = [{"id": number, "name": "x" * 50, "__job": 1, "__weight": 1} for number in range(500)]
    table.apply(change_set(PLAIN, rows, 0, 1), JobId(1))
    table.materialize(None, JobId(1))
    (file,) = table.store.index.paths
    path = tmp_path / "t" / file
    size = path.stat().st_size
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[: size // 2])
    else:
        content = bytearray(path.read_bytes())
        content[size // 3] ^= 0x55
        path.write_bytes(content)
    fresh = VersionedTable.open(str(tmp_path / "t"), PLAIN, version=table.version, through=JobId(1))
    with pytest.raises(CorruptWarehouse, match=path.name):
        fresh.lookup(("id",), pa.table({"id": list(range(500))}), JobId(1), ("id", "name"))


@pytest.mark.parametrize("damage", ["missing", "truncated", "not json"])
def test_a_damaged_log_is_named(tmp_path: Path, damage: str) -> None:
    store = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    for number in range(4):
        store.commit(write(store, [number]))
    entry = tmp_path / "t" / "_delta_log" / f"{2:020d}.json"
    if damage == "missing":
        entry.unlink()
    elif damage == "truncated":
        entry.write_bytes(entry.read_bytes()[:-40])
    else:
        entry.write_text("{}}")
    with pytest.raises(CorruptWarehouse, match=entry.name):
        DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)


def test_the_note_of_a_commit_is_in_the_log(tmp_path: Path) -> None:
    store = DeltaStore.open(Folder.at(tmp_path / "t"), PLAIN)
    store.commit(write(store, [1]), note={"through": 7})
    assert json.loads(DeltaTable(tmp_path / "t").history(1)[0]["headgate"]) == {"through": 7}
