"""What commands draw, by rich: as wide as the terminal and in its colours; anywhere else plain lines, as long as they are."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_UNLIMITED = 1 << 16
_COLOURS = {"error": "red", "warning": "yellow", "hint": "yellow"}


def console(*, err: bool = False) -> Console:
    """Stdout or stderr. Texts are not looked through for markup, numbers or names of emoji: they are what users wrote."""
    stream = sys.stderr if err else sys.stdout
    # Who wants colours in a file or a pipe, with FORCE_COLOR, does not want its lines cut.
    return _console(stream, None if stream.isatty() else _UNLIMITED)


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is; None if it is something else."""
    return console().width if sys.stdout.isatty() else None


def show(drawn: RenderableType, *, err: bool = False) -> None:
    """Draws on stdout or stderr."""
    target = console(err=err)
    if target.is_terminal:
        target.print(drawn)
    else:
        click.echo("\n".join(drawn_lines(drawn)), err=err)


def tell(line: str, *, err: bool = False) -> None:
    """Writes a line, a title such as `error` in colour. The terminal breaks the line, so that it can be copied whole."""
    target = console(err=err)
    if target.is_terminal:
        target.print(titled(line), soft_wrap=True)
    else:
        click.echo(line, err=err)


def titled(line: str) -> Text:
    """The line, with its title in colour."""
    from rich.text import Text

    title, colon, rest = line.partition(":")
    return Text.assemble((title, _COLOURS.get(title.strip(), "")), colon, rest)


def columns(*titles: str) -> Table:
    """A table whose columns stand two blanks apart, without lines."""
    from rich.table import Table

    return Table(*titles, box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(titles), header_style="dim")


def drawn_lines(drawn: RenderableType, width: int = _UNLIMITED) -> Iterator[str]:
    """The lines that something is drawn in, without colours."""
    stream = io.StringIO()
    _console(stream, width, force_terminal=False).print(drawn)
    yield from (line.rstrip() for line in stream.getvalue().removesuffix("\n").split("\n"))


def _console(stream: TextIO, width: int | None, force_terminal: bool | None = None) -> Console:
    from rich.console import Console

    return Console(file=stream, width=width, force_terminal=force_terminal, highlight=False, markup=False, emoji=False)
