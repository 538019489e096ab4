"""Every error that headgate raises on purpose.

A message says what happened, where, and what to do. `DefiniteError` is about the data or the project:
the same call fails again until someone changes something. `TransientError` may succeed when retried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headgate.remedies import in_words_of, spoken


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a project file or a query; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def within(self, text: str, offset: int) -> Location:
        """The place of a letter of a text that begins here."""
        line, begins = text.count("\n", 0, offset), text.rfind("\n", 0, offset) + 1
        column = offset - begins + (self.column or 1 if line == 0 else 1)
        return Location(self.file, (1 if self.line is None else self.line) + line, column)


class HeadgateError(Exception):
    """Base of all errors: `what` happened, `where`, and the `hint` that says what to do."""

    def __init__(self, what: str, *, where: Location | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.advice = hint
        """The hint as it was written, for an error that takes it over; `headgate.remedies` has its words."""
        super().__init__(what)

    @property
    def hint(self) -> str | None:
        """What to do, in the words of this process."""
        return None if self.advice is None else in_words_of(spoken(), self.advice)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where is not None else ""
        return f"{place}{self.what}{f' ({self.hint})' if self.hint else ''}"


class DefiniteError(HeadgateError):
    """About the data, the project or the machine: retrying does not help."""


class TransientError(HeadgateError):
    """May pass by itself: a retry can succeed."""


class ConfigError(DefiniteError):
    """The project file is wrong."""


class EnvironmentProblem(DefiniteError):
    """The machine lacks something: Java, a writable folder, space."""


class FlowError(DefiniteError):
    """A flow's SQL is wrong; `where` names the file and line."""


class FlowFailed(DefiniteError):
    """A flow failed on its data while a job ran."""


class UnknownTable(DefiniteError):
    """A query or flow names a table that does not exist."""


class SnapshotGone(DefiniteError):
    """The asked job is not retained, not complete, or never existed."""


class WarehouseBusy(DefiniteError):
    """Another process owns the warehouse."""


class Fenced(DefiniteError):
    """This process no longer owns the warehouse: another one took over."""


class CorruptWarehouse(DefiniteError):
    """A file of the warehouse is missing or damaged."""


class HistoryLost(DefiniteError):
    """Changes of a source are lost, at the source or here: its tables must be read afresh, or it must go on without them."""


class StorageFull(TransientError):
    """The disk that holds the warehouse is full."""


class TooStale(TransientError):
    """The answer could not be made fresh enough in time."""

    sqlstate = "40001"


class Cancelled(TransientError):
    """The query was cancelled while it waited."""

    sqlstate = "57014"


class SparkLost(TransientError):
    """Spark died, or does something that cannot be ended: it has to be started again."""


class TransactionError(DefiniteError):
    """A source transaction was misused or its rows do not fit the table."""


class ProducerBusy(DefiniteError):
    """Another producer writes to the table."""


class MultipleProblems(DefiniteError):
    """Several things are wrong: `problems` has each with what, where and hint."""

    problems: tuple[HeadgateError, ...] = ()

    def __init__(
        self,
        what: str,
        *,
        where: Location | None = None,
        hint: str | None = None,
        problems: Sequence[HeadgateError] = (),
    ) -> None:
        self.problems = tuple(problems)
        super().__init__(what, where=where, hint=hint)

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"- {problem}" for problem in self.problems)])


class Problems(list[HeadgateError]):
    """What was found wrong so far, so that a user hears of all of it at once."""

    @contextmanager
    def collected(self) -> Iterator[None]:
        """An error inside ends the block and is kept."""
        try:
            yield
        except MultipleProblems as error:
            self += error.problems
        except HeadgateError as error:
            self.append(error)


@contextmanager
def all_problems(given: Problems | None = None) -> Iterator[Problems]:
    """Collects what is wrong inside the block: among what is given, or else to be raised together at its end."""
    problems = Problems() if given is None else given
    yield problems
    if given is None:
        raise_all(problems)


def raise_all(problems: Sequence[BaseException]) -> None:
    """Raises a problem that is alone, or all of them as one; returns when there is none."""
    if len(problems) == 1 or not all(isinstance(problem, HeadgateError) for problem in problems):
        raise problems[0]
    if problems:
        told = [problem for problem in problems if isinstance(problem, HeadgateError)]
        raise MultipleProblems(f"{len(told)} problems", problems=told)
