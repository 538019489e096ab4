"""DECLARE, FETCH, MOVE and CLOSE: a connection's portals, by the names that clients give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headgate.gateway.answers import Done, Fetched, Followed, Result, RowCursor
from headgate.gateway.prepared import Begin, Portal, PreparedStatement
from headgate.gateway.problems import DUPLICATE_CURSOR, NO_TRANSACTION, UNKNOWN_CURSOR, WireProblem
from headgate.gateway.queries import Made, Work
from headgate.gateway.statements import Statement, split
from headgate.gateway.types import WireColumn
from headgate.gateway.words import Words

_BACKWARDS = ("PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD")
_FETCH_SECONDS = 1.0
"""How long FETCH waits for a subscription's next changes."""
_KINDS = (("BINARY",), ("INSENSITIVE",), ("ASENSITIVE",), ("NO", "SCROLL"), ("SCROLL",))


class Cursors:
    """Portals, of which those that were declared are cursors."""

    def __init__(self, begin: Begin, in_transaction: Callable[[], bool]) -> None:
        self._begin = begin
        self._in_transaction = in_transaction
        self.portals: dict[str, Portal] = {}

    def end_transaction(self) -> None:
        for name in [name for name, portal in self.portals.items() if not portal.has_hold]:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Forgets a portal, if there is one of this name, and ends the subscription that it may have."""
        found = self.portals.pop(name, None)
        if found is not None:
            found.close()

    def clear(self) -> None:
        for name in list(self.portals):
            self.drop(name)

    def find(self, name: str) -> RowCursor | Followed:
        found = self.portals.get(name)
        rows = None if found is None else found.result if isinstance(found.result, Followed) else found.cursor
        if rows is None:
            raise WireProblem(UNKNOWN_CURSOR, f'cursor "{name}" does not exist')
        return rows

    def declare(self, statement: Statement, values: Sequence[object]) -> Made:
        """DECLARE name [BINARY] [NO SCROLL] CURSOR [WITH HOLD] FOR query."""
        words = Words(statement, 1)
        name = words.name("a cursor's name")
        is_binary = False
        while not words.take("CURSOR"):
            is_binary = is_binary or words.at("BINARY")
            if not any(words.take(*kind) for kind in _KINDS):
                raise words.error("expected CURSOR")
        has_hold = words.take("WITH", "HOLD")
        words.take("WITHOUT", "HOLD")
        words.expect("FOR")
        if not (has_hold or self._in_transaction()):
            raise WireProblem(NO_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks")
        if name in self.portals:
            raise WireProblem(DUPLICATE_CURSOR, f'cursor "{name}" already exists')
        found = split(statement.since(words.index))
        if not found:
            raise words.error("expected a query")
        make = self._begin(found[0], values)

        def declare(work: Work) -> Done:
            work.is_streamed = True
            result = make(work) if callable(make) else make
            prepared = PreparedStatement(found[0].text, found[0])
            if isinstance(result, Followed):
                self.portals[name] = Portal(prepared, result=result, has_hold=has_hold)
                return Done("DECLARE CURSOR")
            cursor = RowCursor(replace(rows_of_result(result), is_binary=is_binary))
            self.portals[name] = Portal(prepared, result=cursor.fetched, cursor=cursor, has_hold=has_hold)
            return Done("DECLARE CURSOR")

        return declare

    def fetch(self, statement: Statement) -> Made:
        """FETCH, which gives rows, and MOVE, which passes over them."""
        count, name = parse_fetch(statement)
        cursor, is_move = self.find(name), statement.word(0) == "MOVE"

        def fetch(work: Work) -> Result:
            if isinstance(cursor, Followed):
                parts = list(_arrived(cursor, count))
                rows = sum(part.num_rows for part in parts)
                return Done(f"MOVE {rows}") if is_move else Fetched(cursor.columns, parts, rows, "FETCH")
            left = cursor.fetched.rows - cursor.taken
            rows = left if count is None else min(count, left)
            if is_move:
                for _ in cursor.parts(rows):
                    work.go_on()
                return Done(f"MOVE {rows}")
            return replace(cursor.fetched, batches=cursor.parts(rows), rows=rows, command="FETCH", receipt=None)

        return fetch

    def columns(self, statement: Statement) -> tuple[WireColumn, ...]:
        """Those that FETCH will have."""
        found = self.find(parse_fetch(statement)[1])
        return found.columns if isinstance(found, Followed) else found.fetched.columns

    def close(self, statement: Statement) -> Done:
        words = Words(statement, 1)
        if words.take("ALL"):
            self.clear()
            return Done("CLOSE CURSOR ALL")
        name = words.name()
        words.end()
        self.find(name)
        self.drop(name)
        return Done("CLOSE CURSOR")


def _arrived(followed: Followed, count: int | None) -> Iterator[pa.RecordBatch]:
    """The changes that have come, at most so many; the first of them are waited for, but not long."""
    wait, left = _FETCH_SECONDS, count
    while left is None or left > 0:
        batch = followed.next(wait, left)
        if batch is None:
            return
        yield batch
        wait, left = 0.0, None if left is None else left - batch.num_rows


def rows_of_result(result: Result) -> Fetched:
    """The rows of a statement that must have some."""
    if not isinstance(result, Fetched):
        raise WireProblem("42601", "expected a query")
    return result


def parse_fetch(statement: Statement) -> tuple[int | None, str]:
    """FETCH [NEXT | FORWARD] [count | ALL] [FROM | IN] name: how many rows, None for all, of which cursor."""
    words = Words(statement, 1)
    count: int | None = 1
    if not words.take("NEXT"):
        words.take("FORWARD")
        if words.take("ALL"):
            count = None
        elif words.token is not None and (words.token.text.isdigit() or words.at("-")):
            count = words.number()
        elif any(words.at(word) for word in _BACKWARDS):
            raise WireProblem("55000", "cursor can only scan forward", hint="declare another one to begin again")
    if count is not None and count < 0:
        raise WireProblem("55000", "cursor can only scan forward")
    words.take("FROM") or words.take("IN")
    name = words.name("a cursor's name")
    words.end()
    return count, name
