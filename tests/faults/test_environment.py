"""Opening on a machine that lacks something is one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headgate
from headgate.errors import EnvironmentProblem
from tests.faults import shop


def refusal(folder: Path, **changes: object) -> str:
    with pytest.raises(EnvironmentProblem) as caught:
        headgate.open({**shop.project(folder), **changes})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_storage_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("")
    assert refusal(tmp_path) == (
        f"the storage folder {tmp_path}/warehouse is a file (choose another folder as storage)"
    )


def test_a_storage_that_cannot_be_written_is_refused(tmp_path: Path, mount: Callable[[str], Path]) -> None:
    place = mount("size=1m,ro")
    assert "cannot be written: Read-only file system" in refusal(tmp_path, storage=str(place))
    assert "cannot be written: Read-only file system" in refusal(tmp_path, storage=str(place / "new"))


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is none (install Java 17 or later" in refusal(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"there is no Java in JAVA_HOME, {tmp_path}" in refusal(tmp_path)


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"{java} is Java 11, which is too old for Spark (install Java 17" in refusal(tmp_path)
    assert not (tmp_path / "warehouse").exists()
