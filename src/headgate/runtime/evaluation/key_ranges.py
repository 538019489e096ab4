"""Where keys lie in their order, found by executors: few ranges, with which Spark skips row groups that hold none of the keys.

    keys   ..|||||||.................|.............||||||||||||..      ranges  [ ]   []   [  ]

Each of many equal parts between the lowest and the highest key tells its own lowest and highest. The driver gets these, and joins
neighbours between which no row group can lie: one range is left of keys that are scattered all over.
"""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql.types import DataType, DateType, IntegralType, TimestampType

from headgate.dataflow.relation import quoted
from headgate.runtime.tables.batch_views import BatchViews

_PARTS = 512
_MOST_RANGES = 32
"""Each is a comparison for every row that is read: of more, those join that lie closest."""


def within_ranges(views: BatchViews, keys: str, key: str, kind: DataType, column: str, groups: int) -> str | None:
    """A condition on a column of a table, of the same kind, that holds for every row with one of the keys; None for any row.

    The table has about so many row groups in the order of the column.
    """
    if isinstance(kind, IntegralType):
        number, literal = f"CAST({quoted(key)} AS BIGINT)", "{}L"
    elif isinstance(kind, DateType):
        number, literal = f"CAST(unix_date({quoted(key)}) AS BIGINT)", "date_from_unix_date({})"
    elif isinstance(kind, TimestampType):
        number, literal = f"unix_micros({quoted(key)})", "timestamp_micros({})"
    else:
        return None
    numbers = f"(SELECT {number} AS k FROM {keys})"
    ends = f"(SELECT MIN(k) AS low, MAX(k) AS high FROM {numbers})"
    part = f"CAST((CAST(k AS DOUBLE) - low) / (CAST(high AS DOUBLE) - low + 1) * {_PARTS} AS INT)"
    rows, _ = views.collect(f"SELECT MIN(k) AS low, MAX(k) AS high FROM {numbers} CROSS JOIN {ends} GROUP BY {part}")
    found = sorted(
        (low, high)
        for low, high in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
        if low is not None
    )
    parts = [f"{column} IS NULL"]
    for low, high in merged(found, groups):
        parts.append(f"{column} BETWEEN {literal.format(low)} AND {literal.format(high)}")
    return f"({' OR '.join(parts)})"


def merged(ranges: list[tuple[int, int]], groups: int) -> list[tuple[int, int]]:
    """Sorted ranges, those joined between which, as far as values lie evenly, there is no whole row group."""
    if not ranges:
        return []
    least = (ranges[-1][1] - ranges[0][0]) / max(1, groups)
    gaps = [(after[0] - before[1], place) for place, (before, after) in enumerate(pairwise(ranges), 1)]
    widest = sorted(gaps, reverse=True)[: _MOST_RANGES - 1]
    cuts = [0, *sorted(place for gap, place in widest if gap > least), len(ranges)]
    return [(ranges[start][0], ranges[end - 1][1]) for start, end in pairwise(cuts)]
