"""Python values for Spark columns: accepted when they fit the type exactly, never bent to fit.

Integers fit decimals and floating point where exact, a Python float fits FLOAT by rounding, a datetime without a zone
is taken as UTC for TIMESTAMP, numpy scalars count as what they hold. Nothing is cut off: not digits, not the time of
a day, not unknown fields of a struct.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

import numpy as np
from pyspark.sql import types

Converter = Callable[[object], object]


class DoesNotFit(ValueError):
    """The value is not one of the type; the text says why, where that is not plain."""


def converter(wanted: types.DataType) -> Converter | None:
    """The function that checks and converts values of a type (None passes); None for types that sources do not have."""
    if isinstance(wanted, types.ArrayType):
        return _array(wanted)
    if isinstance(wanted, types.MapType):
        return _map(wanted)
    if isinstance(wanted, types.StructType):
        return _struct(wanted)
    if isinstance(wanted, types.DecimalType):
        return _atomic(_decimal(wanted))
    if isinstance(wanted, types.StringType):
        return _atomic(_text)
    plain = _ATOMIC.get(type(wanted))
    return None if plain is None else _atomic(plain)


def _atomic(convert: Converter) -> Converter:
    def checked(value: object) -> object:
        if value is None:
            return None
        return convert(value.item() if isinstance(value, np.generic) else value)

    return checked


def _integer(bits: int) -> Converter:
    bound = 1 << (bits - 1)

    def convert(value: object) -> int:
        if type(value) is not int:
            raise DoesNotFit
        if not -bound <= value < bound:
            raise DoesNotFit("out of range")
        return value

    return convert


def _double(value: object) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise DoesNotFit
    try:
        if int(float(value)) == value:
            return float(value)
    except OverflowError:
        pass
    raise DoesNotFit("not exact in floating point")


def _float(value: object) -> float:
    number = _double(value)
    try:
        struct.pack("<f", number)
    except OverflowError:
        raise DoesNotFit("out of range") from None
    return number


def _decimal(wanted: types.DecimalType) -> Converter:
    step = Decimal(1).scaleb(-wanted.scale)
    exact = decimal.Context(prec=80, traps=[decimal.Inexact, decimal.InvalidOperation])
    bound = Decimal(10) ** (wanted.precision - wanted.scale)

    def convert(value: object) -> Decimal:
        if type(value) is not int and not isinstance(value, Decimal):
            raise DoesNotFit
        number = Decimal(value)
        if not number.is_finite():
            raise DoesNotFit
        if abs(number) >= bound:
            raise DoesNotFit("out of range")
        try:
            return number.quantize(step, context=exact)
        except (decimal.Inexact, decimal.InvalidOperation):
            raise DoesNotFit(f"more than {wanted.scale} decimal places") from None

    return convert


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DoesNotFit
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DoesNotFit("not valid Unicode") from None
    return value


def _binary(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise DoesNotFit
    return bytes(value)


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise DoesNotFit
    return value


def _date(value: object) -> dt.date:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise DoesNotFit
    return value


def _timestamp(value: object) -> dt.datetime:
    value = _datetime(value)
    if value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise DoesNotFit("out of range") from None


def _timestamp_without_zone(value: object) -> dt.datetime:
    value = _datetime(value)
    if value.tzinfo is not None:
        raise DoesNotFit("it has a time zone")
    return value


def _datetime(value: object) -> dt.datetime:
    # pandas' "not a time" is a datetime that is unequal to itself.
    if not isinstance(value, dt.datetime) or value != value:
        raise DoesNotFit
    if getattr(value, "nanosecond", 0):
        raise DoesNotFit("finer than microseconds")
    if type(value) is not dt.datetime:
        zone = value.tzinfo
        value = dt.datetime(*value.timetuple()[:6], value.microsecond, tzinfo=zone, fold=value.fold)
    return value


def _array(wanted: types.ArrayType) -> Converter:
    element = _required(converter(wanted.elementType), wanted.containsNull)

    def convert(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            raise DoesNotFit
        return [element(item) for item in value]

    return convert


def _map(wanted: types.MapType) -> Converter:
    key = _required(converter(wanted.keyType), nullable=False)
    item = _required(converter(wanted.valueType), wanted.valueContainsNull)

    def convert(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise DoesNotFit
        return [(key(name), item(content)) for name, content in value.items()]

    return convert


def _struct(wanted: types.StructType) -> Converter:
    fields = {field.name: _required(converter(field.dataType), field.nullable) for field in wanted.fields}

    def convert(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, types.Row):
            value = value.asDict()
        if not isinstance(value, Mapping):
            raise DoesNotFit
        if unknown := _first(name for name in value if name not in fields):
            raise DoesNotFit(f"it has no field {unknown}")
        return {name: check(value.get(name)) for name, check in fields.items()}

    return convert


def _required(check: Converter | None, nullable: bool) -> Converter:
    if check is None:
        raise TypeError("no values of this type")
    if nullable:
        return check

    def convert(value: object) -> object:
        if value is None:
            raise DoesNotFit("NULL is not allowed there")
        return check(value)

    return convert


def _first(items: Iterable[object]) -> object:
    return next(iter(items), None)


_ATOMIC: dict[type[types.DataType], Converter] = {
    types.BooleanType: _boolean,
    types.ByteType: _integer(8),
    types.ShortType: _integer(16),
    types.IntegerType: _integer(32),
    types.LongType: _integer(64),
    types.FloatType: _float,
    types.DoubleType: _double,
    types.BinaryType: _binary,
    types.DateType: _date,
    types.TimestampType: _timestamp,
    types.TimestampNTZType: _timestamp_without_zone,
}
