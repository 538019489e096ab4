"""INSERT and COPY … FROM into the tables of producer sources. Rows of a transaction wait for its COMMIT, and are then one transaction
per source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from sqlglot import exp

from headgate.capture.producer import ProducerSource
from headgate.gateway.copied import CopiedRows
from headgate.gateway.dialect import table_name
from headgate.gateway.parameters import Typed, from_text
from headgate.gateway.problems import INVALID_TEXT, NOT_SUPPORTED, READ_ONLY, UNDEFINED_COLUMN, WireProblem
from headgate.gateway.types import DATE, NUMERIC, TIMESTAMP, TIMESTAMPTZ, WireColumn, column_of_text
from headgate.producing.connect import connect
from headgate.scheduling.warehouse import Warehouse

MOST_ROWS = 1_000_000
"""That INSERTs of one transaction may keep in memory; those of COPY wait in files."""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Values as rows of a table, in the order of its columns; columns that are not given are NULL. Made anew for each who iterates."""

    every: Sequence[WireColumn]
    given: Sequence[WireColumn]
    values: Sequence[Sequence[Any]] | CopiedRows
    zone: str | None = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        places = {column.name: place for place, column in enumerate(self.given)}
        taken = [(column, places.get(column.name)) for column in self.every]
        for row in self.values:
            yield tuple([None if place is None else stored(row[place], column, self.zone) for column, place in taken])

    @property
    def in_memory(self) -> int:
        return 0 if isinstance(self.values, CopiedRows) else len(self.values)

    def close(self) -> None:
        if isinstance(self.values, CopiedRows):
            self.values.close()


class Writes:
    """Rows on their way into tables of producers."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, list[GivenRows]]] = {}
        self._in_memory = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, table: str, rows: GivenRows) -> None:
        if self._in_memory + rows.in_memory > MOST_ROWS:
            raise WireProblem(
                "54000", f"a transaction inserts at most {MOST_ROWS:,} rows", hint="commit in between, or use COPY"
            )
        self._in_memory += rows.in_memory
        source, _, name = table.partition(".")
        self._rows.setdefault(source, {}).setdefault(name, []).append(rows)

    def commit(self, warehouse: Warehouse) -> int:
        """Gives the number of rows."""
        count = 0
        for source, tables in self._rows.items():
            with connect(warehouse, source=source, tables=list(tables)) as connection:
                cursor = connection.cursor()
                for name, parts in tables.items():
                    count += sum(cursor.insert(name, rows) for rows in parts)
                connection.commit()
        return count

    def close(self) -> None:
        """Lets go of rows that wait in files."""
        for tables in self._rows.values():
            for parts in tables.values():
                for rows in parts:
                    rows.close()
        self._rows.clear()


def columns_of_table(warehouse: Warehouse, table: str, named: Sequence[str] = ()) -> tuple[str, tuple[WireColumn, ...]]:
    """A producer's table as it is spelled, and its columns, or those of them that are named."""
    found = next((each for each in warehouse.describe() if each.name.casefold() == table.casefold()), None)
    if found is None:
        raise WireProblem("42P01", f'relation "{table}" does not exist')
    source = warehouse.sources.get(found.name.partition(".")[0])
    if not isinstance(source, ProducerSource):
        raise WireProblem(
            READ_ONLY, f"{found.name} cannot be written to", hint="rows go into tables of sources of type producer"
        )
    columns = {each.name.casefold(): column_of_text(each.name, each.type) for each in found.columns}
    for name in named:
        if name.casefold() not in columns:
            raise WireProblem(UNDEFINED_COLUMN, f'column "{name}" of relation "{found.name}" does not exist')
    return found.name, tuple(columns[name.casefold()] for name in named) if named else tuple(columns.values())


def stored(value: Any, column: WireColumn, zone: str | None = None) -> Any:
    """A value as a producer's table takes it; instants without an offset are of the zone, or else of UTC."""
    try:
        if isinstance(value, str) and column.oid not in (25, 114):
            value = from_text(value, column.oid)
        if isinstance(value, Typed) or (column.oid in (TIMESTAMP, TIMESTAMPTZ) and isinstance(value, str)):
            value = datetime.fromisoformat(str(value))
        if isinstance(value, datetime) and column.oid == TIMESTAMPTZ and value.tzinfo is None:
            value = value.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
        if column.oid == NUMERIC and isinstance(value, int | float) and not isinstance(value, bool):
            value = Decimal(str(value))
        if column.oid in (700, 701) and isinstance(value, int | Decimal):
            value = float(value)
        if column.oid == DATE and isinstance(value, datetime):
            value = value.date()
    except (ValueError, ArithmeticError):
        raise WireProblem(INVALID_TEXT, f"invalid input for column {column.name}: {str(value)[:50]!r}") from None
    return value


def inserted(tree: exp.Insert) -> tuple[str, tuple[str, ...], exp.Expr]:
    """The table, the columns that are named, and the values or query of an INSERT."""
    for clause in ("returning", "conflict"):
        if tree.args.get(clause):
            raise WireProblem(NOT_SUPPORTED, f"INSERT takes no {clause.upper()} clause here")
    target = tree.this
    schema = isinstance(target, exp.Schema)
    table = target.this if schema else target
    if not isinstance(table, exp.Table):
        raise WireProblem("42601", "expected a table")
    return table_name(table), tuple(each.name for each in target.expressions) if schema else (), tree.expression


def constant(node: exp.Expr) -> Any:
    """The value of a literal."""
    node = node.unnest()
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            if node.is_string:
                return node.name
            return int(node.name) if node.name.isdigit() else Decimal(node.name)
        case exp.Neg():
            return -constant(node.this)
        case exp.Cast():
            return constant(node.this)
        case exp.Array():
            return [constant(each) for each in node.expressions]
        case exp.CurrentTimestamp():
            return datetime.now(UTC)
        case exp.CurrentDate():
            return date.today()
        case exp.Unhex():
            return bytes.fromhex(node.this.name)
    raise WireProblem(
        NOT_SUPPORTED,
        f"INSERT … VALUES takes literals, and {node.sql(dialect='postgres')} is none",
        hint="use INSERT … SELECT",
    )


def values_of(node: exp.Expr, columns: Sequence[WireColumn]) -> list[list[Any]]:
    rows = [
        [constant(each) for each in (row.expressions if isinstance(row, exp.Tuple) else [row])]
        for row in node.expressions
    ]
    for row in rows:
        if len(row) != len(columns):
            raise WireProblem(
                "42601",
                "INSERT has more expressions than target columns"
                if len(row) > len(columns)
                else "INSERT has more target columns than expressions",
            )
    return rows
