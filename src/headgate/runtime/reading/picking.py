"""Rows that a query only picks by values: read in the driver, from the overlay and the row groups that may hold them.

Types are Spark's, and so is what equals what: a whole number equals a column of whole numbers by value, a text equals a text of the
default collation byte by byte, NULL equals nothing. Whatever else a query compares is left to Spark, and so is what would be much to read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from headgate.delta.changes import JobId
from headgate.ranges.key_set import KeySet, any_of
from headgate.sql.names import folded
from headgate.sql.picks import Picks, Value
from headgate.warehouse.table_ranges import TableRanges

MOST_BYTES = 8 << 20
"""Of data files; above, executors read them."""
_WHOLE_NUMBERS: dict[type[DataType], pa.DataType] = {
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
}


def picked_rows(
    picks: Picks, table: TableRanges, job: JobId, shown: Sequence[str], hidden: Sequence[str]
) -> tuple[StructType, pa.Table] | None:
    """The picked rows and their columns; None where Spark is to read them, or to say what is wrong with the query."""
    schema = table.spec.schema
    names = {folded(name): name for name in (*shown, *hidden)}
    if len(names) < len(shown) + len(hidden):
        return None
    outputs = [(name, name) for name in shown] if picks.columns is None else picks.columns
    if not {folded(name) for name, _ in (*outputs, *picks.conditions)} <= names.keys():
        return None
    conditions = [(names[name], _array(schema[names[name]].dataType, values)) for name, values in picks.conditions]
    lead = next((values for name, values in conditions if name == table.spec.lead), None)
    if lead is None or any(values is None for _, values in conditions):
        return None
    columns = [names[folded(name)] for name, _ in outputs]
    needed = tuple(dict.fromkeys((*columns, *(name for name, _ in conditions))))
    rows = table.picked(lead, job, needed, MOST_BYTES)
    if rows is None:
        return None
    for name, values in conditions:
        rows = rows.filter(pc.is_in(rows.column(name), value_set=values))
    types = StructType(
        [StructField(output, schema[name].dataType) for name, (_, output) in zip(columns, outputs, strict=True)]
    )
    arrow = to_arrow_schema(types, timezone="UTC")
    arrays = [rows.column(name).cast(field.type) for name, field in zip(columns, arrow, strict=True)]
    return types, pa.Table.from_arrays(arrays, schema=arrow)


def picked_keys(picks: Picks, schema: StructType, column: str) -> KeySet | None:
    """The values of a column that picked rows can have; None where that is Spark's to say."""
    if sum(folded(name) == folded(column) for name in schema.names) != 1:
        return None
    said = [_array(schema[column].dataType, values) for name, values in picks.conditions if name == folded(column)]
    found = next((values for values in said if values is not None and len(values)), None)
    return None if found is None else any_of(found.to_pylist())


def _array(kind: DataType, values: Sequence[Value]) -> pa.Array | None:
    """The values that a column of this type can have; None where Spark would convert one side."""
    if kind == StringType():
        return pa.array(values, pa.string()) if all(isinstance(value, str) for value in values) else None
    whole = _WHOLE_NUMBERS.get(type(kind))
    if whole is None or not all(isinstance(value, int) for value in values):
        return None
    most = 1 << (whole.bit_width - 1)
    return pa.array([value for value in values if isinstance(value, int) and -most <= value < most], whole)
