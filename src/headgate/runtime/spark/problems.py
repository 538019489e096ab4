"""What Spark says about a query or a flow, in the words of whoever wrote it.

Spark sees SQL in which tables and columns have other names. The part that it names is looked up in the text as it was written:
the same words, with any name where a name was changed. What Spark refuses before it runs, it tells by its place.
"""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException, PySparkException

from headgate.dataflow.flow import Flow, MaterializedView
from headgate.errors import Cancelled, DefiniteError, HeadgateError, Location, TransientError
from headgate.runtime.spark.retrying import is_transient
from headgate.sql.references import Edited
from headgate.warehouse.spark_errors import SparkError, SparkReason, reason_of, without_own_names

_TOKEN = re.compile(r"`[^`]*`|'(?:[^'\\]|\\.)*'|\w+|[^\w\s]")
_BETWEEN = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_NAME = r"(?:\w+|`[^`]+`)(?:\s*\.\s*(?:\w+|`[^`]+`))*"
_LONGEST = 200
_KIND = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_REST = re.compile(
    r"\s*(For more information|on search path \[|SQLSTATE: \w{5}|;\s*line \d+ pos \d+|\(line \d+, pos \d+\)|== SQL).*",
    re.DOTALL,
)
_LINE_AND_COLUMN = re.compile(r"line (\d+),? pos (\d+)")


def refusal(error: SparkError, query: Edited, where: Location) -> tuple[str, Location]:
    """Why Spark refuses a query before it runs, and where that stands in the text as it was written, which begins at `where`."""
    words = _REST.sub("", _KIND.sub("", reason_of(error).words)).rstrip(". ")
    offset = _offset(error, query.text)
    return words, where.within(query.source, 0 if offset is None else query.origin(offset))


def _offset(error: SparkError, text: str) -> int | None:
    contexts = error.getQueryContext() if isinstance(error, PySparkException) else ()
    starts = [context.startIndex() for context in contexts or ()]
    if starts and 0 <= starts[0] <= len(text):
        return starts[0]
    found = _LINE_AND_COLUMN.search(str(error))
    if found is None:
        return None
    lines = text.split("\n")[: int(found[1]) - 1]
    return min(sum(len(line) + 1 for line in lines) + int(found[2]), len(text))


def query_problem(error: SparkError, text: str, query: Edited | None = None) -> HeadgateError:
    """Why a query, as it was written, could not be answered; `query` is what Spark was given, if it was not run yet."""
    if query is not None and isinstance(error, AnalysisException):
        words, at = refusal(error, query, Location("query"))
        return DefiniteError(f"the query cannot be answered: {words}", where=at)
    reason = reason_of(error)
    if reason.condition is not None and reason.condition.startswith("SPARK_JOB_CANCELLED"):
        return Cancelled("the query was cancelled")
    if is_transient(error):
        return TransientError(f"the query could not be answered: {reason.words}", hint="ask again")
    if (too_large := _too_large(str(error), reason)) is not None:
        return too_large
    where, place = _place(reason.fragment, text, Location("query", 1))
    return DefiniteError(f"the query cannot be answered: {reason.words.rstrip('.')}{place}", where=where)


def _too_large(text: str, reason: SparkReason) -> DefiniteError | None:
    """Spark has no condition for these."""
    if reason.condition is not None:
        return None
    if "spark.driver.maxResultSize" in text:
        return DefiniteError(
            "the answer is larger than spark.driver.maxResultSize, which is what Spark hands over at once",
            hint="ask for fewer rows or columns, or raise the setting: spark: {spark.driver.maxResultSize: …}",
        )
    if "OutOfMemoryError" in text or "Cannot grow BufferHolder" in text:
        return DefiniteError(
            "the query needs more memory than Spark has",
            hint="ask for smaller values, or raise spark: {spark.driver.memory: …}",
        )
    return None


def flow_problem(error: BaseException, flow: Flow | None) -> tuple[str, Location | None]:
    """Why a flow failed, and where in its file."""
    reason = reason_of(error)
    if flow is None or not isinstance(flow, MaterializedView):
        return reason.words, None if flow is None else flow.where
    where, place = _place(reason.fragment, flow.text, flow.query_where)
    return f"{reason.words.rstrip('.')}{place}", where or flow.where


def _place(fragment: str | None, text: str, begins: Location) -> tuple[Location | None, str]:
    """Where in a text a part of it stands, and what there is to be read; the text may have other names than the part."""
    if fragment is None:
        return None, ""
    tokens = [
        _NAME if token.startswith("`") or "__" in token else re.escape(token) for token in _TOKEN.findall(fragment)
    ]
    found = list(re.finditer(_BETWEEN.join(tokens), text, re.IGNORECASE | re.DOTALL))
    if not found:
        shown = without_own_names(fragment)
        return None, f"; in {_short(shown)}" if shown == fragment else ""
    lines = {text.count("\n", 0, each.start()) for each in found}
    # The same words in several lines: any of them may be meant.
    where = Location(begins.file, (begins.line or 1) + lines.pop()) if len(lines) == 1 else None
    return where, f"; in {_short(found[0][0])}"


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _LONGEST else f"{one_line[: _LONGEST - 1]}…"
