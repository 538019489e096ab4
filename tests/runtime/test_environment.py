"""A machine that lacks something is told so in one line, with what to do."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from headgate.errors import EnvironmentProblem
from headgate.runtime.spark.environment import check_java, check_storage


def java_that_says(folder: Path, version: str) -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def test_the_java_of_this_machine_will_do() -> None:
    assert check_java() >= 17


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"Spark needs Java.*install Java 17 or later") as caught:
        check_java({"PATH": str(tmp_path)})
    assert "\n" not in str(caught.value)


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"no Java in JAVA_HOME.*unset JAVA_HOME"):
        check_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("says", "version"), [('openjdk version "11.0.2" 2019-01-15', 11), ('java version "1.8.0_392"', 8)]
)
def test_an_old_java_is_named(tmp_path: Path, says: str, version: int) -> None:
    with pytest.raises(EnvironmentProblem, match=rf"is Java {version}, which is too old.*install Java 17"):
        check_java(java_that_says(tmp_path, says))


def test_a_newer_java_will_do(tmp_path: Path) -> None:
    assert check_java(java_that_says(tmp_path, 'openjdk version "21" 2023-09-19')) == 21


def test_a_java_that_tells_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="does not tell its version"):
        check_java(java_that_says(tmp_path, "hello"))


def test_a_storage_folder_that_others_can_read_is_made_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.mkdir()
    old.chmod(0o2755)
    check_storage(str(new))
    assert caplog.messages == []
    check_storage(str(old))
    assert caplog.messages == [f"took the rights of others from the folder: folder={old} mode=2700 before=2755"]
    check_storage(str(old))
    assert len(caplog.messages) == 1
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (new, old)] == [0o700, 0o2700]


def test_a_storage_folder_is_made_when_missing(tmp_path: Path) -> None:
    check_storage(str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_storage_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"cannot be written.*choose another folder"):
        check_storage(str(tmp_path / "file" / "warehouse"))
