"""The process dies at every step of every commit; reopening gives the same tables as an undisturbed run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.delta.changes import JobId
from tests.warehouse.crashing import JOBS, SPECS, model_at, run
from tests.warehouse.model import SCHEMA, canonical

ROOT = Path(__file__).parents[2]


def crash(folder: Path, *number: int) -> int:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.warehouse.crashing", str(folder), *map(str, number)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def check(folder: Path) -> None:
    steps: list[str] = []
    tables = run(str(folder), steps.append)
    expected = canonical(model_at(JOBS).snapshots[JOBS].values())
    for spec in SPECS:
        table = tables[spec.name]
        values = pa.array([None, *range(60)], spec.arrow_schema.field(spec.lead).type)
        found = table.lookup((spec.lead,), pa.table({spec.lead: values}), JobId(JOBS), tuple(SCHEMA.names))
        assert canonical(found.to_pylist()) == expected
        delta = DeltaTable(folder / spec.name)
        assert canonical(delta.to_pyarrow_table().cast(spec.arrow_schema).to_pylist()) == expected
        table.vacuum()
        live = {Path(path) for path in delta.file_uris()}
        assert set((folder / spec.name).rglob("part-*.parquet")) == live


@pytest.mark.slow
def test_a_kill_at_any_step_loses_doubles_and_tears_nothing(tmp_path: Path) -> None:
    assert crash(tmp_path) == 0
    left = sorted(tmp_path.iterdir())
    assert len(left) > 30
    for folder in left:
        check(folder)


def test_two_deaths_in_a_row_are_survived(tmp_path: Path) -> None:
    assert crash(tmp_path, 9) != 0
    assert crash(tmp_path, 5) != 0
    check(tmp_path)
