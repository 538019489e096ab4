"""The TPC-H queries: their graphs give what Spark gives for the queries as written, on generated data."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.dataflow.graph import Node
from headgate.dataflow.reference import plain_sql
from headgate.sql.lower import lower_view
from headgate.sql.references import replace_tables
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.test_shapes import QUERIES, TPCH, TPCH_COLUMNS


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tpch")
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet", "-s", "0.01"]
    subprocess.run([*command, "--output-dir", str(folder)], check=True, capture_output=True)
    views: dict[str, str] = {}
    for name in TPCH_COLUMNS:
        view = f"tpch_{name}"
        frame = spark.read.parquet(str(folder / f"{name}.parquet"))
        frame.selectExpr("*", "TIMESTAMP '2024-01-01 00:00:00' AS __commit_at").createOrReplaceTempView(view)
        views[f"tpch.{name}"] = f"(SELECT * EXCEPT (__commit_at) FROM {view})"
    return views


def rows(frame: DataFrame) -> Counter[tuple[str, ...]]:
    return Counter(tuple(_text(value) for value in row) for row in frame.collect())


def _text(value: object) -> str:
    return f"{value:.6e}" if isinstance(value, float | Decimal) else repr(value)


# Every run of the tests has them as flows in `tests/tpch`.
@pytest.mark.thorough
@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_a_tpch_graph_gives_the_query_s_result(spark: SparkSession, tables: dict[str, str], path: Path) -> None:
    text = path.read_text()
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {text}", path.name)
    assert isinstance(statement, CreateView)
    node = lower_view(statement, TPCH).result
    assert isinstance(node, Node)
    expected = rows(spark.sql(replace_tables(text, tables)))
    actual = rows(spark.sql(plain_sql(node, tables.__getitem__)))
    assert actual == expected
