"""A running service is found by the note that it leaves, and only while it runs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.options import Place
from headgate.cli.running import NOTE, RunningService, announced, find_service, storage_of
from headgate.errors import ConfigError, CorruptWarehouse

HERE = RunningService("http://127.0.0.1:8765", os.getpid(), "secret")


@pytest.fixture
def storage(tmp_path: Path) -> str:
    (tmp_path / "warehouse" / NOTE.parent).mkdir(parents=True)
    return str(tmp_path / "warehouse")


def test_the_note_is_there_while_the_service_runs(storage: str) -> None:
    assert find_service(storage) is None
    with announced(storage, HERE):
        assert find_service(storage) == HERE
        mode = (Path(storage) / NOTE).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    assert find_service(storage) is None
    assert list((Path(storage) / NOTE.parent).iterdir()) == []


def test_a_note_whose_process_is_gone_does_not_count(storage: str) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (Path(storage) / NOTE).write_text(json.dumps({"url": HERE.url, "pid": gone.pid, "token": None}))
    assert find_service(storage) is None


def test_a_successors_note_stays(storage: str) -> None:
    other = RunningService("http://127.0.0.1:9999", os.getpid())
    with announced(storage, HERE):
        (Path(storage) / NOTE).write_text(json.dumps({"url": other.url, "pid": other.pid, "token": None}))
    assert find_service(storage) == other


def test_a_damaged_note_is_named(storage: str) -> None:
    (Path(storage) / NOTE).write_text("{")
    with pytest.raises(CorruptWarehouse) as caught:
        find_service(storage)
    assert str(NOTE) in str(caught.value.where)
    assert "remove the file" in str(caught.value.hint)


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(HERE)


def test_the_storage_is_found_as_the_project_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "data")
    file = tmp_path / "headgate.yml"
    for written in ("./warehouse", "${PLACE}/../w", "/elsewhere/w", "~/w", "file:///elsewhere/w"):
        file.write_text(f"name: a\nstorage: {written}\n")
        from headgate.config import load_project

        assert storage_of(Place(tmp_path)) == load_project(file).storage


def test_a_project_without_storage_says_so(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text("name: a\n")
    with pytest.raises(ConfigError, match="storage is missing"):
        storage_of(Place(tmp_path))


def test_a_folder_without_a_project_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no project file") as caught:
        storage_of(Place(tmp_path))
    assert "headgate init" in str(caught.value.hint)
