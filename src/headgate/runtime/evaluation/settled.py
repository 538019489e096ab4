"""Relations whose rows the driver has: computed once, kept, and entered again as local relations."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headgate.dataflow.relation import Keys, Relation, column_list
from headgate.runtime.tables.batch_views import BatchViews


class Settled:
    """The rows of one evaluation's relations, as far as they are known."""

    def __init__(self, views: BatchViews) -> None:
        self._views = views
        self._rows: dict[str, pa.Table] = {}

    def rows_of(self, relation: Relation) -> pa.Table:
        """The rows of a settled relation."""
        return self._rows[relation.source]

    def find(self, relation: Relation) -> pa.Table | None:
        """The relation's rows if they are known."""
        return self._rows.get(relation.source)

    def know(self, relation: Relation, rows: pa.Table) -> Relation:
        """The relation, whose rows these are."""
        self._rows[relation.source] = rows
        return replace(relation, rows=rows.num_rows)

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        """Computes the relation now, unless its rows are known; None when it has none."""
        if relation is None or relation.settled:
            return relation
        names = (*relation.columns, *relation.marks) if weighted else relation.columns
        rows, schema = self._views.collect(f"SELECT {column_list(names)} FROM {relation.source}")
        if rows.num_rows == 0:
            return None
        return self.know(replace(relation, source=self._views.of_rows(rows, schema)), rows)


def distinct_keys(tables: list[pa.Table], names: tuple[str, ...]) -> Keys:
    """Distinct rows of the tables; of types that do not agree, the widest integer (else the column is left out)."""
    if not tables:
        return Keys(names, pa.schema([(name, pa.null()) for name in names]).empty_table())
    arrays: list[pa.ChunkedArray] = []
    kept: list[str] = []
    for index, name in enumerate(names):
        columns = [table.column(index) for table in tables]
        kinds = {column.type for column in columns}
        if len(kinds) > 1:
            if not all(pa.types.is_integer(kind) for kind in kinds):
                continue
            columns = [column.cast(pa.int64()) for column in columns]
        arrays.append(pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type))
        kept.append(name)
    if not kept:
        return Keys((), pa.table({}))
    values = pa.table(arrays, names=[f"k{index}" for index in range(len(kept))])
    return Keys(tuple(kept), distinct_rows(values))


def distinct_rows(values: pa.Table) -> pa.Table:
    if any(pa.types.is_nested(field.type) for field in values.schema):
        return values
    if values.num_columns == 1:
        # A plan of Arrow's for the general case takes a hundred times as long.
        return pa.table([values.column(0).unique()], names=values.column_names)
    return values.group_by(values.column_names).aggregate([])
