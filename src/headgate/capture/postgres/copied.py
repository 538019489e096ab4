"""Rows of a query as Arrow strings, through COPY: the server's own text of every value, parsed by Arrow.

A cast to text would not do: of booleans and char(n), for instance, it differs from what the log and COPY write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

BATCH_BYTES = 8 << 20


def copied(
    connection: psycopg.Connection, query: sql.Composable, columns: Sequence[str], *, batch_bytes: int = BATCH_BYTES
) -> Iterator[pa.Table]:
    """The query's rows, all columns as strings, in batches of about this size."""
    statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        parts: list[bytes] = []
        size = 0
        # PostgreSQL sends one row a message, so that a batch never cuts one.
        for part in copy:
            parts.append(bytes(part))
            size += len(part)
            if size >= batch_bytes:
                yield parse_rows(b"".join(parts), columns)
                parts, size = [], 0
        if parts:
            yield parse_rows(b"".join(parts), columns)


def parse_rows(content: bytes, columns: Sequence[str]) -> pa.Table:
    """Rows in PostgreSQL's CSV: what is quoted is a value, nothing at all is NULL."""
    return csv.read_csv(
        pa.BufferReader(content),
        # One block, since a row may be of any size and may not straddle two.
        read_options=csv.ReadOptions(column_names=list(columns), block_size=len(content) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
