"""One flow taken from job `after` to job `upto` by executors: the rules over relations that are files.

A table's changes and snapshots are read from its files, and what is settled is written into files. The driver has names, numbers
of rows, and at most a row for each job.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from pyspark.sql.types import DataType, IntegralType

from headgate.dataflow.graph import Aggregate, AsOfJoin, Node
from headgate.dataflow.relation import SIGNS, Keys, Relation, column_list, netted, quoted, select
from headgate.dataflow.rules.aggregate import value_changes
from headgate.delta.changes import BEGINNING, COPY, JOB, ROW_HASH, WEIGHT
from headgate.runtime.evaluation.file_relations import FileRelations, FolderMaker
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.rule_run import RuleRun
from headgate.runtime.evaluation.tracing import Tracer, Values
from headgate.runtime.evaluation.wide_inputs import KeyRelation, WantedKeys, WideInputs
from headgate.runtime.rows.copies import numbered_text, row_hash
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.changes import ChangeSet

_MOST_JOBS = 500
"""Of so many jobs at most, the driver looks at a row for each."""


class WideEvaluation(RuleRun):
    """The rules for one flow and one batch of jobs, on rows in files."""

    def __init__(self, batch: FlowBatch, views: BatchViews, folders: FolderMaker, changed_rows: int) -> None:
        self._files = FileRelations(views, folders, batch.after, batch.upto)
        super().__init__(batch, WideInputs(batch, views, self._files, changed_rows))
        self._views = views
        self.state_changes: dict[Aggregate, ChangeSet | None] = {}

    def result(self, target: StoredTable) -> ChangeSet | None:
        """The flow's changes. With a key, a row that changed to itself may be among them."""
        delta = self.delta(self.graph.root)
        if delta is None:
            return None
        if ROW_HASH in target.spec.key:
            delta = self._numbered(netted(delta), target)
        elif self.graph.running_top is None:
            # Running sums change a group once in a job: no two rows cancel.
            delta = netted(delta)
        return None if delta is None else self._files.changes(delta, target.spec)

    def know_state(self, node: Aggregate, changes: ChangeSet) -> None:
        """Takes these changes of an aggregate's state, which were not found by its rule."""
        view = self._views.of_frame(changes.frame(self._views.session))
        relation = Relation(view, self._batch.states[node].spec.columns, changes.rows)
        self._spans[node] = value_changes(node, self.graph.forms[node], relation)

    def read_state(self, node: Aggregate) -> None:
        """Takes the changes of an aggregate's state as they are stored."""
        changes = self._batch.states[node].changes(self._batch.after, self._batch.upto)
        if changes is None or not changes.rows:
            self._spans[node] = None
            return
        self.know_state(node, changes)
        self._spans[node] = self.settle(self._spans[node])

    def _numbered(self, delta: Relation, target: StoredTable) -> Relation | None:
        """Weighted rows of a bag as single copies, each with its row hash and number."""
        names = tuple(name for name in target.spec.columns if name not in (ROW_HASH, COPY))
        columns = (*names, ROW_HASH)
        text = f"SELECT *, {row_hash(target.schema_of(names))} AS {ROW_HASH} FROM {delta.source}"
        if target.is_empty(self._batch.after):
            return select(numbered_text(names, f"({text})", None), (*columns, COPY))
        hashed = self.settle(select(text, columns))
        if hashed is None:
            return None
        stored = self._views.whole(target, self._batch.after)
        present = (
            f"(SELECT s.{ROW_HASH} FROM {stored} s LEFT SEMI JOIN {hashed.source} h ON s.{ROW_HASH} = h.{ROW_HASH})"
        )
        return select(numbered_text(names, hashed.source, present), (*columns, COPY))

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        return self._files.settle(relation, weighted=weighted)

    def _keys(self, values: list[Values], names: tuple[str, ...]) -> Keys:
        return Keys(names, WantedKeys(cache(lambda: self._key_relation(values, names)), names))

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        @cache
        def find() -> KeyRelation:
            tracer = Tracer(self, self._batch.tables, self._forward, self._met)
            return self._key_relation(*tracer.values(node, columns, names))

        return Keys(names, WantedKeys(find, names))

    def _key_relation(self, values: list[Values], names: tuple[str, ...]) -> KeyRelation:
        """All of the values; of types that do not agree, the widest integer (else the column is left out)."""
        parts = [(value.relation.source, value.columns) for value in values if value.relation is not None]
        if not parts:
            return KeyRelation(None, {})
        types = [self._types(source, columns) for source, columns in parts]
        kept = [
            place
            for place in range(len(names))
            if len({kinds[place] for kinds in types}) == 1
            or all(isinstance(kinds[place], IntegralType) for kinds in types)
        ]
        if not kept:
            return KeyRelation(parts[0][0], {})
        texts = [
            f"SELECT {', '.join(f'{quoted(columns[place])} AS {quoted(names[place])}' for place in kept)} FROM {source}"
            for source, columns in parts
        ]
        frame = self._views.sql(" UNION ALL ".join(texts))
        return KeyRelation(self._views.of_frame(frame), {part.name: part.dataType for part in frame.schema.fields})

    def _types(self, source: str, columns: tuple[str, ...]) -> list[DataType]:
        frame = self._views.sql(f"SELECT {column_list(columns)} FROM {source}")
        return [part.dataType for part in frame.schema.fields]

    def keep_state(self, node: Aggregate, changes: Relation) -> None:
        self.state_changes[node] = self._files.changes(changes, self._batch.states[node].spec)

    def recomputes(self, below: Node, group: tuple[str, ...]) -> None:
        """Groups of any size are computed, with the help of the executors' disks."""

    def _earliest_effects(self, node: AsOfJoin, moved: Relation) -> Mapping[int, datetime] | None:
        if not moved.settled or self.jobs > _MOST_JOBS:
            return None
        names = "".join(f", {quoted(name)}" for name in self._attributes(node))
        moments = (
            f"SELECT {JOB}, IF(__sign > 0, {quoted(node.start)}, {quoted(node.end)}) AS __moment,"
            f" {WEIGHT} * __sign AS {WEIGHT}{names} FROM {moved.source} {SIGNS}"
        )
        effects = (
            f"SELECT {JOB}, __moment FROM ({moments}) WHERE __moment IS NOT NULL"
            f" GROUP BY {JOB}, __moment{names} HAVING SUM({WEIGHT}) <> 0"
        )
        rows, _ = self._views.collect(f"SELECT {JOB}, MIN(__moment) AS __moment FROM ({effects}) GROUP BY {JOB}")
        return {
            row[JOB]: row["__moment"] if isinstance(row["__moment"], datetime) else BEGINNING
            for row in rows.to_pylist()
        }

    def _first_row(self, relation: Relation) -> dict[str, Any]:
        rows, _ = self._views.collect(f"SELECT * FROM {relation.source} LIMIT 1")
        found: dict[str, Any] = rows.to_pylist()[0]
        return found
