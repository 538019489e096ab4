"""Event rows from texts: the server's texts of a table's columns, decoded, with what happened and in which order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.capture.events import ROW_FIELDS, row_schema
from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.values import decoder

Ops = npt.NDArray[np.int8]
Numbers = npt.NDArray[np.int64]


class EventRows:
    """Builds the event rows of one table."""

    def __init__(self, table: PostgresTable) -> None:
        self.table = table
        self.schema = row_schema(to_arrow_schema(table.source_table.schema, timezone="UTC"))
        self._decoders = {column.name: decoder(column, table.source_table.name) for column in table.columns}

    def build(self, texts: Mapping[str, pa.Array], ops: Ops, sequences: Numbers) -> pa.RecordBatch:
        """Events with the given columns, as strings; columns that are not given are NULL. Nothing is left unchanged."""
        count = len(ops)
        arrays = [
            decode(texts[name]) if name in texts else pa.nulls(count, self.schema.field(name).type)
            for name, decode in self._decoders.items()
        ]
        none = pa.ListArray.from_arrays(
            pa.array(np.zeros(count + 1, dtype=np.int32)), pa.array([], pa.string()), type=ROW_FIELDS[1].type
        )
        return pa.RecordBatch.from_arrays([*arrays, pa.array(ops), none, pa.array(sequences)], schema=self.schema)
