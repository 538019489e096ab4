"""Types that are read without Spark are those that Spark reads."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import _parse_datatype_string

from headgate.runtime.spark.types import parse_type, simple_type

SIMPLE = [
    *("bigint", "BIGINT", "int", "smallint", "tinyint", "boolean", "double", "float", "string", "binary", "date"),
    *("timestamp", "timestamp_ntz", "decimal(10,2)", "decimal(38,38)", "DECIMAL(1,0)"),
]
OTHERS = ["array<int>", "struct<a:bigint,b:string>", "map<string,int>", "void", "varchar(3)", "integer", "decimal"]


@pytest.mark.parametrize("name", [*SIMPLE, "decimal( 7 , 3 )", *OTHERS])
def test_a_type_is_the_one_that_spark_reads(name: str, spark: SparkSession) -> None:
    assert parse_type(name) == _parse_datatype_string(name)
    assert (simple_type(name) is None) == (name in OTHERS)


@pytest.mark.parametrize("name", ["decimal(2,5)", "decimal(39,0)", "decimal(0,0)", "big int", ""])
def test_what_is_no_type_is_left_to_spark(name: str) -> None:
    assert simple_type(name) is None
