"""Python values are taken as they are or refused, never bent."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row, types

from headgate.capture.values import DoesNotFit, converter

ZONE = timezone(timedelta(hours=3))


def convert(wanted: types.DataType, value: object) -> object:
    check = converter(wanted)
    assert check is not None
    return check(value)


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        (types.LongType(), np.int32(7), 7),
        (types.DoubleType(), 3, 3.0),
        (types.DoubleType(), np.float32(0.5), 0.5),
        (types.FloatType(), 0.1, 0.1),
        (types.DecimalType(5, 2), 3, Decimal("3.00")),
        (types.DecimalType(38, 0), 10**37, Decimal(10**37)),
        (types.DecimalType(5, 2), Decimal("1.500"), Decimal("1.50")),
        (types.StringType(), np.str_("a"), "a"),
        (types.BinaryType(), bytearray(b"a"), b"a"),
        (types.BooleanType(), np.bool_(True), True),
        (types.TimestampType(), datetime(2024, 1, 1, 3, tzinfo=ZONE), datetime(2024, 1, 1, tzinfo=UTC)),
        (types.TimestampType(), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
        (types.TimestampType(), pd.Timestamp("2024-01-01 03:00", tz=ZONE), datetime(2024, 1, 1, tzinfo=UTC)),
        (types.TimestampNTZType(), datetime(2024, 1, 1), datetime(2024, 1, 1)),
        (types.ArrayType(types.LongType()), np.array([1, 2]), [1, 2]),
        (types.ArrayType(types.LongType()), (1, None), [1, None]),
        (types.MapType(types.StringType(), types.LongType()), {"a": 1}, [("a", 1)]),
        (types.StructType().add("a", "integer").add("b", "integer"), Row(a=1), {"a": 1, "b": None}),
    ],
)
def test_a_value_that_fits_is_taken(wanted: types.DataType, value: object, expected: object) -> None:
    found = convert(wanted, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (types.ByteType(), 128),
        (types.IntegerType(), 1.0),
        (types.IntegerType(), True),
        (types.BooleanType(), 1),
        (types.DoubleType(), 2**53 + 1),
        (types.DoubleType(), 10**400),
        (types.DoubleType(), Decimal("1.5")),
        (types.FloatType(), 1e300),
        (types.DecimalType(5, 2), 1000),
        (types.DecimalType(5, 2), 1.5),
        (types.DecimalType(5, 2), Decimal("NaN")),
        (types.DecimalType(5, 2), Decimal("0.001")),
        (types.StringType(), 1),
        (types.StringType(), b"a"),
        (types.BinaryType(), "a"),
        (types.DateType(), datetime(2024, 1, 1)),
        (types.DateType(), "2024-01-01"),
        (types.TimestampType(), date(2024, 1, 1)),
        (types.TimestampType(), pd.NaT),
        (types.TimestampType(), pd.Timestamp(1, unit="ns")),
        (types.TimestampType(), datetime(1, 1, 1, tzinfo=ZONE)),
        (types.TimestampNTZType(), datetime(2024, 1, 1, tzinfo=UTC)),
        (types.ArrayType(types.LongType(), containsNull=False), [None]),
        (types.ArrayType(types.LongType()), "12"),
        (types.MapType(types.StringType(), types.LongType()), {None: 1}),
        (types.MapType(types.StringType(), types.LongType()), [("a", 1)]),
        (types.StructType().add("a", "integer", nullable=False), {}),
        (types.StructType().add("a", "integer"), {"b": 1}),
    ],
)
def test_a_value_that_does_not_fit_is_refused(wanted: types.DataType, value: object) -> None:
    with pytest.raises(DoesNotFit):
        convert(wanted, value)


def test_not_a_number_is_a_floating_point_value() -> None:
    found = convert(types.DoubleType(), math.nan)
    assert isinstance(found, float)
    assert math.isnan(found)


def test_types_that_sources_do_not_have_have_no_converter() -> None:
    assert converter(types.CalendarIntervalType()) is None
    assert converter(types.NullType()) is None
    assert converter(types.VarcharType(5)) is None
