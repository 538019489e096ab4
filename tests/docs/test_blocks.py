"""Every block of the documentation is right in its language: SQL, Python, YAML, commands. No Spark is needed for that."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
import yaml

from headgate.cli.starter import starter
from headgate.cli.statements import split
from headgate.config import Project, load_project
from headgate.sql.guard import require_select
from headgate.sql.statements import CreateView, parse_statements
from headgate.sql.subscribing import parse_subscribe
from headgate.sql.tail import parse_setting, split_tail
from tests.docs.commands import calls, command_lines, require_right
from tests.docs.markdown import PAGES, ROOT, Block, blocks, inline_code
from tests.docs.shop import SQL_PAGE, checked_flows, is_flows

POSTGRES = "postgres"
SHELLS = ("", "sh", "console")
QUICKSTART = ROOT / "docs" / "quickstart.md"


def located(found: list[Block]) -> list[object]:
    return [pytest.param(block, id=str(block)) for block in found]


@pytest.mark.parametrize("block", located([each for each in blocks("sql") if each.kind != POSTGRES]))
def test_sql_is_a_flow_or_a_query(block: Block) -> None:
    if is_flows(block):
        assert parse_statements(block.text, str(block))
        return
    statements, rest = split(block.text)
    for statement in [*statements, rest]:
        if statement and parse_setting(statement) is None and parse_subscribe(statement) is None:
            query, _ = split_tail(statement)
            require_select(query)


def test_flows_of_the_sql_page_are_kept_as_it_says() -> None:
    said: dict[str, str] = {}
    for block in blocks("sql", pages=(SQL_PAGE,)):
        for reason, view in re.findall(r"-- not incremental: (.*)\nCREATE MATERIALIZED VIEW (\w+)", block.text):
            said[view] = reason
    found = checked_flows()
    assert len(said) == 4
    assert {flow.name: flow.reasons for flow in found if flow.how == "partly incremental"} == {
        view: (reason,) for view, reason in said.items()
    }
    assert {flow.how for flow in found if flow.name not in said} == {
        "incremental",
        "dimension of type 1, incremental",
        "dimension of type 2, incremental",
    }


@pytest.mark.parametrize("block", located(blocks("python")))
def test_python_can_be_compiled(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", located(blocks("yaml")))
def test_yaml_is_a_project_or_a_part_of_one(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project_of(block, tmp_path, monkeypatch).name


def project_of(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The block as a project file, with a name, a storage, flows and variables where it leaves them out."""
    for name in re.findall(r"\$\{(\w+)\}", block.text):
        monkeypatch.setenv(name, "given")
    (folder / "flows").mkdir()
    (folder / "flows" / "some.sql").touch()
    whole = {"name": "shop", "storage": "./warehouse", **yaml.safe_load(block.text)}
    # As it stands, where it is whole: so that mistakes have their lines.
    is_whole = len(whole) == len(yaml.safe_load(block.text))
    (folder / "headgate.yml").write_text(block.text if is_whole else yaml.safe_dump(whole), encoding="utf-8")
    return load_project(folder)


def test_the_quickstart_shows_the_project_that_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks("yaml", pages=(QUICKSTART,))[0]
    for path, text in starter("shop").items():
        (tmp_path / "made" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / path).write_text(text, encoding="utf-8")
    (tmp_path / "shown").mkdir()
    made, said = load_project(tmp_path / "made"), project_of(shown, tmp_path / "shown", monkeypatch)
    own = {"storage", "libraries"}
    assert said.model_dump(exclude=own) == made.model_dump(exclude=own)
    (flow,) = parse_statements((tmp_path / "made" / "flows" / "revenue.sql").read_text(), "made")
    (shown_flow,) = parse_statements(blocks("sql", pages=(QUICKSTART,))[0].text, "shown")
    assert isinstance(flow, CreateView) and isinstance(shown_flow, CreateView)
    assert (shown_flow.name, shown_flow.query_text) == (flow.name, flow.query_text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_those_that_there_are(page: Path) -> None:
    lines = [(str(block), line, True) for block in blocks(*SHELLS, pages=(page,)) for line in command_lines(block)]
    named = [
        (where, text) for where, text in inline_code(page) if text.startswith("headgate ") and text != "headgate …"
    ]
    lines += [(str(where), text, False) for where, text in named]
    wrong = []
    for where, line, is_whole in lines:
        try:
            for arguments in calls(line):
                require_right(arguments, is_whole=is_whole)
        except (click.UsageError, ValueError) as error:
            wrong.append(f"{where}: {line.strip()}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    ["headgate frob", "headgate query --bounds 3", "headgate query --job x", "headgate status one", "headgate explain"],
)
def test_a_wrong_command_would_be_found(line: str) -> None:
    (arguments,) = calls(f"cd shop && HEADGATE_TOKEN=x {line} | cat  # so")
    with pytest.raises(click.UsageError):
        require_right(arguments)


def test_make_knows_what_it_is_asked_for() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    texts = [line for block in blocks(*SHELLS) for line in command_lines(block)]
    texts += [text for page in PAGES for _, text in inline_code(page)]
    asked = [text for text in texts if text.startswith("make ")]
    assert {text.split()[1] for text in asked} <= targets
    names = {name for text in asked for name in re.findall(r"NAME=(\w+)", text)}
    assert names
    assert all((ROOT / "benchmarks" / f"{name}.py").is_file() for name in names)


def test_no_block_escapes() -> None:
    kinds = {
        ("sql", ""),
        ("sql", POSTGRES),
        # Over tables of another project than the pages' own.
        ("sql", "example"),
        ("python", ""),
        ("yaml", ""),
        ("nginx", ""),
        # A model of dbt; the gateway's test of dbt runs one like it.
        ("jinja", ""),
        *((shell, "") for shell in SHELLS),
    }
    assert [str(block) for block in blocks() if (block.language, block.kind) not in kinds] == []
