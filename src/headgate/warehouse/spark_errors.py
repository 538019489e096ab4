"""Why Spark failed: its condition, its words, and the part of the SQL that it names.

What reaches Python may be the last of several wrappers ("An error occurred while calling o21.getResult."): the reason is the
first of its causes in the JVM that has a condition of Spark's, such as DIVIDE_BY_ZERO.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SparkError = PySparkException | Py4JError

_DEEPEST = 20
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
# A warehouse's queries mean the same whoever asks: the mode is not theirs to change.
_ANSI = re.compile(r"\s*(If necessary s|S)et \"?spark\.sql\.ansi\.enabled\"? to \"?false\"?[^.]*\.")
_VIEW = re.compile(r"`?\bheadgate_view_\d+\b`?")
_OWN_COLUMN = re.compile(r"(, )?`__\w+`")
_QUALIFIED = re.compile(r"`([A-Za-z]\w*?)__(\w+)`")


@dataclass(frozen=True, slots=True)
class SparkReason:
    """The reason of a failure of Spark."""

    condition: str | None
    """Spark's name for what happened; None for what has none, such as a lost executor."""
    words: str
    """Spark's own, on one line, without names that only headgate knows."""
    fragment: str | None = None
    """The part of the SQL that failed, as Spark was given it."""


def reason_of(error: BaseException) -> SparkReason:
    """Why Spark failed; may be asked for any error."""
    inner: Any = None
    for cause in _causes(error):
        inner = cause
        condition = _condition(cause)
        if condition is not None:
            return SparkReason(condition, _plain(str(cause.getMessage())), _fragment(cause))
    if inner is not None:
        if inner.getClass().getSimpleName() == "StackOverflowError":
            return SparkReason(None, "it chains or nests more operators than Spark can follow; divide it")
        told = inner.getMessage()
        return SparkReason(None, _plain(str(told if told else inner.getClass().getSimpleName())))
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return SparkReason(condition, _plain(str(error).strip() or type(error).__name__))


def condition_of(error: BaseException) -> str | None:
    """Spark's name for what happened, if the error is one of Spark's and has one."""
    return reason_of(error).condition if isinstance(error, PySparkException | Py4JError) else None


def without_own_names(text: str) -> str:
    """A text of Spark without names that only headgate knows: of views, and of columns that it adds or renames."""
    text = re.sub(rf"{_VIEW.pattern}\.", "", text)
    text = _VIEW.sub("a table", text)
    return _OWN_COLUMN.sub("", _QUALIFIED.sub(r"`\1`.`\2`", text))


def _causes(error: BaseException) -> Iterator[Any]:
    """The errors in the JVM that are behind this one, the outermost first."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        cause = getattr(error, "_origin", None)
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()


def _condition(cause: Any) -> str | None:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or not is_instance_of(gateway, cause, "org.apache.spark.SparkThrowable"):
        return None
    found = gateway.jvm.PythonErrorUtils.getCondition(cause)
    return None if found is None else str(found)


def _fragment(cause: Any) -> str | None:
    from pyspark import SparkContext

    assert SparkContext._gateway is not None
    for context in SparkContext._gateway.jvm.PythonErrorUtils.getQueryContext(cause):
        if context.contextType().toString() == "SQL" and context.fragment():
            return str(context.fragment())
    return None


def _plain(text: str) -> str:
    told = re.split(r"\n\s*(?:==|JVM stacktrace|Driver stacktrace|\tat )|;\n", text, maxsplit=1)[0]
    told = _ANSI.sub("", _STATE.sub("", " ".join(told.split())))
    return without_own_names(told).strip()
