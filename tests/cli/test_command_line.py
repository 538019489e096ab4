"""Every command explains itself, starts quickly, and ends with a code and words that say what happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headgate.cli.exits import exit_code, failure_lines
from headgate.cli.main import ALIASES, COMMANDS, cli, run
from headgate.errors import ConfigError, DefiniteError, Location, TooStale, WarehouseBusy
from tests.cli.processes import headgate


@pytest.mark.parametrize("name", [*COMMANDS, *ALIASES])
def test_every_command_has_help_with_an_example(name: str) -> None:
    found = CliRunner().invoke(cli, [name, "--help"])
    assert found.exit_code == 0
    assert f"  headgate {ALIASES.get(name, name)}" in found.output.split("Options:")[0].partition("\n")[2]
    if name not in ("completion",):
        assert "--json" in found.output
    if name not in ("completion", "init"):
        assert "--project" in found.output


def test_help_lists_every_command_in_order() -> None:
    listed = CliRunner().invoke(cli, ["--help"]).output.split("Commands:")[1].split("\n")
    assert [line.split()[0] for line in listed if line.strip()] == list(COMMANDS)


def test_help_and_finding_a_service_import_neither_spark_nor_arrow(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from headgate.cli.main import run\n"
        "assert run(['--help']) == 0 and run(['query', '--help']) == 0 and run(['init', sys.argv[1]]) == 0\n"
        "from headgate.cli.options import Place\n"
        "from headgate.cli.running import find_service, storage_of\n"
        "assert find_service(storage_of(Place(Path(sys.argv[1])))) is None\n"
        "heavy = {'pyspark', 'pyarrow', 'prompt_toolkit', 'sqlglot', 'psycopg', 'uvicorn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_mistake_of_the_user_is_two_lines_without_a_traceback(tmp_path: Path) -> None:
    found = headgate("status", "--project", str(tmp_path))
    assert found.returncode == 1
    assert found.stdout == ""
    assert found.stderr.splitlines() == [
        f"error: there is no project file {tmp_path / 'headgate.yml'}",
        "hint: `headgate init` makes one; --project names the folder of another",
    ]


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    found = headgate("status", "--project", str(tmp_path), HEADGATE_DEBUG="1")
    assert found.returncode == 1
    assert "Traceback" in found.stderr
    assert "error: there is no project file" in found.stderr


def test_wrong_usage_is_code_2() -> None:
    found = headgate("quary")
    assert found.returncode == 2
    assert "No such command" in found.stderr
    assert headgate("status", "--watch", "never").returncode == 2


def test_the_kind_of_a_failure_decides_the_code() -> None:
    class Later(WarehouseBusy):
        """A kind of being busy."""

    assert exit_code(TooStale("old")) == 3
    assert exit_code(Later("mine")) == 4
    assert exit_code(ConfigError("wrong")) == 1
    assert exit_code(ValueError("odd")) == 1


def test_failures_are_told_with_place_and_remedy() -> None:
    error = DefiniteError("it broke", where=Location("a.sql", 3), hint="mend it")
    assert failure_lines(error) == ["error: a.sql:3: it broke", "hint: mend it"]
    assert failure_lines(DefiniteError("it broke")) == ["error: it broke"]
    assert failure_lines(FileNotFoundError(2, "No such file", "x.sql")) == ["error: x.sql: No such file"]
    assert "HEADGATE_DEBUG=1" in failure_lines(ZeroDivisionError("oops"))[1]


def test_an_interrupted_command_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command("endless")
    def endless() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "get_command", lambda context, name: endless)
    assert run(["endless"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_output_that_nobody_reads_any_more_is_no_error() -> None:
    # Much more than a pipe holds.
    program = (
        "import click\nfrom headgate.cli import main\n@click.command('x')\ndef x():\n    click.echo('y' * 10_000_000)\n"
    )
    program += "main.cli.get_command = lambda context, name: x\nmain.main(['x'])\n"
    done = subprocess.run(
        f'{sys.executable} -c "$PROGRAM" | head -c 1',
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PROGRAM": program},
    )
    assert (done.stdout, done.stderr) == ("y", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_clicks_own(shell: str) -> None:
    found = CliRunner().invoke(cli, ["completion", shell])
    assert found.exit_code == 0
    assert "_HEADGATE_COMPLETE" in found.output


def test_commands_complete() -> None:
    found = headgate(_HEADGATE_COMPLETE="bash_complete", COMP_WORDS="headgate re", COMP_CWORD="1")
    assert [line.partition(",")[2] for line in found.stdout.split()] == ["refresh", "resume", "restore", "reset"]
