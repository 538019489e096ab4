"""Snapshots as DataFrames.

    base (handle over pinned files)  LEFT ANTI  broadcast(dead keys)   UNION ALL   images

Dead rows whose keys are whole numbers that lie close are bits, and need no join (`bits`). Others are named by one long:
the key itself when it is one integral column, else the hash of the key columns with the columns themselves compared
null-safely behind it. Many images with dead rows are read in the base's own scan, marked, instead of a union.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, ByteType, IntegerType, LongType, ShortType, StructField, StructType

from headgate.errors import EnvironmentProblem
from headgate.warehouse.changes import parquet_frame, spark_path
from headgate.warehouse.index import FileIndex
from headgate.warehouse.local import empty_frame
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder

TIMESTAMP_CONF = "spark.sql.parquet.outputTimestampType"
HASH = "__hash"
NEW = "__new"
"""Marks the rows of a scan that are not the base's; of the base's it is NULL."""


def column(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return sf.col(quoted(name))


def quoted(name: str) -> str:
    """The name as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def stored_frame(
    session: SparkSession, folder: Folder, files: FileIndex, spec: TableSpec, new: str | None = None
) -> DataFrame:
    """The rows of data files, read by executors; with those of the file `new`, in one scan, where `NEW` is true."""
    if not len(files) and new is None:
        return empty_frame(session, spec.schema)
    schema = spec.schema if new is None else StructType([*spec.schema.fields, StructField(NEW, BooleanType())])
    paths = [f"{folder.spark_address}/{path}" for path in files.paths] + ([] if new is None else [spark_path(new)])
    return parquet_frame(session, schema, paths, {"parquet.page.verify-checksum.enabled": "true"})


def without(base: DataFrame, dead: DataFrame, spec: TableSpec, *, small: bool, null_is_dead: bool | None) -> DataFrame:
    """The base's rows whose key is not among the dead rows', and those marked as `NEW`, which are not the base's.

    `small`: the dead rows fit a broadcast; `null_is_dead` tells whether one of them has a NULL in its key, if that is known.
    A row marked as new has no name to be found by. It comes through the same scan and the same join as the base's: a
    union over the join would hand over every row of the base one by one.
    """
    marked = NEW in base.columns

    def named(name: Column) -> Column:
        return sf.when(sf.col(NEW).isNull(), name) if marked else name

    if small and null_is_dead is not None and names_a_long(spec):
        key = column(spec.key[0])
        if null_is_dead:
            base = base.where(key.isNotNull() | sf.col(NEW) if marked else key.isNotNull())
        names = dead.select(key.cast("long").alias(HASH))
        return base.join(sf.broadcast(names), named(key.cast("long")) == sf.col(HASH), "left_anti").drop(NEW)
    keys = [column(name) for name in spec.key]
    others = [sf.col(f"__dead_{number}") for number in range(len(keys))]
    renamed = [key.alias(f"__dead_{number}") for number, key in enumerate(keys)]
    names = dead.select(sf.xxhash64(*keys).alias(HASH), *renamed)
    condition = named(sf.xxhash64(*keys)) == sf.col(HASH)
    for key, other in zip(keys, others, strict=True):
        # Not `<=>`, nor its long form with OR: Spark would make that a join key and lose the join on one long.
        condition = condition & sf.coalesce(key == other, key.isNull() & other.isNull())
    return base.join(sf.broadcast(names) if small else names, condition, "left_anti").drop(NEW)


def without_marked(base: DataFrame, dead: Column) -> DataFrame:
    """The base's rows that are not dead, and those marked as `NEW`."""
    return base.where(sf.col(NEW) | ~dead).drop(NEW) if NEW in base.columns else base.where(~dead)


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
