"""From captured events to weighted changes: the replica stage of a source table.

An event has what its capture method delivers: a new image, perhaps without the values an update left unchanged, or a
key that is gone. The old image is the key's previous event in the batch, else the replica's row:

    replica row ── event ── event ── event          (per key, by position and sequence)
        −old        +new −old  …                    one pair per transaction that touched the key
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.dataflow.relation import SIGNS, column_list, hidden_number, quoted
from headgate.delta.changes import COMMIT_AT, JOB, POSITION, WEIGHT, JobId
from headgate.delta.events import DELETE, OBSERVED, OP, SEQUENCE, TRUNCATE, UNCHANGED, UPSERT

TRANSACTION_AT = "__transaction_at"

_ORDER = f"{POSITION}, {SEQUENCE}"


@dataclass(frozen=True, slots=True)
class Kinds:
    """What events are besides upserts of whole rows and deletes: some leave values out, truncate, or were observed."""

    partial: bool = False
    truncated: bool = False
    observed: bool = False
    distinct: bool = False
    """Whether no key has two events, as far as is known."""


def transaction_changes(
    columns: tuple[str, ...],
    key: tuple[str, ...],
    events: str,
    old: str | None,
    kinds: Kinds,
) -> str:
    """The query of changes per transaction: columns, `__commit_at`, position, transaction time, job, weight.

    `events` and `old` can stand behind FROM; `old` holds the replica's rows of (at least) the events' keys.
    """
    last = _last_events(columns, key, events, old, kinds, POSITION)
    return _steps(columns, key, last, (POSITION, TRANSACTION_AT, JOB))


def job_changes(
    columns: tuple[str, ...],
    key: tuple[str, ...],
    events: str,
    old: str | None,
    kinds: Kinds,
    *,
    job: JobId | None,
) -> str:
    """The query of changes per job: columns, `__commit_at`, job, weight. `job` is that of all events, if they are of one.

    `old` holds the replica's rows of exactly the events' keys. In one job these go and the last images come: which replaces
    which is nobody's question, unless an event's own image depends on what was there.
    """
    if job is None or (old is not None and (kinds.partial or kinds.truncated or kinds.observed)):
        return _steps(columns, key, _last_events(columns, key, events, old, kinds, JOB), (JOB,))
    images = f"{column_list((*columns, COMMIT_AT))}, {hidden_number(job, COMMIT_AT)} AS {JOB}"
    events = f"(SELECT * EXCEPT ({JOB}), 0L AS {JOB} FROM {events})"
    last = _last_events(columns, key, events, None, kinds, JOB)
    came = f"SELECT {images}, 1L AS {WEIGHT} FROM {last} WHERE {OP} <> {DELETE}"
    return came if old is None else f"SELECT {images}, -1L AS {WEIGHT} FROM {old} UNION ALL {came}"


def _last_events(
    columns: tuple[str, ...],
    key: tuple[str, ...],
    events: str,
    old: str | None,
    kinds: Kinds,
    moment: str,
) -> str:
    """The last event of each key in each transaction or job, and the rows from before as events at position -1."""
    images = column_list((*columns, COMMIT_AT))
    known = (
        f"SELECT {images}, {UPSERT} AS {OP}, -1L AS {POSITION}, 0L AS {SEQUENCE},"
        f" CAST(NULL AS TIMESTAMP) AS {TRANSACTION_AT}, 0L AS {JOB}, CAST(array() AS ARRAY<STRING>) AS {UNCHANGED} FROM {old}"
    )
    arrived = (
        f"SELECT {images}, {OP}, {POSITION}, {SEQUENCE}, {COMMIT_AT} AS {TRANSACTION_AT}, {JOB}, {UNCHANGED}"
        f" FROM {events} WHERE {OP} <> {TRUNCATE}"
    )
    parts = [arrived] if old is None else [known, arrived]
    if kinds.truncated:
        parts.append(_truncations(columns, key, events, old))
    every = f"({' UNION ALL '.join(parts)})"
    if kinds.partial:
        every = _completed(columns, key, every)
    # A truncation deletes keys that have an event.
    distinct = kinds.distinct and not kinds.truncated
    if kinds.observed:
        every = _that_differ(columns, column_list(key), every if distinct else _last_of(key, every, POSITION))
    return every if distinct else _last_of(key, every, moment)


def _last_of(key: tuple[str, ...], events: str, moment: str) -> str:
    # By the key alone, so that all windows of a key take one exchange and one sort.
    after = f"LEAD({moment}) OVER (PARTITION BY {column_list(key)} ORDER BY {_ORDER})"
    return (
        f"(SELECT * EXCEPT (__after) FROM (SELECT *, {after} AS __after FROM {events}) WHERE NOT {moment} <=> __after)"
    )


def _steps(columns: tuple[str, ...], key: tuple[str, ...], events: str, marks: tuple[str, ...]) -> str:
    """Each event that arrived as the image before it that goes and its own that comes."""
    image = f"IF({OP} <> {DELETE}, struct({column_list((*columns, COMMIT_AT))}), NULL)"
    kept = ", ".join(marks)
    chained = (
        f"(SELECT {kept}, {POSITION} AS __place, {image} AS __new,"
        f" LAG({image}) OVER (PARTITION BY {column_list(key)} ORDER BY {_ORDER}) AS __old FROM {events})"
    )
    values = ", ".join(f"__image.{quoted(name)} AS {quoted(name)}" for name in (*columns, COMMIT_AT))
    return (
        f"SELECT {values}, {kept}, {WEIGHT} FROM"
        f" (SELECT {kept}, __sign AS {WEIGHT}, IF(__sign > 0, __new, __old) AS __image"
        f" FROM {chained} {SIGNS} WHERE __place >= 0)"
        f" WHERE __image IS NOT NULL"
    )


def _that_differ(columns: tuple[str, ...], keys: str, events: str) -> str:
    """Without the observed rows that are as the key's event before left it."""
    image = f"IF({OP} <> {DELETE}, struct({column_list(columns)}), NULL)"
    before = f"LAG({image}) OVER (PARTITION BY {keys} ORDER BY {_ORDER})"
    compared = f"SELECT *, {OP} = {OBSERVED} AND {image} <=> {before} AS __same FROM {events}"
    return f"(SELECT * EXCEPT (__same) FROM ({compared}) WHERE NOT __same)"


def _truncations(columns: tuple[str, ...], key: tuple[str, ...], events: str, old: str | None) -> str:
    """A delete of every key that is or may be there when the table is emptied."""
    present = [f"SELECT {column_list(key)}, {POSITION} AS __since FROM {events} WHERE {OP} IN ({UPSERT}, {OBSERVED})"]
    if old is not None:
        present.append(f"SELECT {column_list(key)}, -1L AS __since FROM {old}")
    images = ", ".join(
        f"k.{quoted(name)}" if name in key else f"IF(false, t.{quoted(name)}, NULL) AS {quoted(name)}"
        for name in columns
    )
    return (
        f"SELECT DISTINCT {images}, t.{COMMIT_AT}, {DELETE} AS {OP}, t.{POSITION}, t.{SEQUENCE},"
        f" t.{COMMIT_AT} AS {TRANSACTION_AT}, t.{JOB}, CAST(array() AS ARRAY<STRING>) AS {UNCHANGED}"
        f" FROM {events} t JOIN ({' UNION ALL '.join(present)}) k ON k.__since <= t.{POSITION}"
        f" WHERE t.{OP} = {TRUNCATE}"
    )


def _completed(columns: tuple[str, ...], key: tuple[str, ...], events: str) -> str:
    """Values that an event leaves out are those of the key's event before."""
    window = (
        f"OVER (PARTITION BY {column_list(key)} ORDER BY {_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    filled = []
    for name in columns:
        if name in key:
            filled.append(quoted(name))
            continue
        text = name.replace("\\", "\\\\").replace("'", "\\'")
        known = f"IF(array_contains({UNCHANGED}, '{text}'), NULL, struct({quoted(name)} AS v))"
        filled.append(f"LAST_VALUE({known}, true) {window}.v AS {quoted(name)}")
    rest = f"{COMMIT_AT}, {OP}, {POSITION}, {SEQUENCE}, {TRANSACTION_AT}, {JOB}, {UNCHANGED}"
    return f"(SELECT {', '.join(filled)}, {rest} FROM {events})"
