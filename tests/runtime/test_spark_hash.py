"""The driver's hash is Spark's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.runtime.rows.spark_hash import xxhash64

TEXTS = ["", "a", "äö", "seven77", "eight888", "twelve bytes", "x" * 31, "y" * 32, "z" * 33, "0123456789" * 11, None]


def test_the_hash_of_numbers_and_strings_is_that_of_spark(spark: SparkSession) -> None:
    numbers = [0, 1, -1, 7, 42, -(2**31), 2**31 - 1, 12345, -99, None, 3]
    rows = pa.table(
        {
            "i": pa.array(numbers, pa.int32()),
            "l": pa.array([None if n is None else n * 2**31 for n in numbers], pa.int64()),
            "s": pa.array([None if n is None else n % 1000 for n in numbers], pa.int16()),
            "t": pa.array(TEXTS),
        }
    )
    frame = spark.createDataFrame(rows)
    for names in (["i"], ["l"], ["t"], ["i", "l", "s", "t"], ["t", "t", "i"]):
        expected = [row[0] for row in frame.selectExpr(f"xxhash64({', '.join(names)})").collect()]
        assert xxhash64([rows.column(name) for name in names]).astype(np.int64).tolist() == expected
