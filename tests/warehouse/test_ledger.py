"""The ledger: order, ownership, fencing, damage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import CorruptWarehouse, EnvironmentProblem, Fenced, WarehouseBusy
from headgate.warehouse.ledger import COMPACT_FILES, SPEC, Ledger, LedgerEntry

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def clock() -> datetime:
    return NOON


def open_ledger(root: Path, owner: str = "me", *, takeover: bool = False) -> Ledger:
    return Ledger.open(str(root), owner, clock, takeover=takeover)


def test_entries_come_back_in_order_with_their_epoch(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.append([("cut", {"job": 1, "text": "ü\n"}), ("table", {"name": "t", "version": 3})])
    ledger.append([("cut", {"job": 2})])
    ledger.close()
    again = open_ledger(tmp_path, "you")
    assert [entry.body["job"] for entry in again.entries("cut")] == [1, 2]
    assert [entry.sequence for entry in again.entries()] == [1, 2, 3, 4, 5, 6]
    assert [(entry.epoch, entry.body["owner"]) for entry in again.entries("owner")] == [(1, "me"), (2, "you")]
    assert again.entries("cut")[0].body["text"] == "ü\n" and again.entries("cut")[0].at == NOON
    again.close()


def test_a_second_process_is_told_who_owns_the_warehouse(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, "process 42 on host-a")
    with pytest.raises(WarehouseBusy, match=r"process 42 on host-a.*can take over"):
        open_ledger(tmp_path)
    ledger.close()
    open_ledger(tmp_path).close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from datetime import datetime, UTC; from headgate.warehouse.ledger import Ledger;"
        f"Ledger.open({str(tmp_path)!r}, 'child', lambda: datetime.now(UTC)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert [entry.body["owner"] for entry in open_ledger(tmp_path).entries("owner")] == ["child", "me"]


def test_a_paused_former_owner_cannot_append(tmp_path: Path) -> None:
    former = open_ledger(tmp_path, "former")
    owner = open_ledger(tmp_path, "new", takeover=True)
    with pytest.raises(Fenced):
        former.append([("cut", {"job": 1})])
    for number in range(250):
        owner.append([("cut", {"job": number})])
    with pytest.raises(Fenced):
        former.append([("cut", {"job": 1})])
    owner.append([("cut", {"job": 250})])
    owner.close()
    former.close()
    assert [entry.body["job"] for entry in open_ledger(tmp_path).entries("cut")] == list(range(251))


def data_files(root: Path) -> list[Path]:
    return sorted((root / "_headgate" / "ledger").rglob("part-*.parquet"))


def test_a_truncated_ledger_file_is_named(tmp_path: Path) -> None:
    open_ledger(tmp_path).close()
    (file,) = data_files(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CorruptWarehouse, match=file.parent.name):
        open_ledger(tmp_path)


def test_an_entry_that_is_not_json_is_found(tmp_path: Path) -> None:
    open_ledger(tmp_path).close()
    (file,) = data_files(tmp_path)
    rows = [{"sequence": 1, "epoch": 1, "at": NOON, "kind": "owner", "body": "{not json"}]
    pq.write_table(pa.Table.from_pylist(rows, schema=SPEC.arrow_schema), file)
    with pytest.raises(CorruptWarehouse, match="entry 1 is not JSON"):
        open_ledger(tmp_path)


def test_a_missing_log_file_is_named(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    for number in range(3):
        ledger.append([("cut", {"job": number})])
    ledger.close()
    entry = tmp_path / "_headgate" / "ledger" / "_delta_log" / f"{2:020d}.json"
    entry.unlink()
    with pytest.raises(CorruptWarehouse, match=entry.name):
        open_ledger(tmp_path)


def test_an_unwritable_storage_folder_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(EnvironmentProblem) as caught:
        open_ledger(tmp_path / "file")
    assert "\n" not in str(caught.value) and "storage" in str(caught.value)


def test_entries_that_no_longer_count_go_when_files_become_one(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)

    def prune(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        return [entry for entry in entries if entry.kind != "cut" or entry.body["job"] >= 70]

    for job in range(COMPACT_FILES + 10):
        ledger.append([("cut", {"job": job})], prune)
    # The file that the others became, one for each entry since, and for each of those a commit of the table.
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) < 40
    ledger.close()
    again = open_ledger(tmp_path)
    assert [entry.body["job"] for entry in again.entries("cut")] == list(range(70, COMPACT_FILES + 10))
    assert [entry.sequence for entry in again.entries()] == list(range(1, len(again.entries()) + 1))
    assert [entry.body["owner"] for entry in again.entries("owner")] == ["me", "me"]
    again.close()


def warehouse_with_entries(root: Path) -> Path:
    """A storage with a ledger of a few entries and a stream log; gives the ledger's folder."""
    ledger = open_ledger(root)
    for number in range(3):
        ledger.append([("cut", {"job": number})])
    ledger.close()
    (root / "_headgate/streams/shop").mkdir(parents=True)
    return root / "_headgate/ledger"


def remove_log(ledger: Path) -> None:
    shutil.rmtree(ledger / "_delta_log")


def remove_newest_entry(ledger: Path) -> None:
    max((ledger / "_delta_log").glob("*.json")).unlink()


def damage_newest_entry(ledger: Path) -> None:
    entry = max((ledger / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:-20])


def damage_a_data_file(ledger: Path) -> None:
    file = next(ledger.rglob("part-*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize(
    "damage",
    [shutil.rmtree, remove_log, remove_newest_entry, damage_newest_entry, damage_a_data_file],
)
def test_a_ledger_that_lost_something_is_never_taken_for_a_new_or_shorter_one(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(warehouse_with_entries(tmp_path))
    for _ in range(2):
        with pytest.raises(CorruptWarehouse, match=r"headgate restore.*headgate reset"):
            open_ledger(tmp_path)


def test_a_damaged_mark_of_the_ledger_is_removed_by_hand(tmp_path: Path) -> None:
    warehouse_with_entries(tmp_path)
    mark = tmp_path / "_headgate/ledger.mark"
    mark.write_bytes(b"")
    with pytest.raises(CorruptWarehouse, match=r"ledger.mark: .*remove it"):
        open_ledger(tmp_path)
    mark.unlink()
    ledger = open_ledger(tmp_path)
    assert len(ledger.entries("cut")) == 3
    ledger.close()
    remove_newest_entry(tmp_path / "_headgate/ledger")
    with pytest.raises(CorruptWarehouse, match="lost its newest entries"):
        open_ledger(tmp_path)
