"""Spark's types from their names. The simple ones need no Spark, which may still be starting."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_string,
)

_SIMPLE: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (
        BinaryType(),
        BooleanType(),
        ByteType(),
        DateType(),
        DoubleType(),
        FloatType(),
        IntegerType(),
        LongType(),
        ShortType(),
        StringType(),
        TimestampNTZType(),
        TimestampType(),
    )
}
_DECIMAL = re.compile(r"decimal\( *([1-9]|[12]\d|3[0-8]) *, *(\d|[12]\d|3[0-8]) *\)", re.ASCII)


def simple_type(name: str) -> DataType | None:
    """The type that is called so, unless it is one that only Spark can read."""
    name = name.strip().lower()
    found = _DECIMAL.fullmatch(name)
    if found is not None and int(found[2]) <= int(found[1]):
        return DecimalType(int(found[1]), int(found[2]))
    return _SIMPLE.get(name)


def parse_type(name: str) -> DataType:
    """The type that is called so; what is not simple is read by the Spark that is active."""
    return simple_type(name) or _parse_datatype_string(name)
