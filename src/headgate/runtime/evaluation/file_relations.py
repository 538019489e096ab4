"""Relations that executors have written into files of the scratch folder; the driver knows where, and how many rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import NullType, StructType

from headgate.dataflow.relation import Relation, column_list, quoted
from headgate.delta.changes import JobId
from headgate.runtime.tables.batch_views import BatchViews
from headgate.warehouse.changes import ChangeSet, footer
from headgate.warehouse.frames import column
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder

FEW_ROWS = 1_000
"""Rows of the driver that can be part of a plan; with more, Spark is busy with the plan alone."""


class FolderMaker(Protocol):
    """Gives folders that stay while the evaluation needs them."""

    def new_folder(self) -> Path: ...

    def to_files(self, frame: DataFrame) -> str:
        """Has executors write the frame into a new folder, whose address it gives."""


class FileRelations:
    """Of one evaluation, over the jobs (after, upto]."""

    def __init__(self, views: BatchViews, folders: FolderMaker, after: JobId, upto: JobId) -> None:
        self._views = views
        self._folders = folders
        self._after = after
        self._upto = upto
        self._written: dict[str, tuple[str, StructType]] = {}
        """By view the folder and what was written."""

    def staged(self, changes: ChangeSet) -> DataFrame:
        """Changes of a table; those that the driver holds are written into a file, unless they are few."""
        rows = changes.table
        if rows is not None and rows.num_rows > FEW_ROWS:
            folder = self._folders.new_folder()
            file = str(folder / "rows.parquet")
            with storage_problems(Folder.at(str(folder)), rows.nbytes):
                folder.mkdir(parents=True)
                pq.write_table(rows, file, store_schema=False, compression="none", row_group_size=1 << 17)
            changes = replace(changes, table=None, files=(*changes.files, file))
        return changes.frame(self._views.session)

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        """Computes the relation now, unless it was; None when it has no rows."""
        if relation is None or relation.settled:
            return relation
        names = (*relation.columns, *relation.marks) if weighted else relation.columns
        frame = self._views.sql(f"SELECT {column_list(names)} FROM {relation.source}")
        # Parquet has no column that can only be NULL.
        nothing = [field.name for field in frame.schema.fields if isinstance(field.dataType, NullType)]
        kept = StructType([field for field in frame.schema.fields if field.name not in nothing])
        folder = self._folders.to_files(frame.drop(*nothing) if nothing else frame)
        place = Folder.at(folder)
        files = [place.file(file.name) for file in place.files() if file.name.endswith(".parquet")]
        rows = sum(footer(file, place).num_rows for file in files)
        if not rows:
            return None
        view = self._views.of_frame(self._views.session.read.schema(kept).parquet(f"file://{place.path}"))
        self._written[view] = (folder, kept)
        if nothing:
            nulls = ", ".join(f"NULL AS {quoted(name)}" for name in nothing)
            view = f"(SELECT *, {nulls} FROM {view})"
        return replace(relation, source=view, rows=rows)

    def changes(self, relation: Relation, spec: TableSpec) -> ChangeSet | None:
        """The relation, which is a delta in plain form, as changes of a table; None when it has no rows."""
        schema = spec.change_schema
        folder, written = self._written.get(relation.source, (None, StructType()))
        if folder is None or {field.name: field.dataType for field in written.fields} != {
            field.name: field.dataType for field in schema.fields
        }:
            frame = self._views.sql(f"SELECT {column_list(schema.names)} FROM {relation.source}")
            typed = [column(field.name).cast(field.dataType).alias(field.name) for field in schema.fields]
            folder = self._folders.to_files(frame.select(*typed))
        found = ChangeSet.of_files(spec, folder, self._after, self._upto)
        return found if found.rows else None
