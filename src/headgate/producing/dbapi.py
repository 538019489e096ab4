"""What PEP 249 asks of the module: its attributes, its errors, and the constructors and kinds of values.

The errors are headgate's own too: each has `what`, `where` and a `hint`. An error of the warehouse reaches a producer as the
fitting one of these, with the same words; the original is its cause.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from headgate.errors import (
    ConfigError,
    CorruptWarehouse,
    EnvironmentProblem,
    Fenced,
    FlowError,
    HeadgateError,
    TransactionError,
    TransientError,
    UnknownTable,
    WarehouseBusy,
)

apilevel = "2.0"
threadsafety = 1
paramstyle = "pyformat"


class Warning(Exception):
    """Something to know about; headgate raises none."""


class Error(HeadgateError):
    """Base of all errors of a producer's connection."""


class InterfaceError(Error):
    """The connection itself is misused: it is closed, or there is no result to fetch."""


class DatabaseError(Error):
    """An error of the warehouse."""


class DataError(DatabaseError):
    """A value does not fit its column."""


class OperationalError(DatabaseError):
    """The warehouse could not do it now: someone else has the table, the disk is full, the process is gone."""


class IntegrityError(DatabaseError):
    """A row breaks a constraint."""


class UniqueViolation(IntegrityError):
    """The row's key exists already."""

    sqlstate = "23505"


class NotNullViolation(IntegrityError):
    """A column that must have a value has none."""

    sqlstate = "23502"


class InternalError(DatabaseError):
    """Something is wrong with the warehouse's own state."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: its syntax, a name, the number of parameters."""


class NotSupportedError(DatabaseError):
    """A producer's connection does not do this."""


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[DatabaseError]], ...] = (
    ((TransactionError,), DataError),
    ((CorruptWarehouse,), InternalError),
    ((UnknownTable, FlowError, ConfigError, AnalysisException), ProgrammingError),
    ((TransientError, WarehouseBusy, Fenced, EnvironmentProblem, OSError), OperationalError),
)


@contextmanager
def errors_of_pep_249(*, otherwise: type[DatabaseError] = OperationalError) -> Iterator[None]:
    """Turns the warehouse's errors into those of this module; `otherwise` is for those of no particular kind."""
    try:
        yield
    except Error:
        raise
    except (HeadgateError, PySparkException, OSError) as error:
        raise pep_249(error, otherwise) from error


def pep_249(error: Exception, otherwise: type[DatabaseError] = OperationalError) -> DatabaseError:
    """The fitting error of this module, with the same words."""
    kind = next((wanted for given, wanted in _KINDS if isinstance(error, given)), otherwise)
    if isinstance(error, HeadgateError):
        return kind(error.what, where=error.where, hint=error.advice)
    return kind(str(error))


class TypeObject:
    """A kind of column: equal to the type codes of a cursor's description that belong to it."""

    def __init__(self, name: str, *codes: str) -> None:
        self._name = name
        self._codes = frozenset(codes)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other in self._codes)

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return self._name


STRING = TypeObject("STRING", "string")
BINARY = TypeObject("BINARY", "binary")
NUMBER = TypeObject("NUMBER", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean")
DATETIME = TypeObject("DATETIME", "date", "timestamp", "timestamp_ntz")
ROWID = TypeObject("ROWID")

Description = tuple[str, str, None, None, int | None, int | None, bool | None]

_CODES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def described(field: pa.Field) -> Description:
    """A column of a result: its name, its type's name in Spark, precision and scale of a decimal, whether it can be NULL."""
    kind = field.type
    if pa.types.is_decimal(kind):
        return field.name, "decimal", None, None, kind.precision, kind.scale, field.nullable
    if pa.types.is_timestamp(kind):
        return field.name, "timestamp_ntz" if kind.tz is None else "timestamp", None, None, None, None, field.nullable
    return field.name, _CODES.get(kind, str(kind)), None, None, None, None, field.nullable


Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 PEP 249 names it so
    """The local date of a time in seconds since 1970."""
    return dt.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 PEP 249 names it so
    """The local time of day of a time in seconds since 1970."""
    return dt.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802 PEP 249 names it so
    """The instant of a time in seconds since 1970."""
    return dt.datetime.fromtimestamp(ticks, dt.UTC)
