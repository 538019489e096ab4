"""Executors put rows into a queue themselves; the driver commits references to what their tasks wrote."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.capture.block_writer import BlockWriter, Put, create_segment
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.parts import OpenParts
from headgate.errors import TransactionError
from tests.capture.test_blocks import events, rows

START = datetime(2024, 1, 1, tzinfo=UTC)


def test_tasks_put_the_parts_of_one_transaction(tmp_path: Path, spark: SparkSession) -> None:
    log = ElasticLog(tmp_path)
    shares = [(number, str(log.reserve_segment()), rows(10 * number, 10 * number + 1)) for number in range(4)]

    def put(share: tuple[int, str, pa.Table]) -> tuple[int, list[Put]]:
        number, name, given = share
        path = Path(name)
        writer = BlockWriter(lambda: create_segment(path.parent, path.name))
        writer.put("t", given)
        puts = writer.finish(durable=True)
        writer.close()
        return number, puts

    found = spark.sparkContext.parallelize(shares, len(shares)).map(put).collect()
    parts = OpenParts(log)
    name = parts.begin(log)
    for number, puts in found[1:]:
        parts.offer(name, number, puts)
    with pytest.raises(TransactionError, match="put part 0"):
        parts.whole(name, len(shares), log)
    parts.offer(name, *found[0])
    log.seal_segments([Path(name).name for _, name, _ in shares])
    log.append_blocks(1, START, parts.whole(name, len(shares), log), synced=True)
    log.sync()
    expected = [(1, 2 * number + each, 10 * number + each) for number in range(4) for each in range(2)]
    for _ in range(2):
        assert events(log) == expected
        log.close()
        log = ElasticLog(tmp_path)
    log.close()
