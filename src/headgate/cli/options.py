"""What many commands have in common: which project, which service, and whether the answer is for a program."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from headgate.errors import ConfigError

PROJECT_FILE = "headgate.yml"
TOKEN = "HEADGATE_TOKEN"

Function = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Place:
    """The project that a command is about, or the service that it names."""

    project: Path
    url: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def file(self) -> Path:
        """The project file, which must be there."""
        file = self.project / PROJECT_FILE if self.project.is_dir() else self.project
        if not file.is_file():
            raise ConfigError(
                f"there is no project file {file}",
                hint="`headgate init` makes one; --project names the folder of another",
            )
        return file


_project = click.option(
    "--project",
    type=click.Path(path_type=Path),
    default=".",
    envvar="HEADGATE_PROJECT",
    metavar="PATH",
    help="The project's folder or file; the current folder by default.",
)
_url = click.option(
    "--url",
    envvar="HEADGATE_URL",
    help=f"The service to ask in place of the project's own; its token is taken from {TOKEN}.",
)


def project_option(function: Function) -> Function:
    """`--project`; the command gets `place`."""

    @_project
    @functools.wraps(function)
    def placed(*, project: Path, **rest: object) -> object:
        return function(place=Place(project), **rest)

    return placed


def service_options(function: Function) -> Function:
    """`--project` and `--url`; the command gets `place`."""

    @_project
    @_url
    @functools.wraps(function)
    def placed(*, project: Path, url: str | None, **rest: object) -> object:
        return function(place=Place(project, url, os.environ.get(TOKEN) or None), **rest)

    return placed


json_option = click.option("--json", "as_json", is_flag=True, help="Write the answer as JSON.")
"""The command gets `as_json`."""


def write_json(value: object) -> None:
    """The answer for a program."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
