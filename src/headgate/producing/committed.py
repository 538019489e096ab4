"""The committed rows of one table, asked of the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture.shape import Shape
from headgate.producing.channel import Channel
from headgate.producing.dbapi import errors_of_pep_249
from headgate.producing.known import Key, Row
from headgate.producing.parameters import literal
from headgate.sql.names import quoted

_KEYS_PER_QUERY = 500


class CommittedRows:
    """Rows are tuples in the order of the table's columns."""

    def __init__(self, channel: Channel, table: str, shape: Shape) -> None:
        self._channel = channel
        self._table = table
        self._shape = shape
        self._name = f"{quoted(channel.source)}.{quoted(table)}"

    def count(self) -> int:
        """How many there are."""
        with errors_of_pep_249():
            return self._channel.count(self._table)

    def all(self) -> list[Row]:
        """All of them; for tables that fit into memory."""
        with errors_of_pep_249():
            return self.rows_of(self._channel.rows(self._table))

    def greatest(self, column: str, *, small: bool = False) -> Any:
        """The greatest value of a column; of a small table it is found without Spark."""
        with errors_of_pep_249():
            if small:
                return pc.max(self._channel.rows(self._table).column(column)).as_py()
            return (
                self._channel.query(f"SELECT MAX({quoted(column)}) AS greatest FROM {self._name}").column(0)[0].as_py()
            )

    def with_keys(self, keys: Sequence[Key]) -> list[Row]:
        """Those with one of the keys."""
        parts = [[key] for key in keys] if len(self._shape.key) == 1 else keys
        types = [self._shape.rows.field(column).type for column in self._shape.key]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*parts, strict=True), types, strict=True)]
        with errors_of_pep_249():
            found = self._channel.lookup(self._table, self._shape.key, pa.table(columns, names=self._shape.key))
        if found is not None:
            return self.rows_of(found)
        rows: list[Row] = []
        for start in range(0, len(parts), _KEYS_PER_QUERY):
            chunk = parts[start : start + _KEYS_PER_QUERY]
            rows += self._query(" OR ".join(_all_equal(self._shape.key, [[part] for part in key]) for key in chunk))
        return rows

    def where(self, places: tuple[int, ...], choices: Sequence[Sequence[Any]]) -> list[Row]:
        """Those whose columns at these places have one of the values each."""
        return (
            self._query(_all_equal([self._shape.columns[place] for place in places], choices)) if all(choices) else []
        )

    def rows_of(self, table: pa.Table | pa.RecordBatch) -> list[Row]:
        """Arrow rows as tuples."""
        return list(zip(*(table.column(column).to_pylist() for column in self._shape.columns), strict=True))

    def _query(self, where: str) -> list[Row]:
        with errors_of_pep_249():
            answer = self._channel.query(f"SELECT * FROM {self._name}" + (f" WHERE {where}" if where else ""))
        return self.rows_of(answer)


def _all_equal(columns: Sequence[str], choices: Sequence[Sequence[Any]]) -> str:
    return " AND ".join(map(_equal, columns, choices))


def _equal(column: str, values: Sequence[Any]) -> str:
    """A condition that the column has one of the values."""
    tests = [f"{quoted(column)} = {literal(value)}" for value in values if value is not None]
    if len(tests) < len(values):
        tests.append(f"{quoted(column)} IS NULL")
    return f"({' OR '.join(tests)})"
