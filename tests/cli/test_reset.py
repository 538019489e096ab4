"""`headgate reset` deletes what headgate made and nothing else, and only when nobody has it open."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.leaving import at_sources
from headgate.cli.main import cli, run
from headgate.cli.running import RunningService, announced
from headgate.config import load_project
from headgate.warehouse.lock import OwnerLock
from headgate.warehouse.storage import Folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose warehouse has two tables, and whose storage folder has other files too."""
    storage = tmp_path / "warehouse"
    for table in ("revenue/_delta_log", "revenue.2/_delta_log", "_headgate/ledger/_delta_log", "mine"):
        (storage / table).mkdir(parents=True)
        (storage / table / "file").write_text("x")
    (tmp_path / "headgate.yml").write_text("name: shop\nstorage: ./warehouse\n")
    return tmp_path


def left(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "warehouse").iterdir())


def test_what_headgate_made_is_deleted_and_the_rest_stays(project: Path) -> None:
    found = CliRunner().invoke(cli, ["reset", "--project", str(project)], input="y\n")
    assert found.exit_code == 0
    storage = project / "warehouse"
    assert f"delete {storage / 'revenue'}" in found.output
    assert f"keep   {storage / 'mine'}" in found.output
    assert left(project) == ["mine"]
    assert (project / "headgate.yml").exists()


def test_it_asks_first(project: Path) -> None:
    before = left(project)
    for answer in ("n\n", "\n", ""):
        assert CliRunner().invoke(cli, ["reset", "--project", str(project)], input=answer).exit_code == 1
    assert left(project) == before


def test_for_a_script_nothing_is_asked(project: Path) -> None:
    found = CliRunner().invoke(cli, ["reset", "--project", str(project), "--yes", "--json"])
    assert [Path(path).name for path in json.loads(found.output)["deleted"]] == ["revenue", "revenue.2", "_headgate"]


def test_where_nothing_is_nothing_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text("name: shop\nstorage: ./warehouse\n")
    found = CliRunner().invoke(cli, ["reset", "--project", str(tmp_path)])
    assert (found.exit_code, found.output) == (0, f"there is nothing to delete in {tmp_path / 'warehouse'}\n")


def test_a_folder_that_is_not_headgates_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "headgate.yml").write_text("name: shop\nstorage: .\n")
    (tmp_path / "thesis.txt").write_text("x")
    assert run(["reset", "--project", str(tmp_path), "--yes"]) == 1
    assert "is not a headgate storage" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_a_warehouse_that_lost_its_ledger_is_deleted_too(project: Path) -> None:
    shutil.rmtree(project / "warehouse/_headgate/ledger")
    assert run(["reset", "--project", str(project), "--yes"]) == 0
    assert [path.name for path in (project / "warehouse").iterdir()] == ["mine"]


def test_a_storage_beside_the_project_file_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text("name: shop\nstorage: .\n")
    (tmp_path / "_headgate" / "ledger").mkdir(parents=True)
    assert run(["reset", "--project", str(tmp_path), "--yes"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["headgate.yml"]


@contextmanager
def owned(storage: Path) -> Iterator[None]:
    """The warehouse as a process has it that opened it."""
    owner = "host-a process 42"
    lock = OwnerLock.take(Folder.at(storage / "_headgate"), owner, datetime(2024, 5, 1, tzinfo=UTC), takeover=False)
    try:
        yield
    finally:
        lock.release()


def commands(project: Path) -> list[list[str]]:
    """Everything that changes or copies the folder of a closed warehouse."""
    here, backup = ["--project", str(project)], project / "backup"
    backup.mkdir(exist_ok=True)
    other = [["init", str(project / "warehouse")], ["restore", str(backup), *here]]
    return [["reset", "--yes", *here], ["reset", "--yes", "--keep-slots", *here], *other]


def test_a_warehouse_that_is_open_is_left_alone_and_its_owner_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = left(project)
    with owned(project / "warehouse"):
        for command in [*commands(project), ["backup", str(project / "copy"), "--project", str(project)]]:
            assert run(command) == 4, command
            said = capsys.readouterr().err
            assert "is in use by host-a process 42 since 2024-05-01" in said and "stop it first" in said
    assert left(project) == before


def test_a_warehouse_that_a_service_has_open_is_left_alone_and_the_service_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = left(project)
    storage = project / "warehouse"
    with owned(storage), announced(str(storage), RunningService("http://127.0.0.1:1", os.getpid())):
        for command in commands(project):
            assert run(command) == 4, command
            said = capsys.readouterr().err
            assert f"a service has the warehouse open: http://127.0.0.1:1, process {os.getpid()}" in said
            assert "systemctl stop" in said
    assert left(project) == before


def test_a_note_that_a_crash_left_behind_keeps_nobody_from_resetting(project: Path) -> None:
    """The number of its process may be another's by now; the lock tells that nobody has the warehouse open."""
    storage = project / "warehouse"
    with owned(storage):
        pass
    (storage / "_headgate" / "service.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()}))
    assert run(["reset", "--yes", "--project", str(project)]) == 0


def test_a_project_is_not_made_anew_around_a_warehouse_that_is_open(project: Path) -> None:
    (project / "headgate.yml").unlink()
    with owned(project / "warehouse"):
        assert run(["init", str(project)]) == 4
    assert not (project / "headgate.yml").exists()


def test_what_is_at_the_sources_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "headgate.yml").write_text(
        "name: shop\nstorage: ./warehouse\nsources:\n"
        "  a: {type: postgres, dsn: 'host=127.0.0.1 port=1 connect_timeout=2', tables: {t: }}\n"
        "  b: {type: postgres, dsn: x=y, capture: trigger, tables: {t: }}\n"
        "  c: {type: postgres, dsn: x=y, capture: timestamp, tables: {t: {updated: at}}}\n"
    )
    assert [each.source for each in at_sources(load_project(project))] == ["a", "b"]
    assert run(["reset", "--project", str(project), "--yes", "--keep-slots"]) == 0
    out = capsys.readouterr().out
    assert "keep   the replication slot and the publication headgate_shop_a, at the source a" in out
    assert "keep   the triggers and the audit table of headgate_shop_b, at the source b" in out


def test_a_source_that_does_not_answer_keeps_its_slot_and_that_is_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = "host=127.0.0.1 port=1 connect_timeout=2"
    (project / "headgate.yml").write_text(
        f"name: shop\nstorage: ./warehouse\nsources: {{a: {{type: postgres, dsn: '{dsn}', tables: {{t: }}}}}}\n"
    )
    assert run(["reset", "--project", str(project), "--yes"]) == 1
    assert "pg_drop_replication_slot('headgate_shop_a')" in capsys.readouterr().err
    assert left(project) == ["mine"]
