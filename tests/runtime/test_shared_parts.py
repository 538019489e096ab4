"""Changes of parts that several flows ask for: computed once, again after a failure, and let go."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.dataflow.expression import Column
from headgate.dataflow.graph import Node, Output, Scan
from headgate.dataflow.sharing import PartUse, SharedPart
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.runtime.evaluation.shared_parts import Place, SharedParts, SharedRows
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.spark.views import Views

SCAN = Scan("t", (Output("a", Column("a")),))
PART = SharedPart(SCAN, {name: PartUse(SCAN, {"a": "a"}) for name in "xyz"})
ROWS = pa.table({"a": [1], JOB: [5], WEIGHT: [1]})
SCHEMA = StructType().add("a", "long").add(JOB, "long").add(WEIGHT, "long")


def place(upto: int) -> Place:
    return (0, (), JobId(4), JobId(upto))


def test_the_first_that_asks_computes_for_all(spark_sessions: SparkSessions) -> None:
    retired: list[Views] = []
    parts = SharedParts(retired.append)
    computed, may_go = [], threading.Event()

    def compute(root: Node) -> tuple[pa.Table, StructType, bool]:
        computed.append(root)
        assert may_go.wait(60)
        return ROWS, SCHEMA, False

    def ask() -> SharedRows | None:
        return parts.ask(PART, Views(spark_sessions.small), place(5), 3, compute)

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask) for _ in range(3)]
        may_go.set()
        found = [each.result(60) for each in asked]
    assert computed == [SCAN] and (parts.computed, parts.reused) == (1, 2)
    assert all(each is found[0] for each in found) and found[0] is not None
    relation, rows = found[0].used(PART.uses["x"])
    assert rows.equals(ROWS) and spark_sessions.small.sql(f"SELECT a FROM {relation.source}").collect()[0][0] == 1
    assert len(retired) == 1, "once all have asked"


def test_what_failed_is_computed_again_and_other_jobs_are_other_changes(spark_sessions: SparkSessions) -> None:
    retired: list[Views] = []
    parts = SharedParts(retired.append)

    def fail(root: Node) -> tuple[pa.Table, StructType, bool]:
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError):
        parts.ask(PART, Views(spark_sessions.small), place(5), 3, fail)
    assert parts.ask(PART, Views(spark_sessions.small), place(5), 3, lambda root: None) is None
    found = parts.ask(PART, Views(spark_sessions.small), place(6), 3, lambda root: (ROWS, SCHEMA, False))
    assert found is not None and found.rows is ROWS
    assert parts.computed == 3 and len(retired) == 2
