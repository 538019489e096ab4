"""What an evaluation reads of stored tables: their changes in the batch, and rows at the job before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.dataflow.graph import Aggregate, Node, Scan, scans
from headgate.dataflow.relation import UNTIL, Keys, Relation, quoted
from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.runtime.evaluation.settled import Settled
from headgate.runtime.tables.stored import BatchViews, StoredTable
from headgate.runtime.tables.table_changes import TableChanges


@dataclass
class Inputs:
    """The tables of one flow in the batch (after, upto]."""

    tables: Mapping[str, StoredTable]
    states: Mapping[Aggregate, StoredTable]
    views: BatchViews
    settled: Settled
    after: JobId
    upto: JobId
    looked_up: dict[Scan, Relation | None] = field(default_factory=dict, init=False)
    """The rows that each scan was last asked for, where they were looked up; None for no rows."""

    def spans(self, scan: Scan) -> Relation | None:
        """The table's changes, in spanned form if they have one."""
        changes = self._changes(self.tables[scan.table])
        if changes is None or changes.spans is None:
            return self.changes(scan)
        return self._scanned(scan, changes.spans_view, changes.spans, spanned=True)

    def changes(self, scan: Scan) -> Relation | None:
        changes = self._changes(self.tables[scan.table])
        return None if changes is None else self._scanned(scan, changes.view, changes.rows, spanned=False)

    def _changes(self, table: StoredTable) -> TableChanges | None:
        return self.views.changes(table, self.after, self.upto)

    def _scanned(self, scan: Scan, view: str, rows: pa.Table, *, spanned: bool) -> Relation:
        marks = [JOB, WEIGHT, UNTIL] if spanned else [JOB, WEIGHT]
        chosen = rows.select([output.sql for output in scan.outputs] + marks).rename_columns([*scan.columns, *marks])
        source = f"(SELECT {', '.join([scan.select_list, *marks])} FROM {view})"
        return self.settled.know(Relation(source, scan.columns, spanned=spanned), chosen)

    def rows(self, scan: Scan, keys: Keys | None, *, untouched: bool) -> Relation | None:
        """The table's rows, at least those with the keys; `untouched`: those that stay through the batch."""
        self.looked_up.pop(scan, None)
        table = self.tables[scan.table]
        names = {output.name: output.sql for output in scan.outputs}
        relation = self._stored(table, names, keys, self._changes(table) if untouched else None)
        if relation is None or relation.settled:
            self.looked_up[scan] = relation
        return relation

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        table = self.states[node]
        return self._stored(table, {name: name for name in table.spec.schema.names}, keys)

    def are_small(self, node: Node) -> bool:
        """Whether reading all rows of the node's tables costs no more than looking some up."""
        return all(self.tables[scan.table].is_small(self.after) for scan in scans(node))

    def rows_read(self, scan: Scan) -> int:
        """How many rows the scan was last asked for."""
        if scan not in self.looked_up:
            return self.tables[scan.table].count(self.after)
        found = self.looked_up[scan]
        return (found and found.rows) or 0

    def _stored(
        self, table: StoredTable, names: Mapping[str, str], keys: Keys | None, changes: TableChanges | None = None
    ) -> Relation | None:
        """Rows of a table at job `after` that the changes leave; `names` maps output names to the table's columns.

        Settled if looked up.
        """
        if table.is_empty(self.after):
            return None
        if keys is not None and not table.is_small(self.after):
            wanted = keys.renamed(dict(names))
            found = None
            if wanted is not None:
                selected = tuple(dict.fromkeys(names.values()))
                key = table.spec.key if changes is not None else ()
                found = table.lookup(wanted.columns, wanted.values, self.after, tuple(dict.fromkeys((*selected, *key))))
            if found is not None:
                if changes is not None:
                    found = changes.untouched(found).select(list(selected))
                if found.num_rows == 0:
                    return None
                view = self.views.of_rows(found, table.schema_of(tuple(found.column_names)))
                chosen = found.select(list(names.values())).rename_columns(list(names))
                return self.settled.know(_selected(view, names), chosen)
        whole = self.views.whole(table, self.after)
        if changes is not None:
            same = " AND ".join(f"w.{quoted(name)} <=> c.{quoted(name)}" for name in table.spec.key)
            whole = f"(SELECT w.* FROM {whole} w LEFT ANTI JOIN {changes.spans_view} c ON {same})"
        return _selected(whole, names)


def _selected(view: str, names: Mapping[str, str]) -> Relation:
    outputs = ", ".join(f"{quoted(column)} AS {quoted(name)}" for name, column in names.items()) or "1 AS __one"
    return Relation(f"(SELECT {outputs} FROM {view})", tuple(names))
