"""A warehouse of format 3, whose stream logs lie whole in the folder of their newest owner, opens and goes on."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from headgate.capture.log_manifest import LogManifest
from headgate.runtime.recovery.backup import backup, restore
from headgate.runtime.spark.sessions import SparkSessions
from tests.formats.shop import answers, first_half, open_shop, second_half
from tests.formats.test_format_1 import convert

ARCHIVE = Path(__file__).parent / "format_3.tar.gz"
HOME = "_headgate/streams/shop"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "kept", filter="data")
    return tmp_path / "kept"


@pytest.mark.slow
def test_a_warehouse_of_format_3_answers_as_a_new_one_does(
    folder: Path, tmp_path: Path, spark_sessions: SparkSessions
) -> None:
    # A backup of it is one of format 3 as well.
    backup(folder / "warehouse", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored" / "warehouse")
    with open_shop(tmp_path / "new") as new:
        first_half(new)
        new.refresh()
        expected = answers(new)
        second_half(new)
        in_the_end = answers(new)
    for place in (folder, tmp_path / "restored"):
        with open_shop(place) as kept:
            kept.refresh()
            assert answers(kept) == expected
            second_half(kept)
            assert answers(kept) == in_the_end
            backup_of_it = tmp_path / f"backup of {place.name}"
            kept.backup(backup_of_it)
        with open_shop(place) as again:
            assert answers(again) == in_the_end
        restore(backup_of_it, tmp_path / f"again {place.name}" / "warehouse")
        with open_shop(tmp_path / f"again {place.name}") as again:
            assert answers(again) == in_the_end


def test_a_conversion_to_format_4_that_is_killed_at_any_step_is_made_to_its_end(folder: Path, tmp_path: Path) -> None:
    root = folder / "warehouse"
    (before,) = (root / HOME / "1/files").iterdir()
    left_behind: list[Path] = []

    def kill(step: str) -> None:
        left_behind.append(tmp_path / f"{len(left_behind):02d}-{step}")
        shutil.copytree(root, left_behind[-1])

    convert(root, kill)
    assert any(place.name.endswith("moved-file") for place in left_behind)
    for place in [root, *left_behind]:
        ledger = convert(place)
        assert [LogManifest.from_body(entry.body) for entry in ledger.entries("stream")] == [LogManifest(1)]
        assert [path.name for path in (place / HOME / "files").iterdir()] == [before.name]
