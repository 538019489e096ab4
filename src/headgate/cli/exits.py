"""How a command ends: its exit code, and the two lines that say what went wrong and what to do."""

from __future__ import annotations

import os
import traceback

import click

from headgate.cli.terminal import tell
from headgate.errors import HeadgateError, MultipleProblems

FAILED = 1
STALE = 3
UNREACHABLE = 4
RESTART = 75
"""EX_TEMPFAIL: of a worker, Spark is lost and another worker is to go on; of `headgate run`, its workers died too often."""
INTERRUPTED = 130

DEBUG = "HEADGATE_DEBUG"

# By name: the classes stand where they are raised, in modules that a quick command does not import.
_CODES = {
    "TooStale": STALE,
    "ServiceUnreachable": UNREACHABLE,
    "NotReady": UNREACHABLE,
    "TooManyQueries": UNREACHABLE,
    "TooManyConnections": UNREACHABLE,
    "WarehouseBusy": UNREACHABLE,
    "Fenced": UNREACHABLE,
    "SourceUnreachable": UNREACHABLE,
    "SourceBusy": UNREACHABLE,
    "NotLoaded": UNREACHABLE,
    "FolderUnreachable": UNREACHABLE,
}


def exit_code(error: BaseException) -> int:
    """The code that tells a script what kind of failure it was; of several problems, the first one's."""
    if isinstance(error, MultipleProblems) and error.problems:
        error = error.problems[0]
    return next((_CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _CODES), FAILED)


def failure_lines(error: BaseException) -> list[str]:
    """The error in words: what happened and where, and what to do."""
    if isinstance(error, MultipleProblems):
        return [f"error: {error.what}", *(line for problem in error.problems for line in failure_lines(problem))]
    if isinstance(error, HeadgateError):
        return error_lines(error.what, error.where, error.hint)
    if isinstance(error, OSError) and error.strerror:
        return error_lines(error.strerror, error.filename)
    return [
        f"error: {type(error).__name__}: {error}",
        f"hint: this is a mistake of headgate's own; {DEBUG}=1 shows where it comes from",
    ]


def error_lines(what: str, where: object = None, hint: str | None = None) -> list[str]:
    """What happened and where, and what to do if that is known."""
    return [f"error: {where}: {what}" if where else f"error: {what}", *([f"hint: {hint}"] if hint else [])]


def show_failure(error: BaseException) -> int:
    """Tells the user on stderr; gives the exit code."""
    if os.environ.get(DEBUG):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    for line in failure_lines(error):
        tell(line, err=True)
    return exit_code(error)
