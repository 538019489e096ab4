"""The tables of a producer's source: those that this producer has and writes to, and the statements that name them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import pyarrow as pa

from headgate.capture.source import SourceTable
from headgate.producing.channel import Channel
from headgate.producing.dbapi import ProgrammingError, errors_of_pep_249
from headgate.producing.parameters import Template, marked
from headgate.producing.plans import Plan
from headgate.producing.statements import Statements
from headgate.producing.table import ProducerTable
from headgate.producing.transaction import OpenTransaction
from headgate.sql.names import did_you_mean, folded

_REMEMBERED_STATEMENTS = 1000


class OwnTables:
    """Tables are claimed when the connection is made, or when they are first written to."""

    def __init__(
        self,
        channel: Channel,
        claimed: Collection[str],
        transaction: OpenTransaction,
        *,
        cache_rows: int,
        paramstyle: str,
    ) -> None:
        self._channel = channel
        self._transaction = transaction
        self._cache_rows = cache_rows
        self._paramstyle = paramstyle
        self._own: dict[str, ProducerTable] = {}
        self._read_names()
        names = [self.resolved(name) for name in claimed]
        with errors_of_pep_249():
            channel.claim(names)
        for name in names:
            self._take(name)

    def _read_names(self) -> None:
        """Statements are understood anew when there are other tables."""
        self._statements = Statements(self._channel.source, self._channel.tables)
        self.plan = lru_cache(_REMEMBERED_STATEMENTS)(self._plan)

    def _plan(self, text: str, has_parameters: bool) -> Plan:
        """What a statement comes down to. Without parameters its text is taken as it is."""
        return self._statements.plan(marked(text, self._paramstyle) if has_parameters else Template(text))

    def owns(self, table: str) -> bool:
        """Whether this producer has the table."""
        return table in self._own

    def own(self, table: str) -> ProducerTable:
        """A table to write to; it is claimed if it was not."""
        found = self._own.get(table)
        if found is None:
            with errors_of_pep_249():
                self._channel.claim([table])
            found = self._take(table)
        return found

    def resolved(self, name: str) -> str:
        """A table's own name, from `table` or `source.table` in any case."""
        tables = {folded(table): table for table in self._channel.tables}
        prefix = f"{folded(self._channel.source)}."
        wanted = folded(name)
        found = tables.get(wanted) or tables.get(wanted.removeprefix(prefix))
        if found is None:
            raise ProgrammingError(
                f"{self._channel.source} has no table {name}",
                hint=did_you_mean(name, self._channel.tables) or "create it with CREATE TABLE",
            )
        return found

    def create(self, table: SourceTable, *, if_not_exists: bool) -> None:
        """Declares a table, at once: this is not part of the transaction."""
        if table.name in self._channel.tables:
            if if_not_exists:
                return
            raise ProgrammingError(
                f"{self._channel.source} has a table {table.name} already", hint="write CREATE TABLE IF NOT EXISTS"
            )
        with errors_of_pep_249(otherwise=ProgrammingError):
            self._channel.create(table)
        self._take(table.name)
        self._read_names()

    def drop(self, table: str) -> None:
        """Drops a table, at once: this is not part of the transaction."""
        own = self.own(table)
        own.flush()
        if self._transaction.rows_of(table):
            raise ProgrammingError(
                f"{table} cannot be dropped while the open transaction has rows for it",
                hint="commit or roll back first",
            )
        with errors_of_pep_249():
            self._channel.drop(table)
        del self._own[table]
        self._read_names()

    def query(self, text: str) -> pa.Table:
        """The warehouse's answer."""
        with errors_of_pep_249():
            return self._channel.query(text)

    def flush(self) -> None:
        """Hands all waiting rows to the transaction."""
        for table in self._own.values():
            table.flush()

    def committed(self) -> None:
        """The transaction's rows are committed."""
        for table in self._own.values():
            table.committed()

    def forget(self) -> None:
        """Other connections wrote rows of these tables: what is known of them is asked anew."""
        for name in self._own:
            self._take(name)

    def rolled_back(self) -> None:
        """The transaction's rows are dropped."""
        for table in self._own.values():
            table.rolled_back()

    def _take(self, name: str) -> ProducerTable:
        definition = self._channel.tables[name]
        with errors_of_pep_249(otherwise=ProgrammingError):
            table = ProducerTable(self._channel, definition, self._transaction, self._cache_rows)
        self._own[name] = table
        return table
