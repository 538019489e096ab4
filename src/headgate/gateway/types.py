"""Spark's types as PostgreSQL has them: OID, size and modifier of a column. What PostgreSQL lacks (structs, maps, arrays of arrays,
variants) is json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from headgate.runtime.spark.types import simple_type

BOOL, BYTEA, NAME, INT8, INT2, INT4, TEXT, OID, JSON = 16, 17, 19, 20, 21, 23, 25, 26, 114
FLOAT4, FLOAT8, BPCHAR, VARCHAR, DATE, TIME = 700, 701, 1042, 1043, 1082, 1083
TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID, JSONB, UNKNOWN = 1114, 1184, 1186, 1700, 2950, 3802, 705

ARRAYS = {
    BOOL: 1000,
    BYTEA: 1001,
    INT2: 1005,
    INT4: 1007,
    TEXT: 1009,
    INT8: 1016,
    FLOAT4: 1021,
    FLOAT8: 1022,
    OID: 1028,
    VARCHAR: 1015,
    TIMESTAMP: 1115,
    DATE: 1182,
    TIMESTAMPTZ: 1185,
    INTERVAL: 1187,
    JSON: 199,
    NUMERIC: 1231,
    UUID: 2951,
}
"""The type of arrays of a type."""
ELEMENTS = {array: element for element, array in ARRAYS.items()}

SIZES = {
    BOOL: 1,
    INT2: 2,
    INT4: 4,
    INT8: 8,
    OID: 4,
    FLOAT4: 4,
    FLOAT8: 8,
    DATE: 4,
    TIMESTAMP: 8,
    TIMESTAMPTZ: 8,
    INTERVAL: 16,
    UUID: 16,
}
"""Bytes of the types of fixed size."""

NAMES = {
    BOOL: "boolean",
    BYTEA: "bytea",
    INT8: "bigint",
    INT2: "smallint",
    INT4: "integer",
    TEXT: "text",
    OID: "oid",
    JSON: "json",
    FLOAT4: "real",
    FLOAT8: "double precision",
    VARCHAR: "character varying",
    DATE: "date",
    TIMESTAMP: "timestamp without time zone",
    TIMESTAMPTZ: "timestamp with time zone",
    INTERVAL: "interval",
    NUMERIC: "numeric",
    UUID: "uuid",
}
"""As PostgreSQL writes them."""

_OIDS: dict[type[DataType], int] = {
    BooleanType: BOOL,
    ByteType: INT2,
    ShortType: INT2,
    IntegerType: INT4,
    LongType: INT8,
    FloatType: FLOAT4,
    DoubleType: FLOAT8,
    DecimalType: NUMERIC,
    StringType: TEXT,
    BinaryType: BYTEA,
    DateType: DATE,
    TimestampType: TIMESTAMPTZ,
    TimestampNTZType: TIMESTAMP,
    DayTimeIntervalType: INTERVAL,
    YearMonthIntervalType: INTERVAL,
}


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column of an answer."""

    name: str
    oid: int
    modifier: int = -1
    zone: str | None = None
    """The time zone that instants are shown in; None for UTC."""

    @property
    def size(self) -> int:
        return SIZES.get(self.oid, -1)


def column_of(name: str, kind: DataType) -> WireColumn:
    """A column of a Spark type."""
    if isinstance(kind, DecimalType):
        return WireColumn(name, NUMERIC, (kind.precision << 16 | kind.scale) + 4)
    return WireColumn(name, oid_of(kind))


def in_zone(columns: Iterable[WireColumn], zone: str | None) -> tuple[WireColumn, ...]:
    """The columns, whose instants are shown in a time zone."""
    return tuple(columns) if zone is None else tuple(replace(column, zone=zone) for column in columns)


def columns_of(schema: StructType) -> tuple[WireColumn, ...]:
    return tuple(column_of(field.name, field.dataType) for field in schema.fields)


def oid_of(kind: DataType) -> int:
    if isinstance(kind, ArrayType):
        return ARRAYS.get(oid_of(kind.elementType), JSON)
    if isinstance(kind, StringType):
        return TEXT
    # A column of NULLs alone is text, as for PostgreSQL.
    return TEXT if kind.simpleString() == "void" else _OIDS.get(type(kind), JSON)


def column_of_text(name: str, kind: str) -> WireColumn:
    """A column of a type as Spark writes it."""
    found = simple_type(kind)
    if found is not None:
        return column_of(name, found)
    if kind.startswith("array<") and kind.endswith(">"):
        return WireColumn(name, ARRAYS.get(column_of_text(name, kind[6:-1]).oid, JSON))
    if kind.startswith(("string", "varchar", "char", "void")):
        return WireColumn(name, TEXT)
    return WireColumn(name, INTERVAL if kind.startswith("interval") else JSON)
