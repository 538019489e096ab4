"""The scratch folder keeps what is in use, and nothing of owners that are gone."""

from __future__ import annotations

from pathlib import Path

from headgate.runtime.spark.scratch import Scratch


def test_only_folders_in_use_are_kept(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 2)
    running, named, unused = scratch.new(), scratch.new(), scratch.new()
    for folder in (running, named, unused):
        folder.mkdir()
    scratch.done([named, unused])
    scratch.clean(lambda: {named.name})
    assert set(scratch.folder.iterdir()) == {running, named}


def test_what_the_spark_of_a_killed_owner_still_wrote_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "1/batch").mkdir(parents=True)
    scratch = Scratch(tmp_path, 2)
    mine = scratch.new()
    mine.mkdir()
    (tmp_path / "1/batch").mkdir(parents=True)
    scratch.clean(set)
    assert list(tmp_path.iterdir()) == [scratch.folder] and mine.exists()
