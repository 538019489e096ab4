r"""The interactive shell: statements end with a semicolon, Ctrl-C ends a query and not the shell.

Its history is kept in the user's state folder. Commands begin with a backslash; `\?` lists them.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from headgate.cli.exits import show_failure
from headgate.cli.query import write_reply
from headgate.cli.receipts import receipt_table
from headgate.cli.shell_words import SqlCompleter, Tables
from headgate.cli.statements import is_finished, split
from headgate.cli.table import table_lines
from headgate.cli.terminal import columns, show, terminal_width
from headgate.cli.waiting import waiting
from headgate.errors import DefiniteError, HeadgateError
from headgate.measures import duration_text
from headgate.receipts import Body, receipt_summary

if TYPE_CHECKING:
    from headgate.client import Client

HELP = (
    ("SELECT …;", "a query; CURRENCY BOUND 10 MIN, DEADLINE 5 SEC, WHEN STALE SERVE at its end say how fresh"),
    ("SET max_staleness = '10m';", "what queries get from now on that do not say; also deadline, when_stale; RESET"),
    ("SHOW TABLES; DESCRIBE t;", "what there is; also SHOW FLOWS, DESCRIBE EXTENDED, EXPLAIN SELECT …, EXPLAIN FLOW"),
    ("\\d [TABLE]", "all tables, or the columns of one"),
    ("\\receipt", "how fresh the last answer was, and what it cost"),
    ("\\q", "leave; so does Ctrl-D. Ctrl-C ends a query"),
)


class Shell:
    """One conversation."""

    def __init__(
        self,
        client: Client,
        *,
        history: History | None = None,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._client = client
        self._session = f"shell-{secrets.token_hex(8)}"
        self._known: dict[str, tuple[str, ...]] | None = None
        self._receipt: Body | None = None
        self._commands: dict[str, Callable[[Sequence[str]], None]] = {
            "\\d": self._describe,
            "\\receipt": self._show_receipt,
            "\\?": self._help,
            "\\h": self._help,
        }
        self._prompt: PromptSession[str] = PromptSession(
            "headgate> ",
            history=history if history is not None else user_history(),
            completer=SqlCompleter(self._tables),
            complete_while_typing=False,
            complete_in_thread=True,
            multiline=Condition(lambda: not is_finished(get_app().current_buffer.text)),
            prompt_continuation="      ... ",
            input=input,
            output=output,
        )

    def run(self) -> None:
        """Reads and answers until the user leaves."""
        click.echo("statements end with ;   \\? tells what else there is, \\q leaves", err=True)
        while True:
            try:
                typed = self._prompt.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if typed.strip() in ("\\q", "quit", "exit"):
                return
            self.answer(typed)

    def answer(self, typed: str) -> None:
        """Runs what was typed; a failure is told and the shell goes on."""
        try:
            if typed.lstrip().startswith("\\"):
                self._command(typed.split())
                return
            for statement in split(typed)[0]:
                self._query(statement)
        except KeyboardInterrupt:
            click.echo("cancelled", err=True)
        except HeadgateError as error:
            show_failure(error)

    def _query(self, text: str) -> None:
        began = time.monotonic()
        with waiting("waiting for the answer"):
            reply = self._client.sql(text, session=self._session)
        with reply:
            write_reply(reply, "table", sys.stdout.buffer)
        self._receipt = reply.receipt
        told = "" if reply.receipt is None else f": {receipt_summary(reply.receipt)}"
        click.echo(f"{duration_text(time.monotonic() - began)}{told}", err=True)

    def _command(self, words: Sequence[str]) -> None:
        command = self._commands.get(words[0])
        if command is None:
            raise DefiniteError(f"there is no command {words[0]}", hint="\\? lists those that there are")
        command(words[1:])

    def _describe(self, words: Sequence[str]) -> None:
        self._known = None
        tables = self._tables()
        if not words:
            _show(("table", "columns"), ((name, ", ".join(columns)) for name, columns in tables.items()))
            return
        wanted = words[0].rstrip(";").lower()
        name = next((name for name in tables if name.lower() == wanted), None)
        if name is None:
            raise DefiniteError(f"there is no table {words[0]}", hint=f"there are {', '.join(tables) or 'none'}")
        described = next(table for table in self._client.tables() if table["name"] == name)
        _show(("column", "type"), ((column["name"], column["type"]) for column in described["columns"]))

    def _show_receipt(self, _: Sequence[str]) -> None:
        if self._receipt is None:
            raise DefiniteError("there is no receipt yet", hint="run a query first")
        show(receipt_table(self._receipt))

    def _help(self, _: Sequence[str]) -> None:
        table = columns()
        for words, meaning in HELP:
            table.add_row(words, meaning)
        show(table)

    def _tables(self) -> Tables:
        if self._known is None:
            self._known = {
                table["name"]: tuple(column["name"] for column in table["columns"]) for table in self._client.tables()
            }
        return self._known


def user_history() -> History:
    """The history of former shells, readable by the user alone; none where it cannot be kept."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    file = state / "headgate" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _show(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    for line in table_lines(names, rows, width=terminal_width()):
        click.echo(line)
