"""What an evaluation reads of stored tables: their changes in the batch, and rows at the job before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from headgate.dataflow.graph import Aggregate, Node, Scan, scans
from headgate.dataflow.relation import Keys, Relation
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.stored import StoredTable


class Inputs(ABC):
    """The tables of a flow in a batch, as relations."""

    def __init__(self, batch: FlowBatch, views: BatchViews) -> None:
        self.batch = batch
        self.views = views

    @abstractmethod
    def changes(self, scan: Scan) -> Relation | None:
        """The table's changes, in plain form."""

    @abstractmethod
    def spans(self, scan: Scan) -> Relation | None:
        """The table's changes, in spanned form if they have one."""

    @abstractmethod
    def _is_read_whole(self, table: StoredTable) -> bool:
        """Whether reading all rows of the table costs no more than looking some up."""

    @abstractmethod
    def _stored(
        self, table: StoredTable, names: Mapping[str, str], keys: Keys | None, *, untouched: bool = False
    ) -> Relation | None:
        """Rows of a table at job `after`; `names` maps output names to the table's columns."""

    def rows(self, scan: Scan, keys: Keys | None, *, untouched: bool) -> Relation | None:
        """The table's rows, at least those with the keys; `untouched`: those that stay through the batch."""
        names = {output.name: output.sql for output in scan.outputs}
        return self._stored(self._table(scan), names, keys, untouched=untouched)

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        table = self.batch.states[node]
        return self._stored(table, {name: name for name in table.spec.columns}, keys)

    def are_read_whole(self, node: Node) -> bool:
        return all(self._is_read_whole(self._table(scan)) for scan in scans(node))

    def _table(self, scan: Scan) -> StoredTable:
        return self.batch.tables[scan.table]
