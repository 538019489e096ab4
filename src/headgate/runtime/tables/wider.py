"""Source tables that have changed: which changes a replica can take over, and what it then looks like."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from headgate.capture.source import SourceTable

_DIGITS: tuple[tuple[type[DataType], int], ...] = ((ByteType, 3), (ShortType, 5), (IntegerType, 10), (LongType, 19))
_EXACT_IN_DOUBLE = (ByteType, ShortType, IntegerType, FloatType)


def widened(known: SourceTable, table: SourceTable) -> SourceTable | None:
    """What is known of a table with the columns that it has more now; None when it differs in another way."""
    types = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    if known.key != table.key or any(
        types.get(field.name) != field.dataType.simpleString() for field in known.schema.fields
    ):
        return None
    added = [field for field in table.schema.fields if field.name not in known.schema.names]
    return replace(known, schema=StructType([*known.schema.fields, *added]))


def outgrown(known: SourceTable, table: SourceTable) -> SourceTable | None:
    """What is known of a table with the wider types that it has now; None when there are none, or it differs in more."""
    types = {field.name: field.dataType for field in table.schema.fields}
    if not all(field.name in types and holds_all(types[field.name], field.dataType) for field in known.schema.fields):
        return None
    fields = [StructField(field.name, types[field.name], field.nullable) for field in known.schema.fields]
    wider = replace(known, schema=StructType(fields))
    return None if wider.schema.simpleString() == known.schema.simpleString() else widened(wider, table)


def holds_all(wide: DataType, narrow: DataType) -> bool:
    """Whether a type has every value of another one, exactly."""
    if wide.simpleString() == narrow.simpleString():
        return True
    digits = next((count for kind, count in _DIGITS if isinstance(narrow, kind)), None)
    if isinstance(wide, DoubleType):
        return isinstance(narrow, _EXACT_IN_DOUBLE)
    if isinstance(wide, DecimalType):
        if isinstance(narrow, DecimalType):
            return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
        return digits is not None and wide.precision - wide.scale >= digits
    room = next((count for kind, count in _DIGITS if isinstance(wide, kind)), 0)
    return digits is not None and room >= digits
