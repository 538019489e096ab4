"""What the shell offers while a query is typed: words of SQL, tables, and columns of the tables that the query names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

Tables = Mapping[str, Sequence[str]]
"""Columns by the full names of tables."""

_SQL = """
SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT RIGHT FULL INNER CROSS SEMI ANTI ON USING AS AND OR NOT IN EXISTS BETWEEN LIKE IS
NULL CASE WHEN THEN ELSE END DISTINCT UNION ALL INTERSECT EXCEPT WITH OVER PARTITION ASC DESC CAST COUNT SUM AVG MIN MAX COALESCE CURRENCY
BOUND ANY SEC HOUR DAY DEADLINE STALE SERVE WAIT FAIL SET RESET max_staleness deadline when_stale SHOW
TABLES FLOWS DESCRIBE EXTENDED EXPLAIN
"""
KEYWORDS = tuple(_SQL.split())
COMMANDS = ("\\d", "\\receipt", "\\?", "\\q")
_TYPED = re.compile(r"[\w.]*\Z|\\\w*\Z")
_WORDS = re.compile(r"\w[\w.]*")


class SqlCompleter(Completer):
    """Asks for the tables once, when they are first needed."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        found = _TYPED.search(document.text_before_cursor)
        typed = "" if found is None else found[0]
        if not typed:
            return
        last = typed.rpartition(".")[2]
        for word, kind in self._offers(typed, document.text):
            if word.lower().startswith(last.lower()) and word.lower() != last.lower():
                yield Completion(word, start_position=-len(last), display_meta=kind)

    def _offers(self, typed: str, text: str) -> Iterator[tuple[str, str]]:
        if typed.startswith("\\"):
            yield from ((command, "") for command in COMMANDS)
            return
        tables = self._tables()
        before = typed.rpartition(".")[0].lower()
        if before:
            # A source's tables, a table's columns; what is neither is taken for another name of a table in the query.
            inside = [name[len(before) + 1 :] for name in tables if name.lower().startswith(f"{before}.")]
            named = [columns for name, columns in tables.items() if name.lower() in (before, before.split(".")[-1])]
            columns = named or ([] if inside else _named_tables(tables, text))
            yield from ((name, "table") for name in inside)
        else:
            columns = _named_tables(tables, text)
            sources = dict.fromkeys(name.partition(".")[0] for name in tables if "." in name)
            yield from ((name, "source") for name in sources)
            yield from ((name, "table") for name in tables)
        yield from ((name, "column") for name in dict.fromkeys(name for each in columns for name in each))
        if not before:
            yield from ((word, "") for word in KEYWORDS)


def _named_tables(tables: Tables, text: str) -> list[Sequence[str]]:
    """The columns of the tables that the query names; of all, while it names none."""
    words = {word.lower() for word in _WORDS.findall(text)}
    return [columns for name, columns in tables.items() if name.lower() in words] or list(tables.values())
