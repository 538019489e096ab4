"""Rows of the driver as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.pandas.types import _check_arrow_table_timestamps_localize, to_arrow_schema
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
    if session.sparkContext._encryption_enabled or not schema.fields:
        return session.createDataFrame(rows, schema)
    # What createDataFrame ends in, without its look-ups of settings and of Java's classes: 12 calls of Java for 2 that do something.
    java = _java_calls(session)
    wanted = to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    typed = _check_arrow_table_timestamps_localize(rows, schema, True, "UTC").cast(wanted)
    batches = session.sparkContext._serialize_to_jvm(
        typed.to_batches(max_chunksize=typed.num_rows), ArrowStreamSerializer(), java.read, lambda: None
    )
    frame = DataFrame(java.frame(batches, schema.json(), session._jsparkSession), session)
    frame._schema = schema
    return frame


class _JavaCalls(NamedTuple):
    read: Callable[[str], object]
    """Arrow batches from a file."""
    frame: Callable[..., JavaObject]


_known: WeakKeyDictionary[object, _JavaCalls] = WeakKeyDictionary()


def _java_calls(session: SparkSession) -> _JavaCalls:
    """Spark's own functions, looked up once per Java process."""
    found = _known.get(session._jvm)
    if found is None:
        utils = session._jvm.PythonSQLUtils  # type: ignore[union-attr]
        found = _known[session._jvm] = _JavaCalls(utils.readArrowStreamFromFile, utils.toDataFrame)
    return found
