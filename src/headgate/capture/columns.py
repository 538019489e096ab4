"""Arrow columns for Spark columns: cast when every value stays what it is, refused otherwise.

Widths, encodings and units may differ (int32 for BIGINT, dictionaries and large strings for STRING, milliseconds for
TIMESTAMP), integers fit decimals and floating point; kinds never change, so a text is not parsed as a number.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class ColumnDoesNotFit(ValueError):
    """A column cannot be cast; `value` is the first offending one when its type alone is no obstacle."""

    def __init__(self, value: object = None, *, by_type: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.by_type = by_type


def cast_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column as the wanted type, every value exactly kept (FLOAT rounds)."""
    if not _compatible(column.type, wanted):
        raise ColumnDoesNotFit(by_type=True)
    if column.type.equals(wanted):
        return column
    cast = _try_cast(column, wanted)
    if cast is None:
        raise ColumnDoesNotFit(_offending(column, wanted))
    return cast


def _try_cast(column: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    try:
        if pa.types.is_decimal(wanted) and pa.types.is_integer(column.type):
            # Arrow wants room for every integer of the type, not only for those that are there.
            column = column.cast(pa.decimal256(76, wanted.scale))
        cast = column.cast(wanted)
    except (pa.ArrowException, ValueError):
        return None
    if pa.types.is_float32(wanted) and pc.sum(pc.is_inf(cast)).as_py() != pc.sum(pc.is_inf(column)).as_py():
        return None
    return cast


def _offending(column: pa.Array, wanted: pa.DataType) -> object:
    """The first value that does not fit, by halving."""
    while len(column) > 1:
        half = len(column) // 2
        column = column[:half] if _try_cast(column[:half], wanted) is None else column[half:]
    return column[0].as_py() if len(column) else None


def _kind(given: pa.DataType) -> str:
    test = pa.types
    for kind, tests in (
        ("integer", (test.is_integer,)),
        ("float", (test.is_floating,)),
        ("decimal", (test.is_decimal,)),
        ("text", (test.is_string, test.is_large_string, test.is_string_view)),
        ("binary", (test.is_binary, test.is_large_binary, test.is_binary_view, test.is_fixed_size_binary)),
        ("boolean", (test.is_boolean,)),
        ("date", (test.is_date,)),
        ("timestamp", (test.is_timestamp,)),
        ("list", (test.is_list, test.is_large_list, test.is_fixed_size_list)),
        ("struct", (test.is_struct,)),
        ("map", (test.is_map,)),
        ("null", (test.is_null,)),
    ):
        if any(matches(given) for matches in tests):
            return kind
    return str(given)


def _compatible(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(given):
        given = given.value_type
    kind, aim = _kind(given), _kind(wanted)
    if kind == "null":
        return True
    if kind == "integer" and aim in ("float", "decimal"):
        return True
    if kind != aim:
        return False
    if kind == "timestamp":
        return wanted.tz is not None or given.tz is None
    if kind == "list":
        return _compatible(given.value_type, wanted.value_type)
    if kind == "map":
        return _compatible(given.key_type, wanted.key_type) and _compatible(given.item_type, wanted.item_type)
    if kind == "struct":
        fields = {field.name: field.type for field in wanted}
        return all(field.name in fields and _compatible(field.type, fields[field.name]) for field in given)
    return True
