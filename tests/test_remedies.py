"""What an error says is to be done, in the words of whoever reads it, and never in those of somebody else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from headgate.cli.main import COMMANDS
from headgate.client import Client
from headgate.errors import DefiniteError, MultipleProblems, raise_all
from headgate.remedies import SURFACES, Surface, in_words_of, speak, spoken
from headgate.scheduling.tuning import Tuning
from headgate.service.problems import in_words_for

SOURCES = Path(headgate.__file__).parent
CALL = re.compile(r"\b(warehouse|client)\.[a-z_.]+\(|\bheadgate\.[a-z_]+\(|takeover=")
COMMAND = re.compile(r"(?P<before>.?)\bheadgate (?P<command>[a-z]+)(?P<rest>[^`]*`)?")
ONE_TABLE = "then `headgate refresh --table shop_db.orders`"


@pytest.fixture
def speaking() -> Iterator[None]:
    before = spoken()
    yield
    speak(before)


@pytest.mark.parametrize(
    ("surface", "said"),
    [
        ("command-line", "then `headgate refresh --table shop_db.orders`"),
        ("python", "then `warehouse.refresh(table='shop_db.orders')`"),
        ("client", "then `client.refresh(table='shop_db.orders')`"),
        ("http", 'then `POST /v1/refresh {"table": "shop_db.orders"}`'),
    ],
)
def test_each_surface_reads_its_own_words(surface: Surface, said: str, speaking: None) -> None:
    assert in_words_of(surface, ONE_TABLE) == said
    error = DefiniteError("it stopped", hint=ONE_TABLE)
    speak(surface)
    assert error.hint == said and str(error) == f"it stopped ({said})"
    # An error that takes the hint over is told in the same words.
    assert DefiniteError("it stopped", hint=error.advice).hint == said


@pytest.mark.parametrize(
    ("command", "python", "http"),
    [
        ("headgate refresh --full", "warehouse.refresh(full=True)", 'POST /v1/refresh {"full": true}'),
        ("headgate resume", "warehouse.resume()", "POST /v1/resume"),
        ("headgate apply", "warehouse.apply()", "POST /v1/apply"),
        ("headgate backup /b", "warehouse.backup('/b')", 'POST /v1/backup {"folder": "/b"}'),
        (
            "headgate set retention.jobs 9",
            "warehouse.tuning.change('retention.jobs', '9')",
            'PATCH /v1/settings {"name": "retention.jobs", "value": "9"}',
        ),
        # Only the command line has these.
        ("headgate run", "headgate run", "headgate run"),
        ("headgate restore /b", "headgate restore /b", "headgate restore /b"),
    ],
)
def test_commands_have_their_counterparts(command: str, python: str, http: str) -> None:
    assert in_words_of("python", f"`{command}`") == f"`{python}`"
    assert in_words_of("http", f"`{command}`") == f"`{http}`"


def test_the_counterparts_exist() -> None:
    for name in ("refresh", "resume", "apply", "backup", "explain"):
        assert hasattr(headgate.Warehouse, name) and hasattr(Client, name)
    assert hasattr(Tuning, "change") and hasattr(Client, "change")


def test_a_response_is_told_in_the_words_that_the_client_asks_for() -> None:
    status = {"failures": [{"what": "`headgate refresh`", "hint": ONE_TABLE}], "text": "`headgate resume`"}
    for surface in SURFACES:
        told = in_words_for({"headgate-surface": surface}, status)
        assert told["failures"] == [{"what": "`headgate refresh`", "hint": in_words_of(surface, ONE_TABLE)}]
        assert told["text"] == "`headgate resume`"
    assert in_words_for({}, status) == in_words_for({"headgate-surface": "no such"}, status)


def test_several_problems_are_one_error() -> None:
    one, other = DefiniteError("a", hint="do a"), DefiniteError("b")
    raise_all([])
    with pytest.raises(DefiniteError, match=r"^a \(do a\)$"):
        raise_all([one])
    with pytest.raises(MultipleProblems, match=r"^2 problems\n- a \(do a\)\n- b$") as raised:
        raise_all([one, other])
    assert raised.value.problems == (one, other)


def texts() -> Iterator[tuple[str, str]]:
    """Every text in the sources that someone may read, with its place; docstrings and the help of commands are not."""
    for file in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(file.read_text())
        silent = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
                silent |= {id(part) for part in node.values}
                yield f"{file.relative_to(SOURCES)}:{node.lineno}", "".join(map(str, parts))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
                yield f"{file.relative_to(SOURCES)}:{node.lineno}", node.value


def test_no_text_names_a_call_of_python() -> None:
    """A program reads its calls because commands are put into its words; written out, others would read them, too."""
    # `remedies` makes the calls; what `init` writes is a program.
    found = [f"{place}: {text}" for place, text in texts() if CALL.search(text) and "starter.py" not in place]
    assert not [each for each in found if not each.startswith("remedies.py")]


def test_every_command_in_a_text_is_there_and_marked() -> None:
    """Only what stands between backticks is put into the words of others."""
    for place, text in texts():
        for named in COMMAND.finditer(text):
            if named["command"] in COMMANDS and not place.startswith("cli/"):
                whole = named["before"] == "`" and named["rest"] is not None
                # Sessions at a source are named after what opened them.
                assert whole or text.startswith("headgate snapshot"), f"{place}: {text}"
