"""A set of keys as a filter of Arrow."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.dataset as ds

from headgate.ranges.key_set import KeySet


def key_expression(name: str, keys: KeySet) -> ds.Expression:
    """Whether the column of this name has one of the keys."""
    column = ds.field(name)
    parts = [column.is_null()] if keys.has_null else []
    for interval in keys.intervals:
        part = column.is_valid()
        if interval.low is not None:
            low = pa.scalar(interval.low.value)
            part = part & (column > low if interval.low.above else column >= low)
        if interval.high is not None:
            high = pa.scalar(interval.high.value)
            part = part & (column <= high if interval.high.above else column < high)
        parts.append(part)
    return reduce(ds.Expression.__or__, parts, ds.scalar(False))
