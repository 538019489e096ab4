"""Bags: a table without a key holds equal rows as numbered copies, so that every stored row has a key.

Of a row with c copies at one job and d at the next, copies c+1 … d appear or d+1 … c go.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headgate.dataflow.relation import quoted
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
    value = f"array_sort(map_entries({column}))" if isinstance(kind, MapType) else column
    text = f"to_json({value}, map('ignoreNullFields', 'false'))"
    if any(name in kind.simpleString() for name in ("double", "float")):
        text = f"regexp_replace({text}, '-0[.]0(?![0-9E])', '0.0')"
    return text, f"{column} IS NULL"


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
