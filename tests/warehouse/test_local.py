"""Rows of the driver reach Spark whole."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate.warehouse.local import local_frame


def test_rows_behind_an_empty_chunk_are_not_lost(spark: SparkSession) -> None:
    schema = StructType().add("id", "long")
    empty, first, last = (pa.table({"id": pa.array(values, pa.int64())}) for values in ([], [1, 2], [3]))
    rows = pa.concat_tables([empty, first, empty, last])
    assert [row["id"] for row in local_frame(spark, rows, schema).collect()] == [1, 2, 3]


def test_a_table_without_rows_keeps_its_columns(spark: SparkSession) -> None:
    schema = StructType().add("id", "long").add("name", "string")
    frame = local_frame(spark, pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())}), schema)
    assert frame.columns == ["id", "name"]
    assert frame.count() == 0


def test_what_is_joined_to_no_rows_needs_no_task(spark: SparkSession) -> None:
    schema = StructType().add("id", "long")
    none = local_frame(spark, pa.table({"id": pa.array([], pa.int64())}), schema)
    some = local_frame(spark, pa.table({"id": pa.array([1, 2], pa.int64())}), schema)
    assert some.join(none, "id").rdd.getNumPartitions() == 0
