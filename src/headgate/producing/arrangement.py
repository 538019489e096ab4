"""How the rows of a table come from the parameters of an INSERT: which parameter, or which constant, is which column's value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from operator import itemgetter
from typing import Any

from headgate.producing.dbapi import Error
from headgate.producing.known import Row
from headgate.producing.parameters import Parameters, Place, Template, value_at


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that comes with the call."""

    place: Place


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that stands in the statement, or NULL for a column that it does not name."""

    value: object


Value = Parameter | Constant


def value_of(value: Value, parameters: Parameters) -> object:
    """What it stands for in this call."""
    return value_at(parameters, value.place) if isinstance(value, Parameter) else value.value


@dataclass(frozen=True)
class Arrangement:
    """One row of VALUES, in the order of the table's columns."""

    values: tuple[Value, ...]
    template: Template

    @staticmethod
    def plain(columns: int) -> Arrangement:
        """Rows that are sequences in the order of the columns."""
        return Arrangement(tuple(map(Parameter, range(columns))), Template("", tuple(range(columns))))

    @staticmethod
    def named(columns: Sequence[str], given: Sequence[str]) -> Arrangement:
        """Rows that are mappings with these names; other columns are NULL."""
        values = tuple(Parameter(column) if column in given else Constant(None) for column in columns)
        return Arrangement(values, Template("", tuple(given)))

    @cached_property
    def width(self) -> int | None:
        """How long a sequence of parameters must be; None when they have names."""
        places = self.template.places
        if any(isinstance(place, str) for place in places):
            return None
        return max((place for place in places if isinstance(place, int)), default=-1) + 1

    @cached_property
    def pick(self) -> Any:
        """Parameters of the right kind and number to a row, as fast as can be; None when there are constants."""
        places = [value.place for value in self.values if isinstance(value, Parameter)]
        return itemgetter(*places) if len(places) == len(self.values) > 1 else None

    def row(self, parameters: Parameters) -> Row:
        """One row, its parameters checked for kind and number."""
        self.template.require(parameters)
        return tuple([value_of(value, parameters) for value in self.values])

    @cached_property
    def is_plain(self) -> bool:
        """Whether the parameters are the row."""
        return self.values == tuple(map(Parameter, range(len(self.values)))) and self.width == len(self.values)

    def is_of_kind(self, chunk: Sequence[Any]) -> bool:
        """Whether every set of parameters has the right kind and number."""
        kinds = set(map(type, chunk))
        if self.width is None:
            return kinds == {dict}
        return kinds <= {tuple, list} and set(map(len, chunk)) == {self.width}

    def columns(self, chunk: Sequence[Any]) -> list[list[Any]]:
        """The rows of many parameters as columns; any error says that one of them must be looked at on its own."""
        if not self.is_of_kind(chunk):
            raise TypeError
        return [
            list(map(itemgetter(value.place), chunk)) if isinstance(value, Parameter) else [value.value] * len(chunk)
            for value in self.values
        ]


def about_row(error: Error, number: int | None, values: object) -> Error:
    """The error with the row in front that it is about; rows of a call count from 1."""
    which = "the row" if number is None else f"row {number}"
    return type(error)(f"{which} {shown(values)}: {error.what}", where=error.where, hint=error.advice)


def _written(value: object) -> str:
    return str(value) if isinstance(value, date | Decimal) else repr(value)


def shown(values: object) -> str:
    """Values shortened for a message."""
    text = f"({', '.join(map(_written, values))})" if isinstance(values, tuple) else _written(values)
    return text if len(text) <= 120 else f"{text[:117]}..."
