"""A PEP 249 cursor: runs one statement at a time and hands out its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.producing import plans
from headgate.producing.arrangement import Arrangement, about_row, value_of
from headgate.producing.dbapi import Description, Error, InterfaceError, ProgrammingError, described
from headgate.producing.known import Row
from headgate.producing.parameters import Parameters
from headgate.producing.table import ProducerTable
from headgate.producing.tables import OwnTables

if TYPE_CHECKING:
    from headgate.producing.connection import Connection

_ROWS_PER_FETCH = 10_000


class Cursor:
    """Made by `Connection.cursor`.

    A SELECT of columns, or of MAX(column), from one of the producer's own tables with conditions `column = value` sees the rows
    of the open transaction. All other queries are the warehouse's: they see what is committed, by anyone.
    """

    def __init__(self, connection: Connection, tables: OwnTables) -> None:
        self.connection = connection
        self._tables = tables
        self.description: list[Description] | None = None
        self.rowcount = -1
        self.arraysize = 1
        self._results: Iterator[Row] | None = None
        self._is_closed = False

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Runs a statement. An error leaves the transaction as it was."""
        if self._is_closed or self.connection.is_closed:
            self._require_open()
        plan = self._tables.plan(operation, parameters is not None)
        if type(plan) is plans.InsertRows and len(plan.rows) == 1:
            self._results = self.description = None
            arrangement = plan.rows[0]
            pick = arrangement.pick
            if pick is not None and (
                (type(parameters) is tuple and len(parameters) == arrangement.width)
                or (arrangement.width is None and type(parameters) is dict)
            ):
                try:
                    row = pick(parameters)
                except LookupError:
                    row = arrangement.row(parameters)
            else:
                row = arrangement.row(() if parameters is None else parameters)
            self._tables.own(plan.table).insert(row)
            self.rowcount = 1
            return self
        self._run(plan, () if parameters is None else parameters)
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Cursor:
        """Runs a statement for each set of parameters, read a few thousand at a time: any iterable of any length will do.

        An error takes back what the call has done so far.
        """
        self._require_open()
        plan = self._tables.plan(operation, True)
        self._results = self.description = None
        match plan:
            case plans.InsertRows() if len(plan.rows) == 1:
                self.rowcount = self._tables.own(plan.table).insert_many(seq_of_parameters, plan.rows[0])
            case plans.InsertRows() | plans.Update() | plans.Delete():
                count = 0
                with self._tables.own(plan.table).all_or_nothing():
                    for number, parameters in enumerate(seq_of_parameters, 1):
                        try:
                            self._run(plan, parameters)
                        except Error as error:
                            raise about_row(error, number, parameters) from error
                        count += self.rowcount
                self.rowcount = count
            case _:
                raise ProgrammingError(
                    "executemany takes INSERT … VALUES, UPDATE and DELETE", hint="use execute for other statements"
                )
        return self

    def insert(self, table: str, data: object) -> int:
        """Adds many rows to a table the fastest way; gives their number. An error takes them back.

        The data is an Arrow Table, RecordBatch or RecordBatchReader, whose columns are known by their names, or an iterable
        of tuples in the order of the table's columns, or of mappings with the names of columns.
        """
        self._require_open()
        self._results = self.description = None
        target = self._tables.own(self._tables.resolved(table))
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if isinstance(data, pa.Table):
            self.rowcount = target.insert_arrow(data.schema, data.to_batches())
        elif isinstance(data, pa.RecordBatchReader):
            self.rowcount = target.insert_arrow(data.schema, data)
        elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, Mapping)):
            rows = iter(data)
            first = next(rows, None)
            if first is None:
                self.rowcount = 0
                return 0
            columns = target.shape.columns
            arrangement = (
                Arrangement.named(columns, target.known_columns(first))
                if isinstance(first, Mapping)
                else Arrangement.plain(len(columns))
            )
            self.rowcount = target.insert_many(chain((first,), rows), arrangement)
        else:
            raise ProgrammingError(
                f"rows for {target.shape.name} cannot be a {type(data).__name__}",
                hint="give a pyarrow Table, RecordBatch or RecordBatchReader, or an iterable of tuples or mappings",
            )
        return self.rowcount

    def fetchone(self) -> Row | None:
        """The next row of the result; None after the last."""
        return next(self._fetching(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows, by default `arraysize` of them."""
        rows = self._fetching()
        return [row for _, row in zip(range(self.arraysize if size is None else size), rows, strict=False)]

    def fetchall(self) -> list[Row]:
        """All remaining rows."""
        return list(self._fetching())

    def __iter__(self) -> Iterator[Row]:
        return self._fetching()

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Nothing to prepare."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to prepare."""

    def close(self) -> None:
        """The cursor cannot be used any more."""
        self._is_closed = True
        self._results = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, plan: plans.Plan, parameters: Parameters) -> None:
        self._results = self.description = None
        self.rowcount = -1
        match plan:
            case plans.InsertRows():
                rows = [arrangement.row(parameters) for arrangement in plan.rows]
                table = self._tables.own(plan.table)
                self.rowcount = table.insert_many(rows, Arrangement.plain(len(table.shape.columns)))
            case plans.InsertQuery():
                self.rowcount = self._insert_query(plan, parameters)
            case plans.SelectRows() if self._tables.owns(plan.table):
                table = self._tables.own(plan.table)
                found = table.find(plan.conditions.places, plan.conditions.choices(parameters))
                self._answer(plan.result(found), _described(plan.names, plan.places, table))
            case plans.SelectGreatest() if self._tables.owns(plan.table):
                table = self._tables.own(plan.table)
                self._answer([(table.greatest(plan.place),)], _described([plan.name], [plan.place], table))
            case plans.SelectRows() | plans.SelectGreatest():
                self._run(plan.query, parameters)
            case plans.OwnRowsQuery():
                answer = self._tables.query(plan.filled(parameters))
                self._answer(_tuples(answer), [described(field) for field in answer.schema], answer.num_rows)
            case plans.Update():
                table, found = self._found(plan, "UPDATE", parameters)
                self.rowcount = table.update(
                    found, [(place, value_of(value, parameters)) for place, value in plan.assigned]
                )
            case plans.Delete():
                table, found = self._found(plan, "DELETE", parameters)
                self.rowcount = table.delete(found)
            case plans.CreateTable():
                self._tables.create(plan.table, if_not_exists=plan.if_not_exists)
            case plans.DropTable():
                if plan.table is not None:
                    self._tables.drop(plan.table)

    def _found(
        self, plan: plans.Update | plans.Delete, verb: str, parameters: Parameters
    ) -> tuple[ProducerTable, list[Row]]:
        table = self._tables.own(plan.table)
        table.require_key(verb)
        return table, table.find(plan.conditions.places, plan.conditions.choices(parameters))

    def _insert_query(self, plan: plans.InsertQuery, parameters: Parameters) -> int:
        table = self._tables.own(plan.table)
        answer = self._tables.query(plan.query.filled(parameters))
        if answer.num_columns != len(plan.columns):
            raise ProgrammingError(
                f"{answer.num_columns} columns are given for {len(plan.columns)} columns of {table.shape.name}"
            )
        answer = answer.rename_columns(list(plan.columns))
        return table.insert_arrow(answer.schema, answer.to_batches())

    def _answer(self, rows: Iterable[Row], description: list[Description], count: int | None = None) -> None:
        self.rowcount = len(rows) if isinstance(rows, list) else -1 if count is None else count
        self.description = description
        self._results = iter(rows)

    def _fetching(self) -> Iterator[Row]:
        self._require_open()
        if self._results is None:
            raise InterfaceError("there is no result to fetch", hint="execute a SELECT first")
        return self._results

    def _require_open(self) -> None:
        if self._is_closed or self.connection.is_closed:
            what = "connection" if self.connection.is_closed else "cursor"
            raise InterfaceError(f"the {what} is closed", hint="connect again, or open another cursor")


def _described(names: Sequence[str], places: Sequence[int], table: ProducerTable) -> list[Description]:
    return [described(table.shape.fields[place].with_name(name)) for name, place in zip(names, places, strict=True)]


def _tuples(answer: pa.Table) -> Iterator[Row]:
    """The rows as Python values, a few thousand at a time."""
    for batch in answer.to_batches(max_chunksize=_ROWS_PER_FETCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
