"""Rows of the driver as a DataFrame."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def local_frame(session: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """The rows as a local relation; the columns take the schema's types, by position.

    Spark 4.3 stops reading an Arrow stream at a batch without rows, so a table with an empty chunk in its middle would lose
    what follows: the chunks become one first.
    """
    return session.createDataFrame(rows.combine_chunks(), schema)
