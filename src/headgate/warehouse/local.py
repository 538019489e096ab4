"""Rows of the driver as a DataFrame."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def empty_frame(session: SparkSession, schema: StructType) -> DataFrame:
    """No rows, as a local relation: Spark plans a join or a union with one as the empty result that it is.

    `createDataFrame([], schema)` gives an RDD instead, which Spark reads through a Python process, whatever it is joined to.
    """
    java = session._jsparkSession
    rows = session._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    return DataFrame(java.createDataFrame(rows, java.parseDataType(schema.json())), session)


def local_frame(session: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """The rows as a local relation; the columns take the schema's types, by position.

    Spark 4.3 stops reading an Arrow stream at a batch without rows, so a table with an empty chunk in its middle would lose
    what follows: the chunks become one first. It also fails on nested columns that have no chunk at all.
    """
    if not rows.num_rows:
        return empty_frame(session, schema)
    rows = rows.combine_chunks()
    direct = getattr(session, "_create_from_arrow_table", None)
    if direct is None:
        return session.createDataFrame(rows, schema)
    # What createDataFrame ends in, without its eight look-ups of settings, which take as long as the rest for a few rows.
    frame: DataFrame = direct(rows, schema, "UTC", False, False, max(1, rows.num_rows))
    return frame
