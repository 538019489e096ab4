"""Backup and restore: one ledger version, whole or refused, and what to do about the sources afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headgate.capture.durable import replace_file
from headgate.capture.segments import list_segments
from headgate.config.project import load_project
from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse, DefiniteError, EnvironmentProblem, WarehouseBusy
from headgate.runtime.recovery import pinned
from headgate.runtime.recovery.backup import backup, restore
from headgate.runtime.recovery.manifest import BackupUnusable
from headgate.runtime.recovery.pinned import Moment, SourceEnd
from headgate.runtime.recovery.restored import advice
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.ledger import Ledger
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.versioned import VersionedTable
from tests.capture.shop import items, open_shop

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NUMBERS = TableSpec("numbers", StructType([StructField("id", LongType())]), key=("id",))
STREAM = "_headgate/streams/shop/1"


class Small:
    """A warehouse by hand: a ledger, one table, one stream log; everything but Spark."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.ledger = Ledger.open(str(storage), "me", lambda: NOON)
        self.numbers = VersionedTable.open(str(storage / "numbers"), NUMBERS)
        self.shop = open_shop(storage / STREAM, segment_bytes=2_000, transaction_bytes=20_000)
        self.job = 0

    def run(self, count: int = 20) -> None:
        """One job: a transaction, rows of the table, and a checkpoint that counts."""
        with self.shop.transaction() as transaction:
            transaction.insert_many("items", items(self.job * 10_000, self.job * 10_000 + count))
        self.job += 1
        changes = pa.table({"id": [self.job], "__job": [self.job], "__weight": [1]}, NUMBERS.change_arrow_schema)
        self.numbers.apply(ChangeSet.of_table(NUMBERS, changes, JobId(self.job - 1), JobId(self.job)), JobId(self.job))
        self.numbers.materialize(None, JobId(self.job))
        self.ledger.append(
            [
                ("job", {"id": self.job}),
                ("checkpoint", {"tables": {"numbers": [self.numbers.version, self.job]}}),
            ]
        )

    def close(self) -> None:
        self.shop.close()
        self.ledger.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    found = Small(tmp_path / "storage")
    for _ in range(3):
        found.run()
    # One that is large goes to a file of its own.
    found.run(5_000)
    yield found
    found.close()


def numbers(storage: Path, version: int) -> list[int]:
    table = VersionedTable.open(str(storage / "numbers"), NUMBERS, version=version, through=JobId(4))
    return sorted(table.collected(JobId(4)).column("id").to_pylist())


def test_a_closed_warehouse_is_copied_and_put_back(small: Small, tmp_path: Path) -> None:
    small.close()
    heard: list[tuple[int, int]] = []
    manifest = backup(small.storage, tmp_path / "copy", lambda done, total: heard.append((done, total)))
    assert (manifest.job, manifest.storage) == (4, str(small.storage))
    assert heard[-1] == (manifest.bytes, manifest.bytes) and heard == sorted(heard)
    assert not list((small.storage / "_headgate/scratch").iterdir())
    report = restore(tmp_path / "copy", tmp_path / "elsewhere")
    assert (report.job, report.files, report.bytes) == (4, len(manifest.files), manifest.bytes)
    (shop,) = report.sources
    assert (shop.name, shop.position, shop.goes_on) == ("shop", 4, True) and "write it again" in str(report)
    assert numbers(tmp_path / "elsewhere", 4) == [1, 2, 3, 4]
    again = open_shop(tmp_path / "elsewhere" / STREAM)
    assert again.log.read("items", 0, 4).rows == 5_060 and again.log.end == 4
    again.close()
    ledger = Ledger.open(str(tmp_path / "elsewhere"), "you", lambda: NOON)
    assert [entry.body["id"] for entry in ledger.entries("job")] == [1, 2, 3, 4]
    ledger.close()


def test_what_never_changes_is_linked_and_segments_are_not(small: Small, tmp_path: Path) -> None:
    small.close()
    manifest = backup(small.storage, tmp_path / "copy")
    shared = {
        file.name: (small.storage / file.name).samefile(tmp_path / "copy/storage" / file.name)
        for file in manifest.files
    }
    assert {name.endswith((".segment", "trimmed", "mark")) for name, linked in shared.items() if not linked} == {True}
    assert all(linked for name, linked in shared.items() if name.startswith("numbers/"))


def test_without_links_files_are_copied(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "another file system")

    small.close()
    monkeypatch.setattr(os, "link", refuse)
    backup(small.storage, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "elsewhere")
    assert numbers(tmp_path / "elsewhere", 4) == [1, 2, 3, 4]


def test_what_is_pinned_outlives_vacuum_trim_and_further_jobs(small: Small, tmp_path: Path) -> None:
    held = Moment.of(small.storage, tmp_path / "place").pin()
    small.run(5_000)
    small.numbers.release(JobId(5))
    assert small.numbers.vacuum() > 0
    small.shop.log.trim(5)
    assert held.job == 4 and held.sources["shop"].position == 4
    for part in held.parts:
        assert (tmp_path / "place" / part.name).exists()
    gone = [part.name for part in held.parts if not (small.storage / part.name).exists()]
    assert any(name.startswith("numbers/") for name in gone) and any("/files/" in name for name in gone)


def test_a_transaction_that_is_being_written_is_left_out(small: Small, tmp_path: Path) -> None:
    with small.shop.transaction() as transaction:
        transaction.insert_many("items", items(900_000, 905_000))
        unfinished = small.storage / STREAM / "files" / "unfinished.parquet"
        unfinished.write_bytes(b"half of it")
        (small.storage / STREAM / "cursor").write_bytes(b"{}")
        segment = max((small.storage / STREAM).glob("*.segment"))
        with segment.open("ab") as stream:
            stream.write(b"HGF2 a torn frame")
        held = Moment.of(small.storage, tmp_path / "place").pin()
        os.truncate(segment, segment.stat().st_size - len(b"HGF2 a torn frame"))
    names = {part.name for part in held.parts}
    assert held.sources["shop"].position == 4 and held.sources["shop"].is_database
    assert f"{STREAM}/files/unfinished.parquet" not in names and sum("/files/" in name for name in names) == 1


def test_a_cursor_belongs_to_the_moment_of_its_log(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = f"{STREAM}/cursor"
    (small.storage / cursor).write_bytes(b"4")
    looks = 0

    def captured_meanwhile(folder: Path) -> list[Path]:
        nonlocal looks
        looks += 1
        if looks < 3:
            replace_file(small.storage / cursor, str(small.shop.log.end + 1).encode())
            with small.shop.transaction() as transaction:
                transaction.insert_many("items", items(looks, looks + 3))
        return list_segments(folder)

    monkeypatch.setattr(pinned, "list_segments", captured_meanwhile)
    found = Moment.of(small.storage, tmp_path / "place").pin()
    assert looks == 3
    assert found.sources["shop"].position == 6 and (tmp_path / "place" / cursor).read_bytes() == b"6"


def test_a_table_that_was_replaced_and_deleted_is_not_missed(small: Small, tmp_path: Path) -> None:
    small.ledger.append([("checkpoint", {"tables": {"_headgate/replicas/shop/old": [7, 3]}})])
    small.close()
    assert backup(small.storage, tmp_path / "copy").job == 4


def test_a_damaged_warehouse_is_not_backed_up(small: Small, tmp_path: Path) -> None:
    small.close()
    max((small.storage / "numbers").rglob("*.parquet")).unlink()
    with pytest.raises(CorruptWarehouse, match=r"numbers.*missing"):
        backup(small.storage, tmp_path / "copy")
    assert not list((tmp_path / "copy").iterdir())


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "remove"])
def test_a_damaged_backup_is_refused_and_leaves_nothing(small: Small, tmp_path: Path, damage: str) -> None:
    small.close()
    manifest = backup(small.storage, tmp_path / "copy")
    victim = tmp_path / "copy/storage" / manifest.files[-1].name
    content = victim.read_bytes()
    victim.unlink()
    if damage != "remove":
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        victim.write_bytes({"flip": flipped, "cut": content[:-1], "grow": content + b"x"}[damage])
    with pytest.raises(BackupUnusable, match=victim.name):
        restore(tmp_path / "copy", tmp_path / "elsewhere")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_half_backup_is_recognized(small: Small, tmp_path: Path) -> None:
    small.close()
    backup(small.storage, tmp_path / "copy")
    manifest = tmp_path / "copy/manifest.json"
    text = manifest.read_text()
    manifest.write_text(text[: len(text) // 2])
    with pytest.raises(BackupUnusable, match="damaged"):
        restore(tmp_path / "copy", tmp_path / "elsewhere")
    manifest.write_text(json.dumps({**json.loads(text), "format": 99}))
    with pytest.raises(BackupUnusable, match="format 99"):
        restore(tmp_path / "copy", tmp_path / "elsewhere")
    body = json.loads(text)
    body["files"][0]["name"] = "../outside"
    manifest.write_text(json.dumps(body))
    with pytest.raises(BackupUnusable, match="outside"):
        restore(tmp_path / "copy", tmp_path / "elsewhere")
    manifest.unlink()
    with pytest.raises(BackupUnusable, match="half"):
        restore(tmp_path / "copy", tmp_path / "elsewhere")
    with pytest.raises(BackupUnusable, match="no backup"):
        restore(tmp_path / "nowhere", tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_is_overwritten(small: Small, tmp_path: Path) -> None:
    small.close()
    backup(small.storage, tmp_path / "copy")
    with pytest.raises(DefiniteError, match="not empty"):
        backup(small.storage, tmp_path / "copy")
    with pytest.raises(DefiniteError, match=r"is not empty: it has _headgate, numbers"):
        restore(tmp_path / "copy", small.storage)
    (tmp_path / "cut/.restoring").mkdir(parents=True)
    with pytest.raises(DefiniteError, match="cut short"):
        restore(tmp_path / "copy", tmp_path / "cut")
    with pytest.raises(DefiniteError, match="outside"):
        backup(small.storage, small.storage / "copy")


def test_what_cannot_be_backed_up_is_said(small: Small, tmp_path: Path) -> None:
    with pytest.raises(WarehouseBusy, match="in use by me"):
        backup(small.storage, tmp_path / "copy")
    with pytest.raises(DefiniteError, match="no warehouse"):
        backup(tmp_path / "nothing", tmp_path / "copy")
    for call in (lambda: backup("s3://b/w", tmp_path / "copy"), lambda: restore(tmp_path / "copy", "s3://b/w")):
        with pytest.raises(EnvironmentProblem, match="only local folders"):
            call()


def test_without_a_project_the_remedy_is_told_for_the_case_that_it_is_needed(tmp_path: Path) -> None:
    database, till = SourceEnd(7, NOON, True), SourceEnd(8, None, False)
    told = str(advice("shop", database, tmp_path, None))
    assert told.startswith("shop: up to position 7 (2026-01-02 12:00:00+00:00)") and "refresh(full=True)" in told
    other = load_project({"name": "other", "storage": str(tmp_path)})
    assert advice("shop", database, tmp_path, other).what == "the project has no such database"
    assert advice("till", till, tmp_path, None).remedy == "let them write it again"
