"""Slowly changing dimensions: a table with the last image per key (type 1) or one row per version (type 2).

The input is changes per transaction, never per job: every transaction that changes a tracked column makes a version.
Per key, the open version (if any) and the batch's transactions form a chain; each link is in the table from its own job
until the job of the next link, and closed there if the next link begins a version or deletes:

    open version ── t1 ── t2 ── t3 (delete)
    −v0 at job(t1), +v0 closed at t1's commit;  +v1 at job(t1), −v1 at job(t2), …

With a sequence column, type 1 leaves out links that are older than one before them; type 2 then is `sequenced`.
"""

from __future__ import annotations

from headgate.dataflow.relation import column_list, quoted
from headgate.dataflow.rules.replica import TRANSACTION_AT
from headgate.delta.changes import END_AT, JOB, POSITION, START_AT, SURROGATE_KEY, WEIGHT

_LINKS = "LATERAL VIEW explode(array(1, 2, 3)) __links AS __link"


def surrogate_key(keys: tuple[str, ...], position: str) -> str:
    """A positive number that is a function of the key and of the transaction that began the version."""
    return f"(xxhash64({column_list(keys)}, {position}) & 9223372036854775807L)"


def events(columns: tuple[str, ...], keys: tuple[str, ...], changes: str) -> str:
    """One row per key and transaction: the image afterwards, or NULL when the key is gone."""
    names = column_list(keys)
    image = f"struct({column_list(columns)})"
    return (
        f"SELECT {names}, {POSITION}, MAX({TRANSACTION_AT}) AS __moment, MAX({JOB}) AS {JOB},"
        f" MAX(IF({WEIGHT} > 0, {image}, NULL)) AS __image FROM {changes} GROUP BY {names}, {POSITION}"
    )


def type_1_changes(
    columns: tuple[str, ...], keys: tuple[str, ...], changes: str, state: str | None, sequence: str | None = None
) -> str:
    """Query of the target's changes; `state` holds its rows of (at least) the touched keys."""
    names = column_list(keys)
    links = f"(SELECT {names}, {POSITION}, {JOB}, __image FROM ({events(columns, keys, changes)})"
    if state is not None:
        links += f" UNION ALL SELECT {names}, -1L AS {POSITION}, 0L AS {JOB}, struct({column_list(columns)}) AS __image FROM {state}"
    links += ")"
    if sequence is not None:
        links = _in_sequence(keys, sequence, links)
    chained = f"(SELECT *, LEAD({JOB}) OVER (PARTITION BY {names} ORDER BY {POSITION}) AS __next FROM {links})"
    values = ", ".join(f"__image.{quoted(column)} AS {quoted(column)}" for column in columns)
    return _netted(
        f"SELECT {values}, IF(__link = 1, {JOB}, __next) AS {JOB}, IF(__link = 1, 1L, -1L) AS {WEIGHT}"
        f" FROM {chained} {_LINKS} WHERE __image IS NOT NULL"
        f" AND CASE __link WHEN 1 THEN {POSITION} >= 0 WHEN 2 THEN __next IS NOT NULL ELSE false END",
        columns,
    )


def _in_sequence(keys: tuple[str, ...], sequence: str, links: str) -> str:
    """The links that count: deletes, and images whose sequence value is not below one since the last delete."""
    names = column_list(keys)
    value = f"__image.{quoted(sequence)}"
    segments = (
        f"(SELECT *, COUNT(IF(__image IS NULL, 1, NULL)) OVER (PARTITION BY {names} ORDER BY {POSITION}) AS __segment"
        f" FROM {links})"
    )
    newest = f"(SELECT *, MAX({value}) OVER (PARTITION BY {names}, __segment ORDER BY {POSITION}) AS __newest FROM {segments})"
    return f"(SELECT * FROM {newest} WHERE __image IS NULL OR COALESCE({value} >= __newest, __newest IS NULL))"


def type_2_changes(
    columns: tuple[str, ...], keys: tuple[str, ...], tracked: tuple[str, ...], changes: str, state: str | None
) -> str:
    """Query of the target's changes; `state` holds the open versions of (at least) the touched keys."""
    names = column_list(keys)
    window = f"OVER (PARTITION BY {names} ORDER BY {POSITION})"
    links = (
        f"(SELECT {names}, {POSITION}, {JOB}, __moment, __image,"
        f" struct({surrogate_key(keys, POSITION)} AS sk, __moment AS start_at) AS __version"
        f" FROM ({events(columns, keys, changes)})"
    )
    if state is not None:
        links += (
            f" UNION ALL SELECT {names}, -1L AS {POSITION}, 0L AS {JOB}, CAST(NULL AS TIMESTAMP) AS __moment,"
            f" struct({column_list(columns)}) AS __image, struct({SURROGATE_KEY} AS sk, {START_AT} AS start_at) AS __version"
            f" FROM {state} WHERE {END_AT} IS NULL"
        )
    links += ")"
    tracked_image = "struct(" + ", ".join(f"__image.{quoted(column)} AS {quoted(column)}" for column in tracked) + ")"
    same = f"{tracked_image} <=> LAG({tracked_image}) {window}" if tracked else "true"
    begun = (
        f"(SELECT *, ({POSITION} < 0 OR (__image IS NOT NULL AND"
        f" (LAG(__image) {window} IS NULL OR NOT ({same})))) AS __begins FROM {links})"
    )
    chained = (
        f"(SELECT *, LAST_VALUE(IF(__begins, __version, NULL), true) {window} AS __valid,"
        f" LEAD({JOB}) {window} AS __next, LEAD(__moment) {window} AS __end,"
        f" LEAD(__begins OR __image IS NULL) {window} AS __closes FROM {begun})"
    )
    values = ", ".join(f"__image.{quoted(column)} AS {quoted(column)}" for column in columns)
    return _netted(
        f"SELECT {values}, __valid.sk AS {SURROGATE_KEY}, __valid.start_at AS {START_AT},"
        f" IF(__link = 3, __end, CAST(NULL AS TIMESTAMP)) AS {END_AT},"
        f" IF(__link = 1, {JOB}, __next) AS {JOB}, IF(__link = 2, -1L, 1L) AS {WEIGHT}"
        f" FROM {chained} {_LINKS} WHERE __image IS NOT NULL AND CASE __link WHEN 1 THEN {POSITION} >= 0"
        f" WHEN 2 THEN __next IS NOT NULL ELSE __next IS NOT NULL AND __closes END",
        (*columns, SURROGATE_KEY, START_AT, END_AT),
    )


def initial_versions(columns: tuple[str, ...], keys: tuple[str, ...], rows: str, beginning: str) -> str:
    """A type 2 table built from current rows: one version each, valid from the beginning of time."""
    return (
        f"SELECT {column_list(columns)}, {surrogate_key(keys, '0L')} AS {SURROGATE_KEY}, {beginning} AS {START_AT},"
        f" CAST(NULL AS TIMESTAMP) AS {END_AT} FROM {rows}"
    )


def _netted(text: str, columns: tuple[str, ...]) -> str:
    names = column_list((*columns, JOB))
    return f"SELECT {names}, SUM({WEIGHT}) AS {WEIGHT} FROM ({text}) GROUP BY {names} HAVING SUM({WEIGHT}) <> 0"
