"""A first flow over tables that nobody has described: what can be counted and summed, by what, along which key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot.dialects.spark import Spark

from headgate.cli.postgres_tables import Findings, ForeignKey, FoundTable
from headgate.dataflow.relation import quoted

_MOMENTS = (DateType, TimestampType, TimestampNTZType)


@dataclass(frozen=True, slots=True)
class ProposedFlow:
    """A statement for a flow file."""

    name: str
    sql: str
    about: str


def first_flow(source: str, findings: Findings) -> ProposedFlow:
    """Counts and sums the largest table that has something to sum or a time: per row of a table that it refers to, per
    day, or over all."""
    largest = sorted(findings.tables, key=lambda table: (-table.bytes, -table.rows, table.called))
    facts = next((table for table in largest if _measure(table, findings) or _moment(table)), largest[0])
    by_number = {table.definition.oid: table for table in findings.tables}
    measure, moment = _measure(facts, findings), _moment(facts)
    for key in findings.foreign_keys:
        other = by_number.get(key.other)
        if key.table == facts.definition.oid and other is not None and other is not facts:
            label = next(iter(_columns(other, StringType, without=other.definition.key)), None)
            if label is not None:
                return _per_row(source, facts, measure, key, other, label)
    return total_flow(source, facts.called, measure, moment)


def total_flow(source: str, table: str, measure: str | None, moment: str | None) -> ProposedFlow:
    """Counts and sums one table, per day of a moment or over all."""
    if moment is not None:
        day = f"CAST({_name(moment)} AS DATE)"
        name = f"{table}_per_day"
        sql = _view(name, [f"{day} AS day", *_sums(table, measure)], [f"{source}.{_name(table)}"], [day])
        return ProposedFlow(name, sql, f"{table} per day")
    name = f"{table}_total"
    sql = _view(name, _sums(table, measure), [f"{source}.{_name(table)}"], [])
    return ProposedFlow(name, sql, f"all of {table}")


def _per_row(
    source: str, facts: FoundTable, measure: str | None, key: ForeignKey, other: FoundTable, label: str
) -> ProposedFlow:
    name = f"{facts.called}_by_{other.called}"
    shown = [f"o.{_name(column)}" for column in (*key.other_columns, label)]
    on = " AND ".join(
        f"o.{_name(there)} = f.{_name(here)}" for here, there in zip(key.columns, key.other_columns, strict=True)
    )
    tables = [f"{source}.{_name(facts.called)} f", f"JOIN {source}.{_name(other.called)} o ON {on}"]
    return ProposedFlow(
        name,
        _view(name, [*shown, *_sums(facts.called, measure, "f.")], tables, shown),
        f"{facts.called} per row of {other.called}",
    )


def _view(name: str, shown: Iterable[str], tables: Iterable[str], by: Iterable[str]) -> str:
    lines = [f"CREATE MATERIALIZED VIEW {_name(name)} AS", f"SELECT {', '.join(shown)}", f"FROM {' '.join(tables)}"]
    grouping = ", ".join(by)
    return "\n".join([*lines, *([f"GROUP BY {grouping}"] if grouping else [])]) + ";\n"


def _sums(table: str, measure: str | None, qualifier: str = "") -> list[str]:
    total = [] if measure is None else [f"SUM({qualifier}{_name(measure)}) AS {_name(f'total_{measure}')}"]
    return [f"COUNT(*) AS {_name(f'number_of_{table}')}", *total]


def _measure(table: FoundTable, findings: Findings) -> str | None:
    """A column worth summing: no key, decimals before fractions before whole numbers."""
    keys = {
        column for key in findings.foreign_keys if key.table == table.definition.oid for column in key.columns
    } | set(table.definition.key)
    return measure_of(table.definition.source_table.schema, keys)


def measure_of(schema: StructType, keys: Iterable[str]) -> str | None:
    """A column of a schema that is worth summing."""
    for kind in (DecimalType, FractionalType, NumericType):
        if found := _columns_of(schema, (kind,), keys):
            return found[0]
    return None


def moment_of(schema: StructType) -> str | None:
    """A column of a schema that is a date or a time."""
    return next(iter(_columns_of(schema, _MOMENTS)), None)


def _moment(table: FoundTable) -> str | None:
    return moment_of(table.definition.source_table.schema)


def _columns(table: FoundTable, *kinds: type[DataType], without: Iterable[str] = ()) -> list[str]:
    return _columns_of(table.definition.source_table.schema, kinds, without)


def _columns_of(schema: StructType, kinds: tuple[type[DataType], ...], without: Iterable[str] = ()) -> list[str]:
    left_out = set(without)
    return [field.name for field in schema.fields if isinstance(field.dataType, kinds) and field.name not in left_out]


def _name(name: str) -> str:
    """The name as SQL takes it: in backquotes where it is a word of SQL's own or has other signs."""
    plain = name.isascii() and name.isidentifier() and name.upper() not in Spark.Tokenizer.KEYWORDS
    return name if plain else quoted(name)
