"""What a fragment gave whose functions depend on when they are called: the same rows for all who read the job.

Few rows are in the driver and part of each query's plan; more lie in files, which executors write and read. The files go with the
last who holds them.
"""

from __future__ import annotations

import shutil
import weakref

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import NullType, StructType

from headgate.runtime.spark.scratch import Scratch
from headgate.warehouse.frames import column
from headgate.warehouse.local import local_frame

FEW_ROWS = 5_000


class EvaluatedRows:
    def __init__(self, frame: DataFrame, schema: StructType, scratch: Scratch) -> None:
        """Evaluates the frame; of more than few rows once more, for nobody has seen the first ones."""
        self._schema = schema
        self._rows: pa.Table | None = frame.limit(FEW_ROWS + 1).toArrow()
        if self._rows.num_rows <= FEW_ROWS:
            return
        self._rows = None
        folder = scratch.new()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        weakref.finalize(self, scratch.done, [folder])
        # Parquet has no column that can only be NULL.
        self._stored = StructType([field for field in schema.fields if not isinstance(field.dataType, NullType)])
        self._address = f"file://{folder}"
        frame.select(*(column(name) for name in self._stored.names)).write.parquet(self._address)

    def frame(self, session: SparkSession) -> DataFrame:
        if self._rows is not None:
            return local_frame(session, self._rows, self._schema)
        stored = session.read.schema(self._stored).parquet(self._address)
        names = self._stored.names
        return stored.select(
            *(column(name) if name in names else sf.lit(None).alias(name) for name in self._schema.names)
        )
