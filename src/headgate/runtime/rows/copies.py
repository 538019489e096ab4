"""Bags: a table without a key holds equal rows as numbered copies, so that every stored row has a key.

Of a row with c copies at one job and d at the next, copies c+1 … d appear or d+1 … c go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headgate.dataflow.relation import column_list, quoted
from headgate.delta.changes import COPY, JOB, ROW_HASH, WEIGHT


def row_hash(schema: StructType) -> str:
    """The hash of a row with these columns, as Spark SQL.

    Spark's hash passes over NULLs and empty arrays, so that (1, NULL) and (NULL, 1) would be one row: each column also gives
    whether it is NULL, and nested ones their text.
    """
    return (
        f"xxhash64({', '.join(part for field in schema.fields for part in _parts(quoted(field.name), field.dataType))})"
    )


def _parts(column: str, kind: DataType) -> tuple[str, str]:
    if not isinstance(kind, ArrayType | MapType | StructType):
        return column, f"{column} IS NULL"
    return nested_text(column, kind), f"{column} IS NULL"


def nested_text(column: str, kind: DataType) -> str:
    """A nested value as a text, equal for equal values."""
    value = f"array_sort(map_entries({column}))" if isinstance(kind, MapType) else column
    text = f"to_json({value}, map('ignoreNullFields', 'false'))"
    if any(name in kind.simpleString() for name in ("double", "float")):
        text = f"regexp_replace({text}, '-0[.]0(?![0-9E])', '0.0')"
    return text


def numbered_text(names: Sequence[str], hashed: str, present: str | None) -> str:
    """What `numbered` does, as Spark SQL over relations that can stand behind FROM; `names` are the row's own columns."""
    columns = column_list((*names, ROW_HASH))
    running = f"SUM({WEIGHT}) OVER (PARTITION BY {ROW_HASH} ORDER BY {JOB})"
    if present is not None:
        counted = f"(SELECT {ROW_HASH} AS __there, COUNT(*) AS __n FROM {present} GROUP BY {ROW_HASH})"
        hashed = f"(SELECT * FROM {hashed} LEFT JOIN {counted} ON {ROW_HASH} = __there)"
        running = f"COALESCE(__n, 0) + {running}"
    counts = f"(SELECT {columns}, {JOB}, {WEIGHT}, CAST({running} AS INT) AS __after FROM {hashed})"
    counts = f"(SELECT *, CAST(__after - {WEIGHT} AS INT) AS __before FROM {counts})"
    each = "sequence(LEAST(__before, __after) + 1, GREATEST(__before, __after))"
    return (
        f"SELECT {columns}, __number AS {COPY}, {JOB}, IF({WEIGHT} > 0, 1L, -1L) AS {WEIGHT} FROM {counts}"
        f" LATERAL VIEW explode({each}) __numbers AS __number"
    )


def numbered(changes: pa.Table, present: pa.Table | None) -> pa.Table:
    """Weighted rows (with their hash) as changes of single copies.

    `present` has hash and copy of the copies that the table holds before the first of the jobs.
    """
    counts: dict[int, int] = {}
    if present is not None:
        for found in present.column(ROW_HASH).to_pylist():
            counts[found] = counts.get(found, 0) + 1
    hashes = changes.column(ROW_HASH).to_pylist()
    weights = changes.column(WEIGHT).to_pylist()
    order = np.argsort(changes.column(JOB).to_numpy(), kind="stable")
    rows: list[int] = []
    copies: list[int] = []
    signs: list[int] = []
    for index in order.tolist():
        before = counts.get(hashes[index], 0)
        after = before + weights[index]
        first, last, sign = (before, after, 1) if after > before else (after, before, -1)
        for copy in range(first + 1, last + 1):
            rows.append(index)
            copies.append(copy)
            signs.append(sign)
        counts[hashes[index]] = after
    taken = changes.take(pa.array(rows, pa.int64())).drop_columns([WEIGHT])
    taken = taken.append_column(COPY, pa.array(copies, pa.int32()))
    return taken.append_column(WEIGHT, pa.array(signs, pa.int64()))
