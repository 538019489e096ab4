"""Column types of random tables and their values: few distinct ones, so that rows meet, and the awkward ones."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from tests.exactness.choosing import Chooser

TYPES = {
    "int": "int",
    "bigint": "bigint",
    "decimal": "decimal(10,2)",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
    "double": "double",
    "boolean": "boolean",
    "array": "array<int>",
    "struct": "struct<a:int,b:string>",
}
"""Kinds of columns and the Spark type of each."""

NUMBERS = ("int", "bigint", "decimal")
"""Kinds whose values compare with each other exactly."""

KEY_KINDS = ("int", "bigint", "string")

_VALUES: dict[str, tuple[object, ...]] = {
    "int": (0, 1, 2, 3, -1),
    "bigint": (0, 1, 2, 3, 2**40),
    "decimal": tuple(Decimal(text) for text in ("0.00", "1.00", "2.00", "0.10", "-3.33", "99999.99")),
    "string": ("", "a", "A", "b", "ß", "𝄞", "e\u0301", "é", " a", "it's", "日本"),
    "date": (date(2024, 2, 29), date(1970, 1, 1), date(1500, 3, 1), date(2999, 12, 31)),
    "timestamp": tuple(
        moment.replace(tzinfo=UTC)
        for moment in (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 30, 0, 1), datetime(1969, 12, 31, 23, 59))
    ),
    "double": (0.0, 0.1, 0.2, 0.3, 1.5, -0.0, 1e-3, float("nan"), float("inf")),
    "boolean": (False, True),
    "array": ([], [1], [1, 2], [2, None, 1]),
    "struct": ({"a": 1, "b": "x"}, {"a": None, "b": "x"}, {"a": 2, "b": None}),
}


def value(choose: Chooser, kind: str) -> object:
    """A value of the kind, or NULL."""
    if choose.maybe(15):
        return None
    return present(choose, kind)


def present(choose: Chooser, kind: str) -> object:
    if kind == "string" and choose.maybe(10):
        return choose.text()
    return choose.pick(_VALUES[kind])


def key_value(choose: Chooser, kind: str) -> object:
    """A value for a key column: of few, so that changes meet."""
    return choose.pick(_VALUES[kind][:5])
