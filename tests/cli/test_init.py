"""`headgate init` writes a project that is right as it is, and touches nothing that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.checking import check_project
from headgate.cli.main import cli, run
from headgate.cli.starter import project_name
from headgate.config import load_project


def test_the_project_is_right_as_it_is(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["init", str(tmp_path / "My shop")])
    assert found.exit_code == 0
    assert "headgate check && headgate run" in found.output
    project = load_project(tmp_path / "My shop")
    assert project.name == "My-shop"
    assert list(project.sources) == ["shop"]
    report = check_project(tmp_path / "My shop" / "headgate.yml", with_spark=False)
    assert report.problems == ()
    assert [(flow.name, flow.reads, flow.how) for flow in report.flows] == [("revenue", ("shop.sales",), "incremental")]
    assert not (tmp_path / "My shop" / "warehouse").exists()


def test_files_that_are_there_stay(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    found = CliRunner().invoke(cli, ["init", str(tmp_path), "--json"])
    answer = json.loads(found.output)
    assert answer["kept"] == ["README.md"]
    assert "headgate.yml" in answer["written"]
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_project_is_not_made_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", str(tmp_path)]) == 0
    before = {file: file.read_text() for file in tmp_path.rglob("*") if file.is_file()}
    assert run(["init", str(tmp_path)]) == 1
    assert "there is a project already" in capsys.readouterr().err
    assert before == {file: file.read_text() for file in tmp_path.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("text", "name"), [("shop", "shop"), ("My shop!", "My-shop"), ("2024 data", "project-2024-data"), ("", "project")]
)
def test_any_folder_gives_a_name(text: str, name: str) -> None:
    assert project_name(text) == name


def test_a_project_over_files_has_a_table_per_folder_and_kind_of_file(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    (landing / "clicks").mkdir(parents=True)
    (landing / "clicks" / "1.jsonl").write_text('{"user": 1, "at": "2024-01-02T03:04:05Z"}\n')
    (landing / "orders-2024-01.csv").write_text("id;item;amount\n1;tea;1.5\n2;tea;2.5\n")
    (landing / "orders-2024-02.csv").write_text("id;item;amount\n3;tea;1.5\n")
    (landing / "readme.md").write_text("no data")
    (landing / "notes.txt").write_text("")
    found = CliRunner().invoke(cli, ["init", str(tmp_path / "shop"), "--files", str(landing)])
    assert found.exit_code == 0, found.output
    tables = load_project(tmp_path / "shop").sources["landing"].tables
    assert list(tables) == ["clicks", "orders"], "what is no table is left out, and named"
    assert "# left out: the columns of" in (tmp_path / "shop/headgate.yml").read_text()
    assert dict(tables["orders"].columns) == {"id": "bigint", "item": "string", "amount": "double"}  # type: ignore[union-attr]
    assert tables["orders"].key == ("id",)
    report = check_project(tmp_path / "shop" / "headgate.yml", with_spark=False)
    assert report.problems == ()
    assert [(flow.name, flow.how) for flow in report.flows] == [("orders_total", "incremental")]


def test_files_that_make_no_table_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "landing").mkdir()
    assert run(["init", str(tmp_path / "shop"), "--files", str(tmp_path / "landing")]) == 1
    assert "there is no CSV, JSON or Parquet file" in capsys.readouterr().err
    (tmp_path / "landing" / "a.parquet").write_text("no")
    assert run(["init", str(tmp_path / "shop"), "--files", str(tmp_path / "landing")]) == 1
    assert "not a whole Parquet file" in capsys.readouterr().err
    assert not (tmp_path / "shop").exists()
