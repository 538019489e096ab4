"""Statements end at semicolons, but not at those inside texts, names and comments."""

from __future__ import annotations

import pytest

from headgate.cli.statements import is_finished, split


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT ';'; SELECT", ["SELECT ';'"], "SELECT"),
        ("SELECT 'it''s;', \"a;\\\";\", `b;` ;", ["SELECT 'it''s;', \"a;\\\";\", `b;`"], ""),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end"], ""),
        ("SELECT /* ; */ 1;", ["SELECT /* ; */ 1"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        (";;  ;", [], ""),
        ("-- only words;\n;", [], ""),
    ],
)
def test_text_is_cut_into_statements(text: str, statements: list[str], rest: str) -> None:
    assert split(text) == (statements, rest)


@pytest.mark.parametrize("text", ["", "  ", "\\d", "SELECT 1;", "SELECT 1; -- done", "SELECT 1;\n"])
def test_what_is_finished_is_run(text: str) -> None:
    assert is_finished(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1; SELECT", "SELECT ';", "SELECT /* ;"])
def test_what_is_not_finished_goes_on_in_the_next_line(text: str) -> None:
    assert not is_finished(text)
