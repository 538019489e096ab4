"""What to do, in the words of whoever reads it.

A hint names a command between backticks as the command line has it: `headgate refresh --table shop_db.orders`. A program
that opened the warehouse reads `warehouse.refresh(table='shop_db.orders')` instead, one that uses the client
`client.refresh(table='shop_db.orders')`, and one that speaks HTTP `POST /v1/refresh {"table": "shop_db.orders"}`. A command
that only the command line has (`headgate run`, `headgate restore`) is the same everywhere.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

Surface = Literal["command-line", "python", "client", "http"]
SURFACES: tuple[Surface, ...] = get_args(Surface)

_NAMED = re.compile(r"`headgate (?P<command>[a-z]+)(?P<arguments>(?: [^`]+)?)`")


@dataclass(frozen=True, slots=True)
class _Command:
    """A command of the command line that the other surfaces have, too."""

    python: str
    http: str
    arguments: tuple[str, ...] = ()
    """What its arguments are called there, in order; options keep their names."""


_COMMANDS: Mapping[str, _Command] = MappingProxyType(
    {
        "refresh": _Command("refresh", "POST /v1/refresh"),
        "resume": _Command("resume", "POST /v1/resume"),
        "apply": _Command("apply", "POST /v1/apply"),
        "backup": _Command("backup", "POST /v1/backup", ("folder",)),
        "explain": _Command("explain", "GET /v1/explain", ("flow",)),
        "subscribe": _Command("subscribe", "GET /v1/subscribe", ("table",)),
        "set": _Command("change", "PATCH /v1/settings", ("name", "value")),
    }
)


class _Speaking:
    """The surface of this process: one process is one command, or one program."""

    surface: Surface = "python"


def speak(surface: Surface) -> None:
    """Makes a surface that of this process, for errors that are shown here; the command line does so first of all."""
    _Speaking.surface = surface


def spoken() -> Surface:
    return _Speaking.surface


def in_words_of(surface: Surface, text: str) -> str:
    """A text with every command that it names in the words of a surface."""

    def said(named: re.Match[str]) -> str:
        command = _COMMANDS.get(named["command"])
        return named[0] if command is None else f"`{_said(command, named['arguments'], surface)}`"

    return text if surface == "command-line" else _NAMED.sub(said, text)


def _said(command: _Command, arguments: str, surface: Surface) -> str:
    words = iter(shlex.split(arguments))
    names = iter(command.arguments)
    given: dict[str, object] = {}
    for word in words:
        if not word.startswith("--"):
            given[next(names)] = word
        else:
            given[word[2:]] = True if word == "--full" else next(words)
    if surface == "http":
        return f"{command.http} {json.dumps(given, ensure_ascii=False)}" if given else command.http
    owner = "client" if surface == "client" else "warehouse"
    if command.python == "change" and surface == "python":
        owner += ".tuning"
    shown = ", ".join(
        repr(value) if name in command.arguments else f"{name}={value!r}" for name, value in given.items()
    )
    return f"{owner}.{command.python}({shown})"
