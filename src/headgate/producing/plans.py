"""What a producer's statement comes down to: rows for a buffer, a look into the cache, or a query for the warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.capture.source import SourceTable
from headgate.producing.arrangement import Arrangement, Value, value_of
from headgate.producing.dbapi import ProgrammingError, errors_of_pep_249
from headgate.producing.known import Row
from headgate.producing.parameters import NO_PARAMETERS, Parameters, Template
from headgate.sql.references import replace_tables


@dataclass(frozen=True, slots=True)
class OwnRowsQuery:
    """A query that the warehouse answers; `tables` says how the source's own tables are written in full."""

    text: str
    template: Template
    tables: Mapping[str, str]

    def filled(self, parameters: Parameters) -> str:
        """The query's text in this call."""
        with errors_of_pep_249(otherwise=ProgrammingError):
            return self.template.filled(replace_tables(self.text, self.tables), parameters)


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Rows of VALUES, each a row of the table."""

    table: str
    rows: tuple[Arrangement, ...]


@dataclass(frozen=True, slots=True)
class InsertQuery:
    """The rows of a query; its columns become these columns of the table, in order."""

    table: str
    columns: tuple[str, ...]
    query: OwnRowsQuery


@dataclass(frozen=True, slots=True)
class Conditions:
    """Columns at these places have one of the values each. A value of None is NULL where `is_null`, else it matches nothing."""

    places: tuple[int, ...] = ()
    values: tuple[tuple[Value, ...], ...] = ()
    is_null: tuple[bool, ...] = ()
    template: Template = NO_PARAMETERS

    def choices(self, parameters: Parameters) -> list[list[object]]:
        """The values in this call, after a look whether it has the right parameters."""
        self.template.require(parameters)
        return [
            [None] if is_null else [given for value in values if (given := value_of(value, parameters)) is not None]
            for values, is_null in zip(self.values, self.is_null, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Ordering:
    """One column of ORDER BY."""

    place: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class SelectRows:
    """Columns of the rows of one table; the query says the same for the warehouse."""

    table: str
    names: tuple[str, ...]
    places: tuple[int, ...]
    conditions: Conditions
    order: tuple[Ordering, ...]
    query: OwnRowsQuery

    def result(self, rows: list[Row]) -> list[Row]:
        """The found rows as the statement wants them."""
        for ordering in reversed(self.order):
            rows = ordered(rows, ordering)
        return [tuple([row[place] for place in self.places]) for row in rows]


@dataclass(frozen=True, slots=True)
class SelectGreatest:
    """The greatest value of a column."""

    table: str
    name: str
    place: int
    query: OwnRowsQuery


@dataclass(frozen=True, slots=True)
class Update:
    """New values for columns of some rows."""

    table: str
    assigned: tuple[tuple[int, Value], ...]
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Delete:
    """Some rows go."""

    table: str
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table of the source."""

    table: SourceTable
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table of the source goes; None: there is no such table, and that is fine."""

    table: str | None


Plan = InsertRows | InsertQuery | SelectRows | SelectGreatest | OwnRowsQuery | Update | Delete | CreateTable | DropTable


def ordered(rows: Sequence[Row], by: Ordering) -> list[Row]:
    """The rows in the order of one column, equal ones as they were."""
    present = sorted(
        (row for row in rows if row[by.place] is not None), key=lambda row: row[by.place], reverse=by.descending
    )
    absent = [row for row in rows if row[by.place] is None]
    return absent + present if by.nulls_first else present + absent
