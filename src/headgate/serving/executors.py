"""Rows in number on their way to a platform: each of Spark's tasks copies its partition, in one transaction of its own.

A partition that was copied is noted in the same transaction. A task that runs again, because its executor was lost after the
commit or another attempt was quicker, finds the note and copies nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext
from pyspark.sql import DataFrame

from headgate.capture.postgres.connection import connect
from headgate.serving.columns import COPY_OPTIONS, copied
from headgate.serving.layout import PARTS

MOST_TASKS = 8
"""Sessions that a shipment may open at the platform, however large the cluster is."""
_COUNT = "rows bigint"


def copy_frame(frame: DataFrame, dsn: str, schema: str, relation: str) -> tuple[str, int]:
    """Has executors copy the frame's rows into a table; gives the shipment's name, for its notes, and how many rows it had."""
    name = secrets.token_hex(8)
    task = _CopyTask(dsn, schema, relation, tuple(frame.columns), name)
    counted = frame.coalesce(MOST_TASKS).mapInArrow(task, _COUNT).collect()
    return name, sum(row.rows for row in counted)


@dataclass(frozen=True, slots=True)
class _CopyTask:
    """What one task does; the password is inside the pickled task, and in no plan that Spark shows."""

    dsn: str = field(repr=False)
    schema: str
    relation: str
    columns: tuple[str, ...]
    shipment: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        rows = 0
        with connect(self.dsn, application="headgate-shipping") as connection, connection.transaction():
            noted = connection.execute(
                sql.SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT DO NOTHING").format(
                    sql.Identifier(self.schema, PARTS)
                ),
                [self.shipment, context.partitionId()],
            )
            fresh = noted.rowcount == 1
            for batch in batches:
                rows += batch.num_rows
                if fresh and batch.num_rows:
                    self._copy(connection, batch)
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], names=["rows"])

    def _copy(self, connection: psycopg.Connection, batch: pa.RecordBatch) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN " + COPY_OPTIONS).format(
            sql.Identifier(self.schema, self.relation), sql.SQL(", ").join(map(sql.Identifier, self.columns))
        )
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(copied(pa.Table.from_batches([batch])))
