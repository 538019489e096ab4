"""A plain Delta table: rows are appended in bulk by delta-rs and read by the same Spark as headgate's."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from benchmarks.rite_rows import COLUMNS, SCHEMA, SUMS, Data, Sums, batches

_VIEW = "appended_sales"


class Delta:
    """One table in a folder of its own."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self._folder = folder
        self._session = session
        self._schema = StructType()
        for column in COLUMNS:
            self._schema.add(column, "integer")

    def begin(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        DeltaTable.create(self._folder, schema=SCHEMA)

    def read(self) -> Sums:
        """The sums over the files that the newest version names."""
        files = DeltaTable(self._folder).file_uris()
        frame = (
            self._session.read.schema(self._schema).parquet(*files)
            if files
            else self._session.createDataFrame([], self._schema)
        )
        frame.createOrReplaceTempView(_VIEW)
        row = self._session.sql(SUMS.format(table=_VIEW)).collect()[0]
        return Sums(row[0], row[1] or 0)

    def append(self, data: Data) -> None:
        """Rows become Arrow while they are written."""
        write_deltalake(self._folder, batches(data.count), mode="append")

    def append_arrow(self, data: Data) -> None:
        write_deltalake(self._folder, data.table, mode="append")
