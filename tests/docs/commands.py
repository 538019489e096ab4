"""Command lines as the documentation shows them, judged by click's own parser; nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import PurePath

import click

from headgate.cli.main import PROGRAM, cli
from tests.docs.markdown import Block

_ENDS = frozenset(("&&", "||", "|", ";", ";;", "&", ">", ">>", "<", "2>"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_WRAPPERS = (("sudo",), ("systemd-run",), ("docker", "exec"), ("kubectl", "exec"))
_FILES = (click.Path, click.File)


def command_lines(block: Block) -> Iterator[str]:
    """The lines that are typed: after `$ ` where that stands, else all."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    yield from lines


def calls(line: str) -> Iterator[list[str]]:
    """What is given to each `headgate` that the line starts."""
    if PROGRAM not in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _ENDS:
            words.append(word)
            continue
        found = _arguments(words)
        if found is not None:
            yield found
        words = []


def _arguments(words: Sequence[str]) -> list[str] | None:
    """What follows the program, started by itself or by another one."""
    started = list(dropwhile(_ASSIGNMENT.fullmatch, words))
    if any(tuple(started[: len(wrapper)]) == wrapper for wrapper in _WRAPPERS):
        # Not what options name so: a user, a namespace, a folder.
        places = [
            place
            for place, word in enumerate(started)
            if PurePath(word).name == PROGRAM and not _waits_for_a_value(started[place - 1])
        ]
        return started[places[-1] + 1 :] if places else None
    return started[1:] if started and PurePath(started[0]).name == PROGRAM else None


def _waits_for_a_value(word: str) -> bool:
    return word.startswith("-") and word != "--" and "=" not in word


def require_right(arguments: Sequence[str], *, is_whole: bool = True) -> None:
    """Raises click's UsageError for a command, option or value that there is not, or one that a whole command lacks."""
    command: click.Command = cli
    context, left = click.Context(cli, info_name=PROGRAM), list(arguments)
    if not left:
        raise click.UsageError("there is no command")
    while isinstance(command, click.Group):
        _, left, _ = command.make_parser(context).parse_args(args=left)
        if not left:
            return
        name, *left = left
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no command {name}")
        command, context = found, click.Context(found, parent=context, info_name=name)
    values, left, order = command.make_parser(context).parse_args(args=left)
    if left:
        raise click.UsageError(f"{context.info_name} does not take {left}")
    for parameter in order:
        value = values.get(parameter.name or "")
        if is_whole and parameter.required and not isinstance(value, (str, list, tuple)):
            raise click.UsageError(f"{context.info_name} lacks {parameter.name}")
        if isinstance(value, str) and not isinstance(parameter.type, _FILES):
            parameter.type_cast_value(context, value)
