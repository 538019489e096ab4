"""Snapshots as DataFrames.

    base (handle over pinned files)  LEFT ANTI  broadcast(dead keys)   UNION ALL   images

Dead rows are named by one long: the key itself when it is one integral column, else the hash of the key columns with
the columns themselves compared null-safely behind it. Without dead rows there is no join.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType

from headgate.errors import EnvironmentProblem
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile
from headgate.warehouse.storage import Folder

TIMESTAMP_CONF = "spark.sql.parquet.outputTimestampType"
HASH = "__hash"


def column(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return sf.col("`" + name.replace("`", "``") + "`")


def stored_frame(session: SparkSession, folder: Folder, files: Sequence[DataFile], spec: TableSpec) -> DataFrame:
    """The rows of data files, read by executors."""
    if not files:
        return session.createDataFrame([], spec.schema)
    reader = session.read.schema(spec.schema).option("__globPaths__", "false")
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    return reader.parquet(*(f"{folder.spark_address}/{file.path}" for file in files))


def without(base: DataFrame, dead: DataFrame, spec: TableSpec, *, small: bool, null_is_dead: bool) -> DataFrame:
    """The base's rows whose key is not among the dead rows'.

    `small`: the dead rows fit a broadcast; `null_is_dead` then tells whether one of them has a NULL in its key.
    """
    if small and names_a_long(spec):
        key = column(spec.key[0])
        living = base.where(key.isNotNull()) if null_is_dead else base
        named = dead.select(key.cast("long").alias(HASH))
        return living.join(sf.broadcast(named), key.cast("long") == sf.col(HASH), "left_anti")
    keys = [column(name) for name in spec.key]
    others = [sf.col(f"__dead_{number}") for number in range(len(keys))]
    renamed = [key.alias(f"__dead_{number}") for number, key in enumerate(keys)]
    named = dead.select(sf.xxhash64(*keys).alias(HASH), *renamed)
    condition = sf.xxhash64(*keys) == sf.col(HASH)
    for key, other in zip(keys, others, strict=True):
        # Not `<=>`, nor its long form with OR: Spark would make that a join key and lose the join on one long.
        condition = condition & sf.coalesce(key == other, key.isNull() & other.isNull())
    return base.join(sf.broadcast(named) if small else named, condition, "left_anti")


def names_a_long(spec: TableSpec) -> bool:
    """Whether the key is one integral column."""
    kinds = (ByteType, ShortType, IntegerType, LongType)
    return len(spec.key) == 1 and isinstance(spec.schema[spec.key[0]].dataType, kinds)


def check_timestamps(session: SparkSession, spec: TableSpec) -> None:
    """Refuses to write timestamps without usable ranges."""
    if spec.has_timestamps and session.conf.get(TIMESTAMP_CONF, "INT96") != "TIMESTAMP_MICROS":
        raise EnvironmentProblem(
            f"{TIMESTAMP_CONF} is {session.conf.get(TIMESTAMP_CONF, 'INT96')}",
            hint=f"set {TIMESTAMP_CONF}=TIMESTAMP_MICROS when the Spark session is built",
        )
