"""The shape of a source table: checks rows against its columns and key, and builds the Arrow rows of events."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.capture.columns import ColumnDoesNotFit, cast_column
from headgate.capture.events import ROW_FIELDS, row_schema
from headgate.capture.source import SourceTable
from headgate.capture.values import Converter, DoesNotFit, converter
from headgate.errors import ConfigError, TransactionError

_UNCHANGED_TYPE = ROW_FIELDS[1].type


class Shape:
    """One table's columns, ready to check values; `name` is the table's full name, for messages."""

    def __init__(self, source: str, table: SourceTable) -> None:
        self.name = f"{source}.{table.name}"
        self.columns: tuple[str, ...] = tuple(table.schema.names)
        self.key = table.key
        self._types = {field.name: field.dataType for field in table.schema.fields}
        self._nullable = {field.name: field.nullable and field.name not in table.key for field in table.schema.fields}
        self._converters = {name: self._converter(name) for name in self.columns}
        for column in self.key:
            if column not in self._types:
                raise ConfigError(f"the key column {column} of {self.name} is not one of its columns")
            if isinstance(self._types[column], (types.ArrayType, types.MapType, types.StructType)):
                raise ConfigError(f"the key column {column} of {self.name} has a nested type", hint="use plain columns")
        self._arrow = to_arrow_schema(table.schema, timezone="UTC")
        self.rows = row_schema(self._arrow)
        self.fields: tuple[pa.Field, ...] = tuple(
            field.with_nullable(self._nullable[field.name]) for field in self._arrow
        )
        """The Arrow columns; those of the key cannot be NULL."""

    def row(self, values: Mapping[str, object], columns: Iterable[str]) -> dict[str, object]:
        """The given values, checked and converted; `columns` are those that must be there."""
        if not isinstance(values, Mapping):
            raise TransactionError(f"a row of {self.name} is a mapping of column names, not {_shown(values)}")
        self.require_known(values)
        for column in columns:
            if column not in values:
                raise TransactionError(
                    f"the row for {self.name} lacks the column {column}: {_shown(dict(values))}",
                    hint=f"its key is ({', '.join(self.key)})" if column in self.key else "give all columns",
                )
        return {column: self._value(column, value) for column, value in values.items()}

    def values(self, row: Sequence[object]) -> tuple[object, ...]:
        """A whole row's values in the order of the columns, checked and converted."""
        return tuple([self._value(column, value) for column, value in zip(self.columns, row, strict=True)])

    def wanted(self, column: str, value: object) -> object:
        """A value that a column is compared with, as the column would hold it."""
        return None if value is None else self._value(column, value)

    def key_row(self, values: Mapping[str, object]) -> dict[str, object]:
        """A row of key columns only."""
        row = self.row(values, self.key)
        for column in row:
            if column not in self.key:
                raise TransactionError(
                    f"{column} is not a key column of {self.name}", hint=f"give only ({', '.join(self.key)})"
                )
        return row

    def absent(self, row: Mapping[str, object], hint: str) -> tuple[str, ...]:
        """The columns that a row does not have; those that cannot be NULL must be there."""
        absent = tuple(column for column in self.columns if column not in row)
        for column in absent:
            if not self._nullable[column]:
                raise TransactionError(f"the row for {self.name} lacks the column {column}", hint=hint)
        return absent

    def build(
        self,
        rows: Sequence[Mapping[str, object]],
        ops: Sequence[int],
        unchanged: Sequence[tuple[str, ...]],
        sequences: Sequence[int],
    ) -> pa.RecordBatch:
        """Event rows from checked values."""
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in self._arrow]
        arrays.append(pa.array(ops, pa.int8()))
        arrays.append(pa.array(unchanged, _UNCHANGED_TYPE))
        arrays.append(pa.array(sequences, pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, schema=self.rows)

    def build_many(self, batch: pa.RecordBatch, op: int, first: int) -> pa.RecordBatch:
        """Event rows from a batch whose columns `require_columns` has checked; sequences count from `first`."""
        return self.events(self.cast(batch), np.full(batch.num_rows, op, dtype=np.int8), first)

    def cast(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The table's columns from a batch whose columns `require_columns` has checked; those not given are NULL."""
        given = set(batch.schema.names)
        return [
            self._column(field.name, batch.column(field.name), field.type)
            if field.name in given
            else pa.nulls(batch.num_rows, field.type)
            for field in self._arrow
        ]

    def events(self, columns: Sequence[pa.Array], ops: np.ndarray, first: int) -> pa.RecordBatch:
        """Event rows from the table's checked columns, none of them unchanged; sequences count from `first`."""
        count = len(ops)
        offsets = pa.array(np.zeros(count + 1, dtype=np.int32))
        unchanged = pa.ListArray.from_arrays(offsets, pa.array([], pa.string()), type=_UNCHANGED_TYPE)
        sequences = pa.array(np.arange(first, first + count, dtype=np.int64))
        return pa.RecordBatch.from_arrays([*columns, pa.array(ops), unchanged, sequences], schema=self.rows)

    def require_known(self, names: Iterable[str]) -> None:
        """Refuses names that are not columns."""
        for name in names:
            if name not in self._types:
                raise TransactionError(
                    f"{self.name} has no column {_shown(name)}", hint=did_you_mean(str(name), self.columns, "columns")
                )

    def require_columns(self, given: pa.Schema, *, key_only: bool) -> None:
        """Refuses unknown, repeated and missing columns of Arrow rows."""
        self.require_known(given.names)
        for name in given.names:
            if given.names.count(name) > 1:
                raise TransactionError(f"the rows for {self.name} have the column {name} twice")
            if key_only and name not in self.key:
                raise TransactionError(
                    f"{name} is not a key column of {self.name}", hint=f"give only ({', '.join(self.key)})"
                )
        for column in self.columns:
            needed = column in self.key or not (key_only or self._nullable[column])
            if needed and column not in given.names:
                raise TransactionError(
                    f"the rows for {self.name} lack the column {column}", hint=f"its key is ({', '.join(self.key)})"
                )

    def _converter(self, column: str) -> Converter:
        wanted = self._types[column]
        try:
            found = converter(wanted)
        except TypeError:
            found = None
        if found is None:
            raise ConfigError(
                f"the column {column} of {self.name} has the type {wanted.simpleString()}, which a source cannot have",
                hint="use numbers, string, binary, boolean, date, timestamp, and arrays, maps and structs of them",
            )
        return found

    def _value(self, column: str, value: object) -> object:
        if value is None:
            if not self._nullable[column]:
                raise TransactionError(f"{self.name}.{column} cannot be NULL", hint=self._null_hint(column))
            return None
        try:
            return self._converters[column](value)
        except DoesNotFit as error:
            why = f": {error}" if error.args else ""
            raise self._misfit(column, f"the value {_shown(value)}", why) from None

    def _column(self, column: str, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        if values.null_count and not self._nullable[column]:
            raise TransactionError(f"{self.name}.{column} cannot be NULL", hint=self._null_hint(column))
        try:
            cast = cast_column(values, wanted)
        except ColumnDoesNotFit as error:
            what = f"Arrow {values.type}" if error.by_type else f"the value {_shown(error.value)}"
            raise self._misfit(column, what, "") from None
        if cast.null_count and not self._nullable[column]:
            raise TransactionError(f"{self.name}.{column} cannot be NULL", hint=self._null_hint(column))
        return cast

    def _null_hint(self, column: str) -> str | None:
        return "it is a key column" if column in self.key else None

    def _misfit(self, column: str, what: str, why: str) -> TransactionError:
        return TransactionError(
            f"{self.name}.{column} cannot hold {what}{why}", hint=f"expected {self._types[column].simpleString()}"
        )


def did_you_mean(name: str, known: Iterable[str], what: str) -> str:
    """The nearest known name, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"its {what} are {', '.join(names)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
