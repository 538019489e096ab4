"""CREATE TABLE of a producer's table: its columns, their types in Spark, and its key."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types
from sqlglot import exp

from headgate.capture.source import SourceTable
from headgate.producing.dbapi import NotSupportedError, ProgrammingError
from headgate.sql.names import folded

_TYPES: dict[exp.DType, types.DataType] = {
    exp.DType.BOOLEAN: types.BooleanType(),
    exp.DType.TINYINT: types.ByteType(),
    exp.DType.SMALLINT: types.ShortType(),
    exp.DType.INT: types.IntegerType(),
    exp.DType.BIGINT: types.LongType(),
    exp.DType.FLOAT: types.FloatType(),
    exp.DType.DOUBLE: types.DoubleType(),
    exp.DType.TEXT: types.StringType(),
    exp.DType.VARCHAR: types.StringType(),
    exp.DType.CHAR: types.StringType(),
    exp.DType.BINARY: types.BinaryType(),
    exp.DType.DATE: types.DateType(),
    exp.DType.TIMESTAMPTZ: types.TimestampType(),
    exp.DType.TIMESTAMPNTZ: types.TimestampNTZType(),
}
_TYPES_HINT = (
    "use boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, varchar(n), binary, date, "
    "timestamp or timestamp_ntz"
)
_HINT = "write CREATE TABLE [IF NOT EXISTS] name (column TYPE [NOT NULL] [PRIMARY KEY], …, [PRIMARY KEY (column, …)])"


def defined_table(name: str, parts: Sequence[exp.Expr]) -> SourceTable:
    """The table of the parts between the parentheses."""
    fields: list[types.StructField] = []
    key: list[str] = []
    for part in parts:
        if isinstance(part, exp.ColumnDef):
            kinds = [type(constraint.args.get("kind")) for constraint in part.args.get("constraints") or ()]
            if unknown := [kind for kind in kinds if kind not in _CONSTRAINTS]:
                raise NotSupportedError(f"the column {part.name} of {name} has a {unknown[0].__name__}", hint=_HINT)
            fields.append(types.StructField(part.name, _type(part), exp.NotNullColumnConstraint not in kinds))
            if exp.PrimaryKeyColumnConstraint in kinds:
                key.append(part.name)
        elif isinstance(part, exp.PrimaryKey):
            key.extend(column.name for column in part.expressions)
        else:
            raise NotSupportedError(f"{name} is declared with {part.sql('spark')}", hint=_HINT)
    names = {folded(field.name): field for field in fields}
    if len(names) < len(fields):
        raise ProgrammingError(f"{name} is declared with two columns of the same name")
    columns = [names.get(folded(column)) for column in key]
    if None in columns:
        raise ProgrammingError(f"the key of {name} names a column that it does not have", hint=_HINT)
    for column in columns:
        if column is not None:
            column.nullable = False
    return SourceTable(name, types.StructType(fields), tuple(column.name for column in columns if column is not None))


_CONSTRAINTS = (exp.NotNullColumnConstraint, exp.PrimaryKeyColumnConstraint)


def _type(column: exp.ColumnDef) -> types.DataType:
    kind = column.args.get("kind")
    if isinstance(kind, exp.DataType):
        if kind.this is exp.DType.DECIMAL:
            precision, scale = (
                [*(int(part.name) for part in kind.expressions), 10, 0][:2] if kind.expressions else (10, 0)
            )
            return types.DecimalType(precision, scale if len(kind.expressions) == 2 else 0)
        if kind.this in _TYPES:
            return _TYPES[kind.this]
    shown = kind.sql("spark") if isinstance(kind, exp.Expr) else "no type"
    raise NotSupportedError(f"the column {column.name} has the type {shown}", hint=_TYPES_HINT)
