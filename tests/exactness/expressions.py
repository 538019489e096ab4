"""Random scalar expressions and predicates of known kinds, valid in Spark as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.exactness.choosing import Chooser
from tests.exactness.values import NUMBERS


@dataclass(frozen=True)
class Column:
    """An expression over a query's input, most simply a column, and its kind."""

    sql: str
    kind: str


_UNARY: dict[str, tuple[tuple[str, str], ...]] = {
    "int": (("{} + 1", "int"), ("coalesce({}, 0)", "int"), ("{} % 2", "int"), ("CAST({} AS BIGINT)", "bigint")),
    "bigint": (("{} - 1", "bigint"), ("coalesce({}, 7)", "bigint"), ("CAST({} AS STRING)", "string")),
    "decimal": (("{} * 2", "decimal"), ("abs({})", "decimal"), ("CAST({} AS DOUBLE)", "double")),
    "string": (
        ("upper({})", "string"),
        ("concat({}, 'z')", "string"),
        ("length({})", "int"),
        ("{} IS NULL", "boolean"),
    ),
    "date": (("date_add({}, 1)", "date"), ("year({})", "int")),
    "timestamp": (("date_trunc('HOUR', {})", "timestamp"), ("CAST({} AS DATE)", "date")),
    "double": (("{} * 2", "double"), ("coalesce({}, 0.5D)", "double"), ("isnan({})", "boolean")),
    "boolean": (("NOT {}", "boolean"), ("coalesce({}, false)", "boolean")),
    "array": (("size({})", "int"), ("sort_array({})", "array"), ("array_contains({}, 1)", "boolean")),
    "struct": (("{}.a", "int"), ("{}.b", "string")),
}

_PREDICATES: dict[str, tuple[str, ...]] = {
    "int": ("{} > 0", "{} = 1", "{} <> 2", "{} IN (0, 2)", "{} BETWEEN 0 AND 2"),
    "bigint": ("{} >= 1", "{} < 100"),
    "decimal": ("{} > 0.5", "{} <= 2"),
    "string": ("{} = 'a'", "{} <> ''", "{} LIKE '%a%'", "length({}) > 0", "{} >= 'b'"),
    "date": ("{} > DATE'1990-01-01'", "year({}) = 1970"),
    "timestamp": ("{} < TIMESTAMP'2024-01-01 00:10:00Z'",),
    "double": ("{} > 0.15D", "{} = 0.0D", "NOT isnan({})"),
    "boolean": ("{}", "NOT {}"),
    "array": ("size({}) > 1", "array_contains({}, 1)"),
    "struct": ("{}.a = 1", "{}.b IS NOT NULL"),
}


def expression(choose: Chooser, columns: Sequence[Column]) -> Column:
    column = choose.pick(columns)
    if choose.maybe(65):
        return column
    if choose.maybe(15):
        return Column(f"CASE WHEN {predicate(choose, columns)} THEN {column.sql} END", column.kind)
    text, kind = choose.pick(_UNARY[column.kind])
    return Column(text.format(column.sql), kind)


def predicate(choose: Chooser, columns: Sequence[Column]) -> str:
    column = choose.pick(columns)
    if choose.maybe(20):
        return f"{column.sql} IS {choose.pick(('NULL', 'NOT NULL'))}"
    first = choose.pick(_PREDICATES[column.kind]).format(column.sql)
    if choose.maybe(25):
        return f"({first} {choose.pick(('AND', 'OR'))} {predicate(choose, columns)})"
    return first


def comparable(left: str, right: str) -> bool:
    return left == right or (left in NUMBERS and right in NUMBERS)


def pair(choose: Chooser, left: Sequence[Column], right: Sequence[Column]) -> tuple[Column, Column] | None:
    """A column of each side that can be compared."""
    pairs = [(one, other) for one in left for other in right if comparable(one.kind, other.kind)]
    return choose.pick(pairs) if pairs else None


_AGGREGATES: dict[str, tuple[tuple[str, str], ...]] = {
    "int": (("sum({})", "bigint"), ("avg({})", "double"), ("count(DISTINCT {})", "bigint"), ("stddev({})", "double")),
    "bigint": (("sum({})", "bigint"), ("max({})", "bigint"), ("sum(DISTINCT {})", "bigint")),
    "decimal": (("sum({})", "decimal"), ("avg({})", "decimal"), ("min({})", "decimal"), ("var_pop({})", "double")),
    "string": (("max({})", "string"), ("min({})", "string"), ("count(DISTINCT {})", "bigint")),
    "double": (("sum({})", "double"), ("avg({})", "double"), ("max({})", "double"), ("variance({})", "double")),
    "boolean": (("bool_and({})", "boolean"), ("bool_or({})", "boolean"), ("count_if({})", "bigint")),
    "date": (("max({})", "date"), ("count({})", "bigint")),
    "timestamp": (("min({})", "timestamp"), ("count({})", "bigint")),
    "array": (("count({})", "bigint"), ("max({})", "array")),
    "struct": (("count({})", "bigint"), ("count(DISTINCT {})", "bigint")),
}


def aggregate(choose: Chooser, columns: Sequence[Column]) -> Column:
    if choose.maybe(25):
        return Column("count(*)", "bigint")
    column = expression(choose, columns)
    text, kind = choose.pick(_AGGREGATES[column.kind])
    filtered = f" FILTER (WHERE {predicate(choose, columns)})" if choose.maybe(15) else ""
    return Column(text.format(column.sql) + filtered, kind)
