"""The shell runs what ends with a semicolon, survives every failure, and completes what there is."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from headgate.cli.shell import Shell, user_history
from headgate.cli.shell_words import SqlCompleter
from headgate.client import connect
from tests.cli.canned import Canned, canned_service
from tests.waiting import PATIENCE

ENTER, CTRL_C, CTRL_D, TAB = "\r", "\x03", "\x04", "\t"


@pytest.fixture
def service() -> Iterator[Canned]:
    with canned_service() as started:
        yield started


def typed(service: Canned, *keys: str) -> InMemoryHistory:
    """Runs a shell with what is typed, to its end."""
    history = InMemoryHistory()
    with create_pipe_input() as pipe, connect(service.url, timeout=600) as client:
        for each in keys:
            pipe.send_text(each)
        Shell(client, history=history, input=pipe, output=DummyOutput()).run()
    return history


def asked(service: Canned) -> list[str]:
    return [each["sql"] for each in service.asked if "sql" in each]


def test_a_statement_ends_with_a_semicolon(service: Canned, capfd: pytest.CaptureFixture[str]) -> None:
    typed(service, f"SELECT *{ENTER}FROM revenue;{ENTER}\\q{ENTER}")
    assert asked(service) == ["SELECT *\nFROM revenue"]
    out, err = capfd.readouterr()
    assert "tea         3" in out
    assert "0 s stale, job 7, 3 changes processed" in err


def test_several_statements_of_one_line_share_a_session(service: Canned) -> None:
    typed(service, f"SET max_staleness = '10m'; SELECT ';' ;{ENTER}", CTRL_D)
    assert asked(service) == ["SET max_staleness = '10m'", "SELECT ';'"]
    assert len({each["session"] for each in service.asked}) == 1


def test_a_failure_does_not_end_the_shell(service: Canned, capfd: pytest.CaptureFixture[str]) -> None:
    service.failure = (400, {"kind": "DefiniteError", "what": "no such table", "hint": "there is revenue"})
    typed(service, f"SELECT 1;{ENTER}SELECT 2;{ENTER}\\nonsense{ENTER}", CTRL_D)
    assert asked(service) == ["SELECT 1", "SELECT 2"]
    err = capfd.readouterr().err
    assert err.count("error: no such table\nhint: there is revenue\n") == 2
    assert "there is no command \\nonsense" in err


def test_ctrl_c_drops_what_is_typed(service: Canned) -> None:
    typed(service, "SELECT 1", CTRL_C, f"SELECT 2;{ENTER}", CTRL_D)
    assert asked(service) == ["SELECT 2"]


def test_ctrl_c_cancels_the_query_and_not_the_shell(service: Canned, capfd: pytest.CaptureFixture[str]) -> None:
    service.delay = 600.0

    def interrupt() -> None:
        deadline = time.monotonic() + PATIENCE
        while not service.asked and time.monotonic() < deadline:
            time.sleep(0.01)
        service.delay = 0.0
        os.kill(os.getpid(), signal.SIGINT)

    with connect(service.url, timeout=600) as client:
        # The shell itself is not needed here: a terminal's Ctrl-C is a signal while a query runs.
        shell = Shell(client, history=InMemoryHistory(), output=DummyOutput())
        thread = threading.Thread(target=interrupt)
        thread.start()
        began = time.monotonic()
        shell.answer("SELECT 1;")
        thread.join()
        shell.answer("SELECT 2;")
    assert time.monotonic() - began < PATIENCE
    assert asked(service) == ["SELECT 1", "SELECT 2"]
    out, err = capfd.readouterr()
    assert "cancelled" in err
    assert out.count("(2 rows)") == 1


def test_commands_describe_tables_and_the_last_answer(service: Canned, capfd: pytest.CaptureFixture[str]) -> None:
    typed(
        service,
        f"\\receipt{ENTER}\\d{ENTER}\\d REVENUE{ENTER}\\d none{ENTER}SELECT 1;{ENTER}\\receipt{ENTER}\\?{ENTER}",
        CTRL_D,
    )
    out, err = capfd.readouterr()
    assert "there is no receipt yet" in err
    assert "shop.sales  id, price" in out
    assert "total   bigint" in out
    assert "there is no table none" in err
    assert "achieved  2026-11-15 17:00:00.000+00:00, 0 s stale on arrival: met" in out
    assert "\\receipt" in out


def test_what_was_typed_is_in_the_history(service: Canned) -> None:
    history = typed(service, f"SELECT 1;{ENTER}", CTRL_D)
    assert history.get_strings() == ["SELECT 1;"]


def test_tab_completes_while_typing(service: Canned) -> None:
    with create_pipe_input() as pipe, connect(service.url, timeout=600) as client:
        shell = Shell(client, history=InMemoryHistory(), input=pipe, output=DummyOutput())
        thread = threading.Thread(target=shell.run)
        thread.start()
        pipe.send_text(f"SELECT * FROM reven{TAB}")
        deadline = time.monotonic() + PATIENCE
        while shell._prompt.default_buffer.text != "SELECT * FROM revenue" and time.monotonic() < deadline:
            time.sleep(0.01)
        pipe.send_text(f";{ENTER}{CTRL_D}")
        thread.join(PATIENCE)
    assert asked(service) == ["SELECT * FROM revenue"]


TABLES = {"shop.sales": ("id", "price"), "shop.items": ("id", "name"), "revenue": ("item", "total")}


def _completions(completer: SqlCompleter, text: str) -> list[str]:
    return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("sel", ["SELECT"]),
        ("SELECT * FROM sh", ["shop", "shop.sales", "shop.items", "SHOW"]),
        ("SELECT * FROM shop.s", ["sales"]),
        ("SELECT shop.sales.p", ["price"]),
        ("SELECT revenue.to", ["total"]),
        ("SELECT s.pr", ["price"]),
        ("SELECT tot", ["total"]),
        ("\\rec", ["\\receipt"]),
        ("SELECT 1 CURR", ["CURRENCY"]),
        ("SELECT ", []),
    ],
)
def test_words_tables_and_columns_are_offered(text: str, offered: list[str]) -> None:
    assert _completions(SqlCompleter(lambda: TABLES), text) == offered


def test_columns_of_the_named_tables_only() -> None:
    completer = SqlCompleter(lambda: TABLES)
    text = "SELECT na FROM shop.items"
    found = completer.get_completions(Document(text, cursor_position=9), CompleteEvent())
    assert [each.text for each in found] == ["name"]
    text = "SELECT pri FROM shop.items"
    found = completer.get_completions(Document(text, cursor_position=10), CompleteEvent())
    assert [each.text for each in found] == []


def test_the_history_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    user_history().append_string("SELECT 1;")
    file = tmp_path / "headgate" / "history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(user_history().load_history_strings()) == ["SELECT 1;"]
