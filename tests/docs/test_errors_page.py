"""docs/errors.md has every error that headgate can raise, with the exit code and the HTTP status that it really has."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib import import_module

import headgate
from headgate.cli.exits import exit_code
from headgate.errors import DefiniteError, HeadgateError, TransientError
from headgate.producing import dbapi
from headgate.service.problems import status_of
from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ABSTRACT = {DefiniteError, TransientError, dbapi.Error, dbapi.DatabaseError}


def kinds(base: type[HeadgateError] = HeadgateError) -> Iterator[type[HeadgateError]]:
    """Every error that any module defines."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def load_all() -> None:
    for module in pkgutil.walk_packages(headgate.__path__, "headgate."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


def _names_in(kind: type) -> set[str]:
    """What the module that a class says it is from really has."""
    return set(vars(sys.modules[kind.__module__]))


def rows() -> Iterator[tuple[list[str], str, str]]:
    """The errors of each row that has them, with exit code and status."""
    for row in re.findall(r"^\| (`.*) \|$", PAGE, re.MULTILINE):
        cells = row.split(" | ")
        if len(cells) == 5:
            yield re.findall(r"`(\w+)`", cells[0]), cells[3], cells[4]


def test_every_error_has_its_row_and_every_row_an_error() -> None:
    load_all()
    named = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+)", PAGE, re.MULTILINE))
    in_rows = {name for cell in named for name in re.findall(r"\w+", cell)}
    in_prose = set(re.findall(r"`(\w+)`", PAGE))
    known = {kind.__name__ for kind in kinds() if kind not in ABSTRACT and kind.__module__.startswith("headgate.")}
    assert known <= in_prose
    assert in_rows <= known | {"DefiniteError"}


def test_exit_codes_and_statuses_are_right() -> None:
    load_all()
    # The client makes classes of its own for errors of the service that it does not know.
    ours = [kind for kind in kinds() if not issubclass(kind, dbapi.Error) and kind.__name__ in _names_in(kind)]
    by_name = {kind.__name__: kind for kind in ours}
    seen = 0
    for names, code, statuses in rows():
        for name, status in zip(names, re.split(", ", statuses) if len(names) > 1 else [statuses], strict=True):
            error = by_name[name].__new__(by_name[name])
            assert (name, str(exit_code(error))) == (name, code)
            # The client alone raises what has no status.
            assert status == "–" or (name, str(status_of(error))) == (name, status)
            seen += 1
    assert seen > 25
