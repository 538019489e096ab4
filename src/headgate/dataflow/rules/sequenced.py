"""Versions ordered by a column of the source (`SEQUENCE BY`) rather than by arrival.

A key's versions are a function of its events in the order of their sequence values, whenever they arrived:

    events by value     10: a     15: b     20: b     30: gone          versions     a [10, 15)     b [15, 30)

A late event therefore changes versions on both sides of it, which the versions alone do not tell: the stage keeps every
event in a log. For each key and each job that brought it events, the whole history as of that job is made from the log and
the difference from the job before is emitted.

Of several events with one value only the last that arrived counts; a delete with the value of the row that it deletes
closes that row's version. A delete never lies before an event that arrived earlier, so it always ends the open version.
NULL is the smallest value.
"""

from __future__ import annotations

from headgate.dataflow.relation import SIGNS, column_list, quoted
from headgate.dataflow.rules.scd import events, surrogate_key
from headgate.delta.changes import END_AT, JOB, POSITION, START_AT, SURROGATE_KEY, WEIGHT

VALUE = "__value"
"""An event's place in the key's history."""
GONE = "__gone"
"""Whether the event is a delete; its other columns are NULL."""


def logged_events(
    columns: tuple[str, ...], keys: tuple[str, ...], sequence: str, changes: str, log: str | None, *, by_time: bool
) -> str:
    """Query of the events that arrived, as rows of the log with job and weight.

    `log` holds the earlier events of (at least) the touched keys. `by_time`: the sequence column is a timestamp.
    """
    names = column_list(keys)
    arrived = f"SELECT {names}, {POSITION}, {JOB}, __moment, __image, __image.{quoted(sequence)} AS __own"
    every = f"{arrived} FROM ({events(columns, keys, changes)})"
    if log is not None:
        every += (
            f" UNION ALL SELECT {names}, {POSITION}, 0L AS {JOB}, CAST(NULL AS TIMESTAMP) AS __moment,"
            f" struct({column_list(columns)}) AS __image, {VALUE} AS __own FROM {log}"
        )
    newest = f"MAX(__own) OVER (PARTITION BY {names} ORDER BY {POSITION})"
    end = f"GREATEST({newest}, __moment)" if by_time else newest
    values = ", ".join(
        quoted(column) if column in keys else f"__image.{quoted(column)} AS {quoted(column)}" for column in columns
    )
    return (
        f"SELECT {values}, {POSITION}, __value AS {VALUE}, __image IS NULL AS {GONE}, {JOB}, 1L AS {WEIGHT} FROM"
        f" (SELECT *, IF(__image IS NULL, {end}, __own) AS __value FROM ({every})) WHERE {JOB} > 0"
    )


def initial_events(columns: tuple[str, ...], sequence: str, rows: str) -> str:
    """The log of a table that is built from current rows."""
    return (
        f"SELECT {column_list(columns)}, 0L AS {POSITION}, {quoted(sequence)} AS {VALUE}, false AS {GONE} FROM {rows}"
    )


def history_changes(
    columns: tuple[str, ...], keys: tuple[str, ...], tracked: tuple[str, ...], arrived: str, log: str | None
) -> str:
    """Query of the target's changes; `arrived` holds the new events with their jobs, `log` those before."""
    names = column_list(keys)
    fields = column_list((*columns, POSITION, VALUE, GONE))
    every = f"SELECT {fields}, {JOB} FROM {arrived}"
    if log is not None:
        every += f" UNION ALL SELECT {fields}, 0L AS {JOB} FROM {log}"
    moments = (
        f"(SELECT {names}, __at, LEAD(__at) OVER (PARTITION BY {names} ORDER BY __at) AS __next FROM"
        f" (SELECT DISTINCT {names}, {JOB} AS __at FROM {arrived} UNION ALL SELECT DISTINCT {names}, 0L AS __at FROM {arrived}))"
    )
    same_key = " AND ".join(f"m.{quoted(key)} <=> e.{quoted(key)}" for key in keys)
    known = f"(SELECT e.*, m.__at, m.__next FROM {moments} m JOIN ({every}) e ON {same_key} AND e.{JOB} <= m.__at)"
    outputs = column_list((*columns, SURROGATE_KEY, START_AT, END_AT))
    job = "IF(__sign > 0, __at, __next)"
    return (
        f"SELECT {outputs}, {JOB}, SUM({WEIGHT}) AS {WEIGHT} FROM"
        f" (SELECT {outputs}, {job} AS {JOB}, __sign AS {WEIGHT} FROM"
        f" ({versions(columns, keys, tracked, known, ('__at', '__next'))}) {SIGNS}"
        f" WHERE IF(__sign > 0, __at > 0, __next IS NOT NULL)) GROUP BY {outputs}, {JOB} HAVING SUM({WEIGHT}) <> 0"
    )


def versions(
    columns: tuple[str, ...], keys: tuple[str, ...], tracked: tuple[str, ...], log: str, within: tuple[str, ...] = ()
) -> str:
    """Query of the versions that the events of a log make, within each combination of the `within` columns."""
    group = column_list((*keys, *within))
    at_value = f"PARTITION BY {group}, {VALUE}"
    ranked = (
        f"(SELECT *, ROW_NUMBER() OVER ({at_value} ORDER BY {POSITION} DESC) AS __rank,"
        f" FIRST_VALUE({GONE}) OVER ({at_value} ORDER BY {POSITION} DESC) AS __ends,"
        f" ROW_NUMBER() OVER ({at_value}, {GONE} ORDER BY {POSITION} DESC) AS __rank_of_kind FROM {log})"
    )
    timeline = f"(SELECT * FROM {ranked} WHERE __rank = 1 OR (__ends AND NOT {GONE} AND __rank_of_kind = 1))"
    window = f"OVER (PARTITION BY {group} ORDER BY {VALUE}, {POSITION})"
    content = f"struct({column_list(tracked)})"
    same = f"{content} <=> LAG({content}) {window}" if tracked else "true"
    begun = (
        f"(SELECT *, NOT {GONE} AND (COALESCE(LAG({GONE}) {window}, true) OR NOT ({same})) AS __begins FROM {timeline})"
    )
    chained = (
        f"(SELECT *, LAST_VALUE(IF(__begins, struct({VALUE} AS value), NULL), true) {window}.value AS {START_AT},"
        f" LEAD({VALUE}) {window} AS {END_AT}, LEAD(__begins OR {GONE}) {window} AS __closes FROM {begun})"
    )
    more = "".join(f", {column}" for column in within)
    return (
        f"SELECT {column_list(columns)}, {surrogate_key(keys, START_AT)} AS {SURROGATE_KEY}, {START_AT}, {END_AT}{more}"
        f" FROM {chained} WHERE NOT {GONE} AND COALESCE(__closes, true)"
    )
