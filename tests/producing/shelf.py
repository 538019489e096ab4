"""A real channel without a warehouse: committed rows stand on a shelf in memory, and DuckDB answers queries about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import sqlglot
from pyspark.sql.types import StructType

from headgate.capture.shape import Shape
from headgate.capture.source import SourceTable
from headgate.delta.events import DELETE, OP, SEQUENCE, UNCHANGED
from headgate.errors import ProducerBusy, UnknownTable
from headgate.producing import Connection, Policy

Row = dict[str, object]
START = datetime(2024, 1, 1, tzinfo=UTC)


def table(name: str, columns: str, key: tuple[str, ...] = ()) -> SourceTable:
    """A table from its columns as JSON names them: `id long, name string`; a `!` after the type forbids NULL."""
    schema = StructType()
    for column in columns.split(", "):
        field, kind = column.split(" ")
        schema.add(field, kind.rstrip("!"), not kind.endswith("!"))
    return SourceTable(name, schema, key)


class Shelf:
    """Implements `Channel`; `queries` are those it was asked, `commits` the rows of each commit by table."""

    source = "etl"

    def __init__(self, *tables: SourceTable, taken: Collection[str] = ()) -> None:
        self.tables: Mapping[str, SourceTable] = {each.name: each for each in tables}
        self.content: dict[str, list[Row]] = {name: [] for name in self.tables}
        self.queries: list[str] = []
        self.lookups = 0
        self.commits: list[dict[str, int]] = []
        self.lazy: list[datetime] = []
        self.claimed: set[str] = set()
        self.sorted_by_key = True
        self.failing: Exception | None = None
        self.flushed: Callable[[str], None] | None = None
        self.materialized = 0
        self.is_closed = False
        self._taken = taken

    def connection(self, *tables: str, policy: Policy | None = None, **options: object) -> Connection:
        self.flushed = None if policy is None else policy.flushed
        return Connection(self, tables or tuple(self.tables), policy=policy, **options)  # type: ignore[arg-type]

    @property
    def archives(self) -> int:
        return len(self.lazy)

    def claim(self, tables: Collection[str]) -> None:
        for name in tables:
            if name in self._taken:
                raise ProducerBusy(f"{self.source}.{name} is written by another", hint="wait")
        self.claimed |= set(tables)

    def create(self, table: SourceTable) -> None:
        self.tables = {**self.tables, table.name: table}
        self.content[table.name] = []
        self.claimed.add(table.name)

    def drop(self, table: str) -> None:
        self.tables = {name: each for name, each in self.tables.items() if name != table}
        del self.content[table]

    def count(self, table: str) -> int:
        return len(self.content[table])

    def rows(self, table: str) -> pa.Table:
        fields = Shape(self.source, self.tables[table]).fields
        return pa.Table.from_pylist(self.content[table], pa.schema(fields))

    def lookup(self, table: str, columns: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
        self.lookups += 1
        if not self.sorted_by_key or columns != self.tables[table].key:
            return None
        wanted = {tuple(key.values()) for key in keys.to_pylist()}
        found = [row for row in self.content[table] if tuple(row[column] for column in columns) in wanted]
        return pa.Table.from_pylist(found, self.rows(table).schema)

    def query(self, text: str) -> pa.Table:
        self.queries.append(text)
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.execute(f"CREATE SCHEMA {self.source}")
            for name in self.tables:
                database.register("shelf", self.rows(name))
                database.execute(f'CREATE TABLE {self.source}."{name}" AS SELECT * FROM shelf')
            try:
                return database.sql(sqlglot.transpile(text, "spark", "duckdb")[0]).to_arrow_table()
            except duckdb.CatalogException as error:
                raise UnknownTable(str(error), hint="look at the catalog") from error

    def commit(
        self, rows: Iterable[tuple[str, pa.RecordBatch]], *, durable: bool = True, lazy: bool = False
    ) -> datetime | None:
        batches = list(rows)
        if self.failing is not None:
            raise self.failing
        counts: dict[str, int] = {}
        for name in dict.fromkeys(name for name, _ in batches):
            events = [row for each, batch in batches if each == name for row in batch.to_pylist()]
            assert name in self.claimed
            assert len({event[SEQUENCE] for event in events}) == len(events)
            counts[name] = len(events)
            self._apply(name, sorted(events, key=lambda event: event[SEQUENCE]))  # type: ignore[no-any-return]
        if not counts:
            return None
        self.commits.append(counts)
        at = START + timedelta(seconds=len(self.commits))
        if lazy:
            self.lazy.append(at)
        return at

    def _apply(self, name: str, events: list[Row]) -> None:
        key = self.tables[name].key
        columns = self.tables[name].schema.names
        if not key:
            self.content[name] += [{column: event[column] for column in columns} for event in events]
            return
        by_key = {tuple(row[column] for column in key): row for row in self.content[name]}
        for event in events:
            place = tuple(event[column] for column in key)
            assert None not in place
            assert event[UNCHANGED] == []
            if event[OP] == DELETE:
                del by_key[place]
            else:
                by_key[place] = {column: event[column] for column in columns}
        self.content[name] = list(by_key.values())

    def flush(self, upto: datetime | None = None) -> None:
        self._flush("policy", upto)

    def demand(self, upto: datetime | None = None) -> None:
        """A reader needs what was committed up to a time."""
        self._flush("demand", upto)

    def _flush(self, reason: str, upto: datetime | None = None) -> None:
        due = [at for at in self.lazy if upto is None or at <= upto]
        self.lazy = [at for at in self.lazy if at not in due]
        if due and self.flushed is not None:
            self.flushed(reason)

    def materialize(self) -> None:
        self._flush("materialize")
        self.materialized += 1

    def close(self) -> None:
        self._flush("close")
        self.is_closed = True
