"""One table that a producer writes to: rows are checked, kept from clashing with others of the same key, and buffered.

Every call does all or nothing. Single rows wait as tuples; many rows become Arrow columns, a few thousand at a time, because
that is fastest while they are in the processor's cache, and are joined to larger batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.capture.columns import ColumnDoesNotFit
from headgate.capture.shape import Shape
from headgate.capture.source import SourceTable
from headgate.delta.events import DELETE, UPSERT
from headgate.errors import HeadgateError, TransactionError
from headgate.producing.arrangement import Arrangement, about_row, shown
from headgate.producing.cache import Cache
from headgate.producing.channel import Channel
from headgate.producing.columns import IntegerRows, arrow_column, exact_rows, joined, stored
from headgate.producing.dbapi import (
    DataError,
    Error,
    NotNullViolation,
    NotSupportedError,
    ProgrammingError,
    UniqueViolation,
    pep_249,
)
from headgate.producing.known import Row
from headgate.producing.transaction import OpenTransaction

_WAITING_ROWS = 4096
_CHUNK_ROWS = 2048
_JOINED_CHUNKS = 32
_JOINED_BYTES = 8 << 20
_ARROW_ROWS = 1 << 18


class ProducerTable:
    """Rows of one table in the open transaction, and all its rows to be found."""

    def __init__(self, channel: Channel, table: SourceTable, transaction: OpenTransaction, cache_rows: int) -> None:
        self.shape = Shape(channel.source, table)
        self._name = table.name
        self._transaction = transaction
        self._cache = Cache(channel, table.name, self.shape, cache_rows, self._open_rows)
        self._is_exact = exact_rows(self.shape.fields)
        self._is_integral = all(pa.types.is_integer(field.type) for field in self.shape.fields)
        self._waiting: list[Row] = []
        self._deleted: list[int] = []

    def insert(self, values: Row) -> None:
        """Adds one row: values in the order of the columns."""
        row = values if self._is_exact(*values) else self._checked(values, None)
        if not self._cache.insert(row):
            raise self._duplicate(row, None)
        self._waiting.append(row)
        if len(self._waiting) >= _WAITING_ROWS:
            self.flush()

    def insert_many(self, rows: Iterable[Any], arrangement: Arrangement) -> int:
        """Adds rows, each made of one set of parameters; gives their number."""
        source = iter(rows)
        first = list(islice(source, _CHUNK_ROWS))
        if len(first) < _CHUNK_ROWS:
            return self._insert_few(first, arrangement)
        chunks = chain([first], iter(lambda: list(islice(source, _CHUNK_ROWS)), []))
        numbers = IntegerRows(self.shape.fields) if self._is_integral and arrangement.is_plain else None
        with self.all_or_nothing():
            done = seen = size = 0
            parts: list[list[pa.Array]] = []
            for number, chunk in enumerate(chunks, 1):
                if numbers is None or not (arrangement.is_of_kind(chunk) and numbers.add(chunk)):
                    if numbers:
                        parts.append(numbers.take())
                    columns = self._converted(chunk, arrangement, seen)
                    parts.append(columns)
                    size += sum(column.nbytes for column in columns)
                seen += len(chunk)
                if number % _JOINED_CHUNKS == 0 or size > _JOINED_BYTES:
                    if numbers:
                        parts.append(numbers.take())
                    done += self._take(joined(parts), done)
                    parts, size = [], 0
            if numbers:
                parts.append(numbers.take())
            if parts:
                done += self._take(joined(parts), done)
        return done

    def insert_arrow(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Adds the rows of Arrow batches, whose columns are known by their names."""
        with _mistakes_of_the_statement():
            self.shape.require_columns(schema, key_only=False)
        done = 0
        with self.all_or_nothing():
            for whole in batches:
                for start in range(0, whole.num_rows, _ARROW_ROWS):
                    batch = whole.slice(start, _ARROW_ROWS)
                    try:
                        columns = self.shape.cast(batch)
                    except TransactionError as error:
                        raise self._about_arrow(error, batch, done) from error
                    done += self._take(columns, done)
        return done

    def find(self, places: tuple[int, ...], choices: Sequence[Sequence[object]]) -> list[Row]:
        """The rows whose columns at these places have one of the values each, open ones included; None stands for NULL."""
        wanted = [
            [self._wanted(place, value) for value in values] for place, values in zip(places, choices, strict=True)
        ]
        return self._cache.find(places, wanted)

    def greatest(self, place: int) -> object:
        """The greatest value of a column, open rows included."""
        return self._cache.greatest(place)

    def update(self, found: Sequence[Row], assigned: Sequence[tuple[int, object]]) -> int:
        """Sets columns of rows that were found; gives their number."""
        values = {place: self._assigned(place, value) for place, value in assigned}
        changes = [(old, tuple([values.get(place, value) for place, value in enumerate(old)])) for old in found]
        key_of = self._cache.key_of
        moved = [(new, key_of(new)) for old, new in changes if key_of(new) != key_of(old)]
        for place, (new, key) in enumerate(moved):
            if self._cache.has(key) or any(key == other for _, other in moved[:place]):
                raise self._duplicate(new, None)
        for old, new in changes:
            if key_of(new) != key_of(old):
                self._remove(old)
            self._cache.replace(old, new)
            self._waiting.append(new)
        self._flush_if_many()
        return len(changes)

    def delete(self, found: Sequence[Row]) -> int:
        """Removes rows that were found; gives their number."""
        for row in found:
            self._remove(row)
            self._cache.replace(row, None)
        self._flush_if_many()
        return len(found)

    def known_columns(self, names: Iterable[Any]) -> list[str]:
        """These names, all of which must be columns."""
        listed = list(names)
        with _mistakes_of_the_statement():
            self.shape.require_known(listed)
        return listed

    def require_key(self, verb: str) -> None:
        """Refuses to change rows of a table without a key."""
        if not self.shape.key:
            raise NotSupportedError(
                f"{self.shape.name} has no key, so {verb} cannot say which rows it means",
                hint="rows can only be added to it; declare it with a PRIMARY KEY to change them",
            )

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Takes back what was done to this table inside when an error leaves it."""
        self.flush()
        first, mark = self._transaction.sequence, self._cache.mark()
        try:
            yield
        except BaseException:
            self._waiting.clear()
            self._deleted.clear()
            self._transaction.take_back(first)
            self._cache.back_to(mark)
            raise

    def flush(self) -> None:
        """Hands waiting rows to the transaction."""
        rows = self._waiting
        if rows:
            ops = np.full(len(rows), UPSERT, dtype=np.int8)
            ops[self._deleted] = DELETE
            self._transaction.add(self._name, self.shape, self._columns(rows), ops)
            self._waiting = []
            self._deleted = []

    def committed(self) -> None:
        """The transaction's rows are committed."""
        self._cache.committed()

    def rolled_back(self) -> None:
        """The transaction's rows are dropped."""
        self._waiting.clear()
        self._deleted.clear()
        self._cache.rolled_back()

    def _insert_few(self, given: Sequence[Any], arrangement: Arrangement) -> int:
        if not given:
            return 0
        rows: list[Row] = []
        for number, values in enumerate(given, 1):
            row = self._arranged(values, arrangement, number)
            rows.append(row if self._is_exact(*row) else self._checked(row, number))
        if (place := self._cache.insert_rows(rows)) is not None:
            raise self._duplicate(rows[place], place + 1)
        self._waiting.extend(rows)
        self._flush_if_many()
        return len(rows)

    def _converted(self, chunk: Sequence[Any], arrangement: Arrangement, before: int) -> list[pa.Array]:
        try:
            columns = arrangement.columns(chunk)
            return [arrow_column(column, field) for column, field in zip(columns, self.shape.fields, strict=True)]
        except (ColumnDoesNotFit, LookupError, TypeError):
            return self._columns(
                [
                    self._checked(self._arranged(values, arrangement, number), number)
                    for number, values in enumerate(chunk, before + 1)
                ]
            )

    def _columns(self, rows: Sequence[Row]) -> list[pa.Array]:
        return [
            pa.array(list(map(itemgetter(place), rows)), field.type) for place, field in enumerate(self.shape.fields)
        ]

    def _take(self, columns: Sequence[pa.Array], before: int) -> int:
        count = len(columns[0])
        if count:
            if (place := self._cache.insert_columns(columns)) is not None:
                raise self._duplicate(tuple(column[place].as_py() for column in columns), before + place + 1)
            self._transaction.add(self._name, self.shape, columns, np.full(count, UPSERT, dtype=np.int8))
        return count

    def _remove(self, row: Row) -> None:
        self._deleted.append(len(self._waiting))
        key = self.shape.key
        self._waiting.append(
            tuple(value if name in key else None for name, value in zip(self.shape.columns, row, strict=True))
        )

    def _flush_if_many(self) -> None:
        if len(self._waiting) >= _WAITING_ROWS:
            self.flush()

    def _open_rows(self) -> list[pa.RecordBatch]:
        self.flush()
        return self._transaction.rows_of(self._name)

    def _arranged(self, values: Any, arrangement: Arrangement, number: int) -> Row:
        try:
            return arrangement.row(values)
        except Error as error:
            raise about_row(error, number, values) from None

    def _checked(self, values: Row, number: int | None) -> Row:
        for value, field in zip(values, self.shape.fields, strict=True):
            if value is None and not field.nullable:
                hint = "it is a key column" if field.name in self.shape.key else "give it a value"
                error = NotNullViolation(f"{self.shape.name}.{field.name} cannot be NULL", hint=hint)
                raise about_row(error, number, values)
        try:
            row = self.shape.values(values)
        except HeadgateError as error:
            raise about_row(DataError(error.what, hint=error.advice), number, values) from error
        return tuple([stored(value, field.type) for value, field in zip(row, self.shape.fields, strict=True)])

    def _wanted(self, place: int, value: object) -> object:
        try:
            return stored(self.shape.wanted(self.shape.columns[place], value), self.shape.fields[place].type)
        except HeadgateError as error:
            raise pep_249(error) from error

    def _assigned(self, place: int, value: object) -> object:
        field = self.shape.fields[place]
        if value is None and not field.nullable:
            raise NotNullViolation(f"{self.shape.name}.{field.name} cannot be NULL", hint="give it a value")
        return self._wanted(place, value)

    def _duplicate(self, row: Row, number: int | None) -> Error:
        key = ", ".join(
            f"{name} = {shown(value)}"
            for name, value in zip(self.shape.columns, row, strict=True)
            if name in self.shape.key
        )
        return about_row(
            UniqueViolation(f"{self.shape.name} has a row with {key} already", hint="UPDATE it, or use another key"),
            number,
            row,
        )

    def _about_arrow(self, error: TransactionError, batch: pa.RecordBatch, before: int) -> Error:
        """The error with the first row that causes it, if it is a row and not the column's type."""
        for number, row in enumerate(batch.to_pylist(maps_as_pydicts="strict"), before + 1):
            values = tuple(row.get(column) for column in self.shape.columns)
            try:
                self._checked(values, number)
            except Error as found:
                return found
        return DataError(error.what, hint=error.advice)


@contextmanager
def _mistakes_of_the_statement() -> Iterator[None]:
    try:
        yield
    except HeadgateError as error:
        raise ProgrammingError(error.what, hint=error.advice) from error
