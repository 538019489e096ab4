"""A table's changes in a batch of jobs, as rows in the driver and as views, in plain and in spanned form.

Spans are worth it only where a row comes and goes within the batch. Each view is made when first asked for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.relation import UNTIL
from headgate.runtime.rows.chains import spans
from headgate.runtime.spark.views import LazyView, Views
from headgate.warehouse.changes import ChangeSet, conform
from headgate.warehouse.codes import code, member
from headgate.warehouse.spec import TableSpec


class TableChanges:
    def __init__(self, spec: TableSpec, rows: pa.Table, views: Views) -> None:
        self.spec = spec
        self.rows = rows
        self._views = views
        self._view = LazyView(lambda: views.of_rows(rows, spec.change_schema))
        self._spans_view = LazyView(self._enter_spans)

    @property
    def view(self) -> str:
        return self._view.name

    @cached_property
    def spans(self) -> pa.Table | None:
        """The changes as spans; None when no row comes and goes within the batch."""
        return spans(self.rows, self.spec.key)

    @property
    def spans_view(self) -> str:
        return self._spans_view.name

    def _enter_spans(self) -> str:
        assert self.spans is not None
        return self._views.of_rows(self.spans, StructType([*self.spec.change_schema.fields]).add(UNTIL, "long"))

    def untouched(self, rows: pa.Table) -> pa.Table:
        """Those of the table's rows from before the batch that it does not touch."""
        return rows.filter(pa.array(~member(code(rows, self.spec.key), self._touched)))

    @cached_property
    def _touched(self) -> pa.Array:
        return code(self.rows, self.spec.key).unique()


def of_columns(changes: ChangeSet, spec: TableSpec) -> ChangeSet:
    """The changes as a table with fewer columns sees them."""
    table = None if changes.table is None else conform(changes.table, spec)
    return replace(changes, schema=spec.change_schema, table=table)
