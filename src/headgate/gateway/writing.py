"""INSERT and COPY of a connection: rows into tables of producers, at once or when their transaction is committed; rows out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from sqlglot import exp

from headgate.gateway.answers import CopyIn, CopyOut, Done, Followed, Result
from headgate.gateway.copied import CopiedRows
from headgate.gateway.copying import Copy, parse_copy
from headgate.gateway.cursors import rows_of_result
from headgate.gateway.dialect import bound, quoted_name
from headgate.gateway.prepared import Begin
from headgate.gateway.problems import NOT_SUPPORTED, SYNTAX, WireProblem
from headgate.gateway.producing import GivenRows, Writes, columns_of_table, inserted, values_of
from headgate.gateway.queries import Made, Work
from headgate.gateway.reading import parsed
from headgate.gateway.settings import ConnectionSettings
from headgate.gateway.statements import Statement, split
from headgate.gateway.transactions import Transactions
from headgate.gateway.types import WireColumn
from headgate.scheduling.warehouse import Warehouse


class RowWriter:
    def __init__(
        self, warehouse: Warehouse, settings: ConnectionSettings, transactions: Transactions, begin: Begin
    ) -> None:
        self._warehouse = warehouse
        self._settings = settings
        self._transactions = transactions
        self._begin = begin

    def insert(self, statement: Statement, values: Sequence[object]) -> Made:
        tree = bound(parsed(statement.text), values)
        if not isinstance(tree, exp.Insert):
            raise WireProblem(SYNTAX, "cannot read this INSERT", at=0)
        name, listed, given = inserted(tree)
        table, columns = columns_of_table(self._warehouse, name, listed)
        if isinstance(given, exp.Values):
            return lambda work: self._written(table, columns, values_of(given, columns), "INSERT 0")
        make = self._begin(split(given.sql(dialect="postgres"))[0], ())

        def insert(work: Work) -> Done:
            found = rows_of_result(make(work) if callable(make) else make)
            if len(found.columns) != len(columns):
                raise WireProblem(
                    SYNTAX, f"INSERT has {len(columns)} target columns, and its query {len(found.columns)}"
                )
            rows = [
                row
                for batch in found.batches
                for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)
            ]
            return self._written(table, columns, rows, "INSERT 0")

        return insert

    def copy(self, statement: Statement, values: Sequence[object]) -> Result | Made:
        """COPY … FROM STDIN, whose rows come afterwards, or COPY … TO STDOUT."""
        copy = parse_copy(statement)
        if copy.is_in:
            table, columns = columns_of_table(self._warehouse, ".".join(copy.table[-2:]), copy.columns)
            return CopyIn(table, columns, copy.options)
        queries = split(_copied_query(copy))
        if not queries:
            raise WireProblem(SYNTAX, "expected a query", at=0)
        make = self._begin(queries[0], values)

        def out(work: Work) -> Result:
            work.is_streamed = True
            found = make(work) if callable(make) else make
            return CopyOut(found if isinstance(found, Followed) else rows_of_result(found), copy.options)

        return out

    def copied(self, copy: CopyIn, rows: CopiedRows) -> Made:
        """Takes the rows that came after COPY … FROM STDIN."""
        return lambda work: self._written(copy.table, copy.columns, rows, "COPY")

    def _written(
        self, table: str, columns: Sequence[WireColumn], values: Sequence[Sequence[object]] | CopiedRows, tag: str
    ) -> Done:
        """Has rows written, or keeps them for COMMIT; then mistakes in them are told now nevertheless."""
        _, every = columns_of_table(self._warehouse, table)
        rows = GivenRows(every, columns, values, self._settings.zone)
        transaction = self._transactions.open
        if transaction is None:
            writes = Writes()
            writes.add(table, rows)
            with closing(writes):
                return Done(f"{tag} {writes.commit(self._warehouse)}")
        if transaction.definitions:
            raise WireProblem(
                NOT_SUPPORTED,
                "a transaction inserts rows or defines flows, not both",
                hint="COMMIT what it defines first",
            )
        count = sum(1 for _ in rows)
        transaction.writes.add(table, rows)
        return Done(f"{tag} {count}")


def is_copied_in(statement: Statement) -> bool:
    return statement.word(0) == "COPY" and parse_copy(statement).is_in


def _copied_query(copy: Copy) -> str:
    if copy.query is not None:
        return copy.query
    table = ".".join(quoted_name(part) for part in copy.table)
    columns = ", ".join(quoted_name(name) for name in copy.columns) or "*"
    return f"SELECT {columns} FROM {table}"
