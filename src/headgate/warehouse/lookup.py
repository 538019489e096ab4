"""Rows of a snapshot by the leading columns of its sort order.

The base's part comes from the files whose range can hold the asked values; the overlay's part from one pass over the
codes of its few segments. A row of the base counts unless a change with the same asked values touched its key: such a
change always exists, because the -1 of a row carries that row's columns.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headgate.delta.changes import JobId
from headgate.warehouse.changes import in_job_order, job_array
from headgate.warehouse.codes import code, member
from headgate.warehouse.frames import column, stored_frame
from headgate.warehouse.index import FileIndex, Wanted
from headgate.warehouse.local import local_frame
from headgate.warehouse.overlay import Overlay, Segment
from headgate.warehouse.problems import storage_problems
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder


class Lookup:
    """The asked key rows, ready to be matched."""

    def __init__(self, spec: TableSpec, columns: tuple[str, ...], keys: pa.Table) -> None:
        if set(columns) != set(spec.sort[: len(columns)]) or not columns:
            raise ValueError(f"table {spec.name} is looked up by a prefix of {spec.sort}, not by {columns}")
        schema = spec.arrow_schema
        self.spec = spec
        self.columns = columns
        self.keys = keys.rename_columns(list(columns)).cast(pa.schema([schema.field(name) for name in columns]))
        self.codes = pc.unique(code(self.keys, columns))
        self.wanted = Wanted.of(self.keys.column(spec.lead))
        self.where = self._where()

    def _where(self) -> ds.Expression | None:
        """A filter that files can be read with; values of types that compare by value only."""
        kind = self.spec.arrow_schema.field(self.spec.lead).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
            return None
        return ds.field(self.spec.lead).isin(pc.unique(self.keys.column(self.spec.lead)))

    def matching(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(member(code(rows, self.columns), self.codes)))


def overlay_rows(lookup: Lookup, overlay: Overlay, after: JobId, upto: JobId, most_rows: int) -> pa.Table:
    """The changes of the jobs in (after, upto] with asked values, in job order; `most_rows` at most from files."""
    parts = [
        _memory_rows(lookup, segment, after, upto)
        if segment.in_memory
        else lookup.matching(segment.changes.slice(after, upto).read(most_rows, lookup.where))
        for segment in overlay.segments
        if segment.changes.upto > after and segment.changes.after < upto
    ]
    if not parts:
        return lookup.spec.change_arrow_schema.empty_table()
    return in_job_order(pa.concat_tables(parts, promote_options="default"))


def _memory_rows(lookup: Lookup, segment: Segment, after: JobId, upto: JobId) -> pa.Table:
    found = pc.indices_nonzero(pa.array(member(segment.code(lookup.columns), lookup.codes)))
    rows = segment.rows_in_memory.take(found)
    if segment.changes.after >= after and segment.changes.upto <= upto:
        return rows
    jobs = job_array(rows)
    return rows.filter(pa.array((jobs > after) & (jobs <= upto)))


def stored_rows(
    lookup: Lookup,
    index: FileIndex,
    needed: tuple[str, ...],
    folder: Folder,
    session: SparkSession,
    most_rows: int,
) -> pa.Table:
    """The asked rows of data files, found by executors: of more than `most_rows`, one more."""
    spec = lookup.spec
    stored = stored_frame(session, folder, index, spec).select(*(column(name) for name in needed))
    names = [f"__asked_{number}" for number in range(len(lookup.columns))]
    schema = type(spec.schema)([spec.schema[name] for name in lookup.columns])
    asked = local_frame(session, lookup.keys, schema).toDF(*names)
    condition = sf.lit(True)
    for name, other in zip(lookup.columns, names, strict=True):
        condition = condition & column(name).eqNullSafe(sf.col(other))
    with storage_problems(folder):
        rows = stored.join(sf.broadcast(asked), condition, "left_semi").limit(most_rows + 1).toArrow()
    wanted = pa.schema([spec.arrow_schema.field(name) for name in needed])
    return rows.cast(wanted)
