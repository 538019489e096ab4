"""The two hands that make images of changes, the driver's and the executors', follow one rule: the one of a plain model."""

from __future__ import annotations

import random

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StructType

from headgate.delta.changes import JOB, WEIGHT
from headgate.warehouse.codes import code
from headgate.warehouse.images import images_frame, images_of
from headgate.warehouse.local import local_frame
from headgate.warehouse.spec import TableSpec
from tests.seed import SEED

SPEC = TableSpec("things", StructType().add("k", LongType()).add("v", LongType()), ("k",))
CHANGES = StructType().add("k", LongType()).add("v", LongType()).add(JOB, LongType()).add(WEIGHT, IntegerType())
JOBS, KEYS = range(1, 7), range(400)
Row = tuple[int, int]


def random_changes(chance: random.Random) -> tuple[list[tuple[int, int, int, int]], set[Row], set[Row]]:
    """Changes in job order, netted per job and key, with the rows of the base that went and those in their place."""
    changes: list[tuple[int, int, int, int]] = []
    base: dict[int, int] = {key: chance.randrange(9) for key in KEYS if chance.random() < 0.5}
    rows = dict(base)
    touched = set()
    for job in JOBS:
        for key in chance.sample(KEYS, 80):
            before, after = rows.get(key), chance.choice([None, chance.randrange(9)])
            if before == after:
                continue
            touched.add(key)
            changes += [(key, value, job, sign) for value, sign in ((before, -1), (after, 1)) if value is not None]
            rows.pop(key, None)
            if after is not None:
                rows[key] = after
    dead = {(key, base[key]) for key in touched if key in base}
    return changes, dead, {(key, rows[key]) for key in touched if key in rows}


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))


def test_driver_and_executors_make_the_images_that_a_plain_model_has(spark: SparkSession) -> None:
    changes, dead, images = random_changes(random.Random(SEED))
    table = pa.table(dict(zip(CHANGES.names, map(list, zip(*changes, strict=True)), strict=True))).cast(
        pa.schema([("k", pa.int64()), ("v", pa.int64()), (JOB, pa.int64()), (WEIGHT, pa.int32())])
    )
    here = images_of(table, lambda: code(table, SPEC.key))
    assert (rows_of(here.dead), rows_of(here.rows)) == (sorted(dead), sorted(images))
    made = images_frame(local_frame(spark, table, CHANGES), SPEC).toArrow()
    signs = made.column(WEIGHT).to_numpy()
    there = [rows_of(made.filter(pa.array(signs == sign))) for sign in (-1, 1)]
    assert there == [sorted(dead), sorted(images)]
