"""PostgreSQL, loaded row by row, in batches, and by COPY, from the program and from a file.

The server's settings are generous and it syncs at each commit, as it does by default. The program connects by TCP to this machine. Whole
numbers go as `integer`, so that one prepared statement serves all rows.
"""

from __future__ import annotations

from types import TracebackType

import psycopg
import pyarrow.csv
from psycopg import sql
from psycopg.types.numeric import Int4Dumper

from benchmarks.rite_rows import COLUMNS, SUMS, Data, Sums, rows
from benchmarks.rite_sides import COMMIT_EVERY, insert_batches, insert_each
from headgate.capture.postgres.private_server import PostgresServer

_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "wal_level": "replica"}
_TABLE = "sales"
_CREATE = f"CREATE TABLE {_TABLE} ({', '.join(f'{column} integer' for column in COLUMNS)})"


class Postgres:
    """A private server with one table."""

    def __init__(self) -> None:
        self._server = PostgresServer(settings=_SETTINGS, fsync=True)
        self._file = self._server.folder / "sales.csv"

    def __enter__(self) -> Postgres:
        try:
            self._server.start()
            self._writer, self._reader = self._connect(), self._connect(autocommit=True)
            self._reader.execute(_CREATE.encode())
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in (self._writer, self._reader):
            connection.close()
        self._server.close()

    def begin(self) -> None:
        for statement in (f"TRUNCATE {_TABLE}", "CHECKPOINT"):
            self._reader.execute(statement.encode())

    def read(self) -> Sums:
        found = self._reader.execute(SUMS.format(table=_TABLE).encode()).fetchone()
        assert found is not None
        return Sums(found[0], found[1] or 0)

    def insert(self, data: Data) -> None:
        insert_each(self._writer, _TABLE, data.count, every=data.count)

    def insert_short(self, data: Data) -> None:
        insert_each(self._writer, _TABLE, data.count, every=COMMIT_EVERY)

    def batches(self, data: Data) -> None:
        insert_batches(self._writer, _TABLE, data.count)

    def batches_short(self, data: Data) -> None:
        insert_batches(self._writer, _TABLE, data.count, short=True)

    def copy(self, data: Data) -> None:
        self._copy(data.count, f"COPY {_TABLE} FROM STDIN")

    def copy_binary(self, data: Data) -> None:
        """The binary format needs the types to be named."""
        self._copy(data.count, f"COPY {_TABLE} FROM STDIN (FORMAT BINARY)", ["int4"] * len(COLUMNS))

    def write_file(self, data: Data) -> None:
        """What `copy_file` will load."""
        pyarrow.csv.write_csv(data.table, self._file, pyarrow.csv.WriteOptions(include_header=False))
        # The server may run as another user.
        self._file.chmod(0o644)

    def copy_file(self, data: Data) -> None:
        """The server itself reads the file."""
        statement = sql.SQL("COPY {} FROM {} (FORMAT CSV)")
        self._writer.execute(statement.format(sql.Identifier(_TABLE), sql.Literal(str(self._file))))
        self._writer.commit()

    def _connect(self, *, autocommit: bool = False) -> psycopg.Connection:
        connection = psycopg.connect(self._server.dsn, autocommit=autocommit, prepare_threshold=0)
        connection.adapters.register_dumper(int, Int4Dumper)
        return connection

    def _copy(self, count: int, statement: str, types: list[str] | None = None) -> None:
        with self._writer.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            if types is not None:
                copy.set_types(types)
            for row in rows(count):
                copy.write_row(row)
        self._writer.commit()
