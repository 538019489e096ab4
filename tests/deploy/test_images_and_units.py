"""The Dockerfile and the systemd unit, and the commands of the operations guide."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import click
import pytest

from headgate.cli.main import COMMANDS
from headgate.cli.options import TOKEN
from headgate.service.gate import ALIVE
from tests.deploy.manifests import DEPLOY, DOCKERFILE, ROOT, UNIT, exec_form, instructions, understood

OPERATIONS = ROOT / "docs" / "operations.md"


def unit() -> configparser.RawConfigParser:
    """Of what stands there several times, the last."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read(UNIT)
    return parser


def image_files() -> set[str]:
    """What of the repository the image is built of, by the patterns that stand beside the Dockerfile."""
    patterns = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split()
    assert patterns[0] == "*"
    return {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}


def test_the_image_is_built_of_files_that_are_there() -> None:
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")]
    files = {file for each in copied for file in each}
    assert files == image_files()
    assert all((ROOT / file).exists() for file in files)
    stages = {rest.split()[-1] for name, rest in instructions() if name == "FROM" and " AS " in rest}
    assert {found for _, rest in instructions() for found in re.findall(r"^--from=(\w+)", rest)} == stages
    constraints = {found for _, rest in instructions() for found in re.findall(r"--constraint (\S+)", rest)}
    assert constraints <= files and constraints
    readme = re.search(r'^readme = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert readme is not None and readme[1] in files


def test_the_image_runs_the_service_and_asks_after_its_health() -> None:
    said = understood(exec_form("CMD"))
    assert exec_form("ENTRYPOINT") == ["headgate"]
    (exposed,) = [rest for name, rest in instructions() if name == "EXPOSE"]
    assert int(exposed) == said["port"]
    (health,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    assert f"http://127.0.0.1:{said['port']}{ALIVE}" in health
    (user,) = [rest for name, rest in instructions() if name == "USER"]
    assert user.split(":")[0] not in ("0", "root")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is what checks units, and it is not installed; other tests here read what the unit says",
)
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shlex.split(unit()["Service"]["ExecStart"])[0]
    copy = tmp_path / UNIT.name
    # The program is not installed where tests run.
    copy.write_text(UNIT.read_text().replace(program, sys.executable))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_the_unit_runs_the_service_and_stops_it_in_order() -> None:
    service = unit()["Service"]
    said = understood(shlex.split(service["ExecStart"])[1:])
    assert said["host"] == "127.0.0.1"
    assert service["User"] not in ("", "root")
    # Java would be gone before the warehouse is closed.
    assert service["KillMode"] == "mixed"
    assert "MemoryDenyWriteExecute" not in service
    assert Path(service["EnvironmentFile"]).parent == said["project"]
    variables = re.findall(r"^(\w+)=", (DEPLOY / "systemd" / "headgate.env").read_text(), re.MULTILINE)
    assert variables == ["SHOP_DSN", TOKEN]


def commands(line: str) -> Iterator[list[str]]:
    """The arguments of headgate in a line of a shell, whatever starts it; other things have its name as well."""
    words = shlex.split(line, comments=True)
    for place, (word, following) in enumerate(pairwise([*words, ""])):
        is_program = word.endswith("/bin/headgate") or (word == "headgate" and place == 0)
        if is_program or (word == "headgate" and following in COMMANDS):
            yield words[place + 1 :]


def test_commands_of_the_guide_are_real() -> None:
    text = OPERATIONS.read_text()
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    shell = [line for kind, block in blocks if not kind for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [*shell, *re.findall(r"`(headgate [a-z][^`]*)`", prose)]
    found = [arguments for line in lines for arguments in commands(line)]
    assert {arguments[0] for arguments in found} >= {
        "backup",
        "restore",
        "status",
        "check",
        "refresh",
        "reset",
        "resume",
    }
    for arguments in found:
        # Values may be of the reader's machine, and prose may leave them out.
        with suppress(click.BadParameter):
            understood(arguments)


def test_files_that_the_guide_names_are_there() -> None:
    named = set(re.findall(r"deploy/[\w./-]*\w", OPERATIONS.read_text()))
    assert len(named) > 5
    assert [file for file in named if not (ROOT / file).exists()] == []
