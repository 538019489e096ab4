"""Child processes that run the shop's script, and the checks of what a dead one left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

import headgate
from headgate.capture.log_manifest import LogManifest
from headgate.scheduling.warehouse import Warehouse
from tests.faults import shop

ROOT = Path(__file__).parents[2]


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Runs a module of the tests in a process of its own; its lines can be read."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def acknowledged(folder: Path) -> int:
    """The last transaction whose commit came back to the dead process."""
    file = folder / "acknowledged"
    return max([shop.LOADED, *map(int, file.read_text().split())] if file.exists() else [shop.LOADED])


def check_recovery(folder: Path, expected: dict[int, shop.Content]) -> None:
    """Opening gives what an undisturbed run has, the script can go on, and nothing is left behind."""
    with headgate.open(shop.project(folder)) as warehouse:
        position = shop.position(warehouse)
        assert acknowledged(folder) <= position <= acknowledged(folder) + 1
        warehouse.refresh()
        assert shop.content(warehouse) == expected[position]
        shop.run(warehouse)
        warehouse.materialize()
        check_nothing_left(folder, warehouse)
    with headgate.open(shop.project(folder)) as warehouse:
        assert shop.content(warehouse) == expected[shop.TRANSACTIONS]


def check_nothing_left(folder: Path, warehouse: Warehouse) -> None:
    """Every data file is one that its table names; reads open no other; no scratch, no second stream log."""
    storage = folder / "warehouse"
    logs = sorted(storage.rglob("_delta_log"))
    assert any("arrangements" in str(log) for log in logs) and any("states" in str(log) for log in logs)
    for log in logs:
        named = {Path(path) for path in DeltaTable(log.parent).file_uris()}
        assert set(log.parent.rglob("*.parquet")) - set(log.rglob("*.parquet")) == named
    for name in shop.TABLES:
        table = DeltaTable(storage / "_headgate/replicas" / name.replace(".", "/")) if "." in name else None
        table = table or DeltaTable(warehouse.location(name))
        with warehouse.table(name) as answer:
            read = {Path(path.removeprefix("file://")) for path in answer.dataframe.inputFiles()}
        assert read == {Path(path) for path in table.file_uris()}
    assert not list((storage / "_headgate/scratch").rglob("*.parquet"))
    home = storage / "_headgate/streams/shop"
    manifest = LogManifest.from_body(warehouse._engine.journal.records.streams["shop"])
    used = {str(manifest.epoch), *(name.partition("/")[0] for name, _ in manifest.former)}
    assert {path.name for path in home.iterdir()} <= {*used, "files", "blocks"}
