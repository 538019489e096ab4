"""The tables of a flow in a narrow batch: changes and rows that are looked up are in the driver."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.graph import Scan
from headgate.dataflow.relation import UNTIL, Keys, Relation, quoted
from headgate.delta.changes import JOB, WEIGHT
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.inputs import Inputs
from headgate.runtime.evaluation.settled import Settled
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.table_changes import TableChanges


class NarrowInputs(Inputs):
    def __init__(self, batch: FlowBatch, views: BatchViews, settled: Settled) -> None:
        super().__init__(batch, views)
        self.settled = settled
        self.looked_up: dict[Scan, Relation | None] = {}
        """The rows that each scan was last asked for, where they were looked up; None for no rows."""

    def spans(self, scan: Scan) -> Relation | None:
        changes = self._changes(self._table(scan))
        if changes is None or changes.spans is None:
            return self.changes(scan)
        return self._scanned(scan, changes.spans_view, changes.spans, spanned=True)

    def changes(self, scan: Scan) -> Relation | None:
        changes = self._changes(self._table(scan))
        return None if changes is None else self._scanned(scan, changes.view, changes.rows, spanned=False)

    def _changes(self, table: StoredTable) -> TableChanges | None:
        return self.views.changes(table, self.batch.after, self.batch.upto)

    def _scanned(self, scan: Scan, view: str, rows: pa.Table, *, spanned: bool) -> Relation:
        marks = [JOB, WEIGHT, UNTIL] if spanned else [JOB, WEIGHT]
        chosen = rows.select([output.sql for output in scan.outputs] + marks).rename_columns([*scan.columns, *marks])
        source = f"(SELECT {', '.join([scan.select_list, *marks])} FROM {view})"
        return self.settled.know(Relation(source, scan.columns, spanned=spanned), chosen)

    def rows(self, scan: Scan, keys: Keys | None, *, untouched: bool) -> Relation | None:
        self.looked_up.pop(scan, None)
        relation = super().rows(scan, keys, untouched=untouched)
        if relation is None or relation.settled:
            self.looked_up[scan] = relation
        return relation

    def plain_changes(self, scan: Scan) -> pa.Table | None:
        """The table's changes if there are some, not as spans, and its rows are looked up."""
        table = self._table(scan)
        changes = self._changes(table)
        if changes is None or changes.spans is not None or self._is_read_whole(table):
            return None
        return changes.rows

    def is_key(self, side: tuple[Scan, tuple[str, ...]]) -> bool:
        """Whether the columns of the scan's table tell its rows apart."""
        return set(self._table(side[0]).spec.key) <= set(side[1])

    def touched(self, scan: Scan, keys: Keys) -> Relation | None:
        """The table's plain changes and, as job 0, its rows with the keys (of the table's columns); None if no order finds them."""
        table, changes = self._table(scan), self.plain_changes(scan)
        assert changes is not None
        names = tuple(dict.fromkeys(output.sql for output in scan.outputs))
        found = table.lookup(keys.columns, keys.values, self.batch.after, names)
        if found is None:
            return None
        parts = [changes.select([*names, JOB, WEIGHT]), _as_job_0(found.select(list(names)))]
        rows = pa.concat_tables(parts, promote_options="default")
        schema = StructType([table.spec.change_schema[name] for name in (*names, JOB, WEIGHT)])
        relation = self._scanned(scan, self.views.of_rows_later(rows, schema), rows, spanned=False)
        self.looked_up[scan] = relation
        return relation

    def _is_read_whole(self, table: StoredTable) -> bool:
        return table.is_small(self.batch.after)

    def rows_read(self, scan: Scan) -> int:
        """How many rows the scan was last asked for."""
        if scan not in self.looked_up:
            return self._table(scan).count(self.batch.after)
        found = self.looked_up[scan]
        return (found and found.rows) or 0

    def _stored(
        self, table: StoredTable, names: Mapping[str, str], keys: Keys | None, *, untouched: bool = False
    ) -> Relation | None:
        """Settled if looked up."""
        after = self.batch.after
        if table.is_empty(after):
            return None
        changes = self._changes(table) if untouched else None
        if keys is not None and not self._is_read_whole(table):
            wanted = keys.renamed(dict(names))
            found = None
            if wanted is not None:
                selected = tuple(dict.fromkeys(names.values()))
                key = table.spec.key if changes is not None else ()
                found = table.lookup(wanted.columns, wanted.values, after, tuple(dict.fromkeys((*selected, *key))))
            if found is not None:
                if changes is not None:
                    found = changes.untouched(found).select(list(selected))
                if found.num_rows == 0:
                    return None
                view = self.views.of_rows_later(found, table.schema_of(tuple(found.column_names)))
                chosen = found.select(list(names.values())).rename_columns(list(names))
                return self.settled.know(_selected(view, names), chosen)
        whole = self.views.whole(table, after)
        if changes is not None:
            same = " AND ".join(f"w.{quoted(name)} <=> c.{quoted(name)}" for name in table.spec.key)
            whole = f"(SELECT w.* FROM {whole} w LEFT ANTI JOIN {changes.spans_view} c ON {same})"
        return _selected(whole, names)


def _as_job_0(rows: pa.Table) -> pa.Table:
    count = rows.num_rows
    rows = rows.append_column(JOB, pa.repeat(pa.scalar(0, pa.int64()), count))
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), count))


def _selected(view: str, names: Mapping[str, str]) -> Relation:
    outputs = ", ".join(f"{quoted(column)} AS {quoted(name)}" for name, column in names.items()) or "1 AS __one"
    return Relation(f"(SELECT {outputs} FROM {view})", tuple(names))
