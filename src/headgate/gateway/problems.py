"""Errors as PostgreSQL's clients know them: a SQLSTATE, the place in the statement, and the hint."""

from __future__ import annotations

import logging
import re

from pygwire.messages import ErrorResponse, NoticeResponse

from headgate.errors import (
    Cancelled,
    DefiniteError,
    Fenced,
    FlowError,
    FlowFailed,
    HeadgateError,
    MultipleProblems,
    SnapshotGone,
    StorageFull,
    TooStale,
    TransactionError,
    TransientError,
    UnknownTable,
)
from headgate.producing import dbapi
from headgate.remedies import in_words_of
from headgate.service.problems import (
    NotPermitted,
    NotReady,
    QueryTimedOut,
    TooManyConnections,
    TooManyQueries,
    Unauthorized,
)

_LOGGER = logging.getLogger("headgate.gateway")

SYNTAX = "42601"
UNDEFINED_TABLE = "42P01"
UNDEFINED_COLUMN = "42703"
UNDEFINED_OBJECT = "42704"
UNDEFINED_FUNCTION = "42883"
DUPLICATE_TABLE = "42P07"
DEPENDENT_OBJECTS = "2BP01"
NOT_SUPPORTED = "0A000"
INVALID_PARAMETER = "22023"
INVALID_TEXT = "22P02"
INVALID_BINARY = "22P03"
UNKNOWN_STATEMENT = "26000"
UNKNOWN_CURSOR = "34000"
DUPLICATE_CURSOR = "42P03"
DUPLICATE_STATEMENT = "42P05"
PROTOCOL = "08P01"
FAILED_TRANSACTION = "25P02"
READ_ONLY = "25006"
NO_TRANSACTION = "25P01"
ACTIVE_TRANSACTION = "25001"
INTERNAL = "XX000"

_STATES: dict[type[BaseException], str] = {
    DefiniteError: "42000",
    UnknownTable: UNDEFINED_TABLE,
    FlowError: SYNTAX,
    FlowFailed: "55000",
    SnapshotGone: "72000",
    TransactionError: "22000",
    MultipleProblems: "42000",
    NotPermitted: "42501",
    Unauthorized: "28P01",
    TransientError: "57P03",
    TooStale: TooStale.sqlstate,
    Cancelled: Cancelled.sqlstate,
    QueryTimedOut: "57014",
    NotReady: "57P03",
    Fenced: "57P01",
    StorageFull: "53100",
    TooManyQueries: "53400",
    TooManyConnections: "53300",
    dbapi.DataError: "22000",
    dbapi.IntegrityError: "23000",
    dbapi.NotSupportedError: NOT_SUPPORTED,
    dbapi.OperationalError: "58000",
    dbapi.ProgrammingError: "42000",
}
_SPOKEN = (
    (re.compile(r"column, variable, or function parameter with name", re.IGNORECASE), UNDEFINED_COLUMN),
    (
        re.compile(r"\bthere is no function\b|\bcannot resolve routine\b|may not be called|function", re.IGNORECASE),
        UNDEFINED_FUNCTION,
    ),
    (re.compile(r"unknown column", re.IGNORECASE), UNDEFINED_COLUMN),
    (re.compile(r"non-aggregating expression|GROUP BY", re.IGNORECASE), "42803"),
    (re.compile(r"data type mismatch", re.IGNORECASE), "42804"),
    (re.compile(r"division by zero", re.IGNORECASE), "22012"),
    (re.compile(r"out of range|overflow", re.IGNORECASE), "22003"),
    (re.compile(r"cannot be cast|malformed|invalid (?:input|value)", re.IGNORECASE), INVALID_TEXT),
    (re.compile(r"cannot read this SQL|syntax error", re.IGNORECASE), SYNTAX),
)
_WORD = re.compile(r"[\w$]+")
_NAMED = re.compile(r"'([\w$]+)'")


class WireProblem(HeadgateError):
    """A statement's or client's mistake with the SQLSTATE that clients expect of it."""

    def __init__(self, state: str, what: str, *, hint: str | None = None, at: int | None = None) -> None:
        """`at` is the place in the statement, from 0."""
        super().__init__(what, hint=hint)
        self.sqlstate = state
        self.at = at


class FatalProblem(WireProblem):
    """After it the connection is closed."""


def state_of(error: BaseException) -> str:
    known = getattr(error, "sqlstate", None)
    if isinstance(known, str):
        return known
    if isinstance(error, MultipleProblems) and error.problems:
        return state_of(error.problems[0])
    if isinstance(error, DefiniteError) and type(error) in (DefiniteError, FlowError):
        for pattern, state in _SPOKEN:
            if pattern.search(error.what):
                return state
    return next((_STATES[kind] for kind in type(error).__mro__ if kind in _STATES), INTERNAL)


def error_message(error: BaseException, sent: str = "", ran: str = "", begins: int = 0) -> ErrorResponse:
    """What the client is told: `sent` is the client's text, in which the statement begins at a place, `ran` what became of it."""
    if not isinstance(error, HeadgateError):
        _LOGGER.error("a statement failed", exc_info=error)
        fields = {
            "S": "ERROR",
            "V": "ERROR",
            "C": INTERNAL,
            "M": "internal error",
            "H": "see the service log",
        }
        return ErrorResponse(fields)
    severity = "FATAL" if isinstance(error, FatalProblem) else "ERROR"
    what = error.what
    if isinstance(error, MultipleProblems) and error.problems:
        what = "; ".join(problem.what for problem in error.problems)
    fields = {"S": severity, "V": severity, "C": state_of(error), "M": what}
    if error.advice:
        fields["H"] = in_words_of("command-line", error.advice)
    at = error.at if isinstance(error, WireProblem) else _place(error, sent, ran)
    if at is not None:
        fields["P"] = str(begins + at + 1)
    return ErrorResponse(fields)


def notice(text: str, state: str = "00000") -> NoticeResponse:
    return NoticeResponse({"S": "NOTICE", "V": "NOTICE", "C": state, "M": text})


def _place(error: HeadgateError, sent: str, ran: str) -> int | None:
    """Where in the client's text the error is: the word that the error is at in the text that ran, if the client's has it once."""
    where = error.where
    if isinstance(error, FlowError) and (named := _NAMED.search(error.what)) is not None:
        return _found(named[1], sent)
    if where is None or where.file != "query" or where.line is None or where.column is None:
        return None
    lines = ran.split("\n")
    if where.line > len(lines):
        return None
    offset = sum(len(line) + 1 for line in lines[: where.line - 1]) + where.column - 1
    if sent == ran:
        return offset
    word = _WORD.search(ran, offset)
    if word is None or word.start() > offset + 1:
        return None
    return _found(word[0], sent)


def _found(word: str, sent: str) -> int | None:
    found = re.search(rf"(?<![\w$]){re.escape(word)}(?![\w$])", sent, re.IGNORECASE)
    return None if found is None else found.start()
