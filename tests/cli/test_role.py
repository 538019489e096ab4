"""`headgate role` makes, lists and removes roles; the token is written once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import cli, run
from headgate.warehouse.roles import Roles


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "headgate.yml").write_text("name: shop\nstorage: ./warehouse\n")
    return tmp_path


def test_a_role_is_made_listed_and_removed(project: Path) -> None:
    here = ["--project", str(project)]
    runner = CliRunner()
    assert runner.invoke(cli, ["role", "list", *here]).output.startswith("there are no roles")
    added = runner.invoke(cli, ["role", "add", "analyst", "--can", "read", *here])
    assert added.exit_code == 0 and "not shown again" in added.stderr
    found = Roles(project / "warehouse").of_token(added.stdout.strip())
    assert found is not None and found.can == "read"
    produced = runner.invoke(cli, ["role", "add", "loader", "--can", "produce", "--json", *here])
    assert json.loads(produced.stdout)["token"].startswith("loader.")
    listed = runner.invoke(cli, ["role", "list", *here]).output
    assert "analyst" in listed and "produce" in listed and added.stdout.strip() not in listed
    assert runner.invoke(cli, ["role", "remove", "analyst", *here]).exit_code == 0
    left = json.loads(runner.invoke(cli, ["role", "list", "--json", *here]).output)
    assert left == [{"name": "loader", "can": "produce"}]


def test_mistakes_are_told_in_words(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--project", str(project)]
    assert run(["role", "add", "analyst", *here]) == 2
    assert run(["role", "add", "Analyst", "--can", "read", *here]) == 1
    assert "cannot be named" in capsys.readouterr().err
    assert run(["role", "remove", "nobody", *here]) == 1
    assert "there is no role nobody" in capsys.readouterr().err
