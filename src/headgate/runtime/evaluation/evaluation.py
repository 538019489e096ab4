"""One flow taken from job `after` to job `upto`: the rules at work on Spark.

Deltas and the rows that rules look up are small, so they are Arrow tables in the driver that enter Spark as local
relations; a flow without nested aggregates then is one Spark execution. What a rule asks for twice is settled: computed
once, kept, and entered again as a local relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from headgate.dataflow.graph import (
    Aggregate,
    AsOfJoin,
    Filter,
    Generate,
    Join,
    Node,
    Projection,
    Repeat,
    Scan,
    UnionAll,
    Window,
    walk,
)
from headgate.dataflow.lineage import table_column
from headgate.dataflow.relation import UNTIL, Keys, Relation, as_changes, column_list, netted, quoted
from headgate.dataflow.rulebook import RULES
from headgate.dataflow.rules.aggregate import Fused, fuse
from headgate.dataflow.rules.linear import renaming
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import BEGINNING, COMMIT_AT, JOB, WEIGHT, JobId
from headgate.errors import FlowFailed
from headgate.runtime.rows import chains
from headgate.runtime.tables.stored import BatchViews, StoredTable
from headgate.runtime.tables.table_changes import TableChanges

_FEW_ROWS = 5_000
"""Up to here the driver looks at rows one by one."""


class TooMuchToRead(Exception):
    """The batch should be halved: its groups would be computed from too many rows."""


class Evaluation:
    """Implements `headgate.dataflow.run.Run` for one flow and one batch of jobs."""

    def __init__(
        self,
        flow: str,
        graph: TypedGraph,
        tables: Mapping[str, StoredTable],
        states: Mapping[Aggregate, StoredTable],
        views: BatchViews,
        after: JobId,
        upto: JobId,
        newest_commit_at: Callable[[JobId], datetime | None],
        most_rows: int,
    ) -> None:
        self._flow = flow
        self.graph = graph
        self._tables = tables
        self._states = states
        self._views = views
        self._after = after
        self._upto = upto
        self._newest_commit_at = newest_commit_at
        self._most_rows = most_rows
        self._deltas: dict[Node, Relation | None] = {}
        self._spans: dict[Node, Relation | None] = {}
        self._untouched = False
        """Whether the rows being asked for are those that stay through the batch."""
        self._values: dict[str, pa.Table] = {}
        self._parents = _parent_counts(graph.root)
        self._forward: set[AsOfJoin] = set()
        """Lookups whose dimension moved only forward in time, so that only the batch's left rows were looked up."""
        self._looked_up: dict[Scan, pa.Table] = {}
        """The rows that each scan was last asked for, where they were looked up ..."""
        self._met: dict[Join, dict[Scan, pa.Table]] = {}
        """... and as they were when the changes of a join had been told."""
        self.state_changes: dict[Aggregate, pa.Table] = {}

    def result(self, *, keyed: bool) -> pa.Table | None:
        """The flow's changes, netted, or None. With a key, a row that changed to itself may be among them."""
        fused = fuse(self.graph.root, self) if keyed else None
        if fused is not None:
            return self._fused_result(fused)
        delta = self.delta(self.graph.root)
        if delta is None:
            return None
        settled = self.settle(netted(delta))
        return settled and self._values[settled.source]

    def _fused_result(self, fused: Fused) -> pa.Table | None:
        """State and result of an aggregate at the top, from one execution."""
        if fused.rows is None:
            return None
        rows, _ = self._views.collect(f"SELECT * FROM {fused.rows.source}")
        rows = chains.group_changes(rows, fused.group, tuple(fused.state_columns), fused.size)
        if rows.num_rows == 0:
            return None
        state = rows.select([*fused.state_columns, JOB, WEIGHT])
        self.state_changes[fused.node] = state.rename_columns([*fused.state_columns.values(), JOB, WEIGHT])
        for flag in fused.kept_flags:
            rows = rows.filter(rows.column(flag))
        return rows.select([*self.graph.root.columns, JOB, WEIGHT]) if rows.num_rows else None

    def delta(self, node: Node) -> Relation | None:
        if node not in self._deltas:
            spans = self.spans(node)
            if isinstance(node, Scan):
                self._deltas[node] = self._scan_changes(node)
            else:
                self._deltas[node] = spans and as_changes(spans)
        return self._deltas[node]

    def spans(self, node: Node) -> Relation | None:
        if node not in self._spans:
            untouched, self._untouched = self._untouched, False
            spans = RULES[type(node)].delta(node, self)
            self._untouched = untouched
            if isinstance(node, Join):
                self._met[node] = dict(self._looked_up)
            if spans is not None and self._parents.get(node, 0) > 1:
                spans = self.settle(spans)
            self._spans[node] = spans
        return self._spans[node]

    def settled_delta(self, node: Node) -> Relation | None:
        self.settled_spans(node)
        return self.delta(node)

    def settled_spans(self, node: Node) -> Relation | None:
        spans = self.spans(node)
        if spans is not None and not spans.settled:
            spans = self._spans[node] = self.settle(spans)
            self._deltas.pop(node, None)
        return spans

    def rows(self, node: Node, keys: Keys | None, *, untouched: bool | None = None) -> Relation | None:
        before = self._untouched
        wanted = before if untouched is None else untouched
        spans = self.spans(node) if wanted else None
        self._untouched = spans is not None and spans.spanned
        try:
            return RULES[type(node)].rows(node, self, keys)
        finally:
            self._untouched = before

    def settle(self, relation: Relation | None, *, weighted: bool = True) -> Relation | None:
        if relation is None or relation.settled:
            return relation
        names = (*relation.columns, *relation.marks) if weighted else relation.columns
        rows, schema = self._views.collect(f"SELECT {column_list(names)} FROM {relation.source}")
        if rows.num_rows == 0:
            return None
        name = self._views.of_rows(rows, schema)
        self._values[name] = rows
        return replace(relation, source=name, rows=rows.num_rows)

    def keys_of(self, relation: Relation, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        return _keys([self._values[relation.source].select(list(columns))], names)

    def delta_keys(self, node: Node, columns: tuple[str, ...], names: tuple[str, ...]) -> Keys:
        traced = self._trace(node, columns)
        if traced is None:
            leading = [place for place, column in enumerate(columns) if self._leads_a_key(node, column)]
            for place in leading:
                traced = self._trace(node, (columns[place],))
                if traced is not None:
                    columns, names = (columns[place],), (names[place],)
                    break
        if traced is None:
            spans = self.settled_spans(node)
            traced = [] if spans is None else [self._values[spans.source].select(list(columns))]
        if not traced:
            schema = pa.schema([(name, pa.null()) for name in names])
            return Keys(names, schema.empty_table())
        return _keys(traced, names)

    def _leads_a_key(self, node: Node, column: str) -> bool:
        """Whether the column shows the first key column of a table, so that few rows share a value."""
        stored = table_column(node, column)
        return stored is not None and self._tables[stored[0]].spec.sort[0] == stored[1]

    def _trace(self, node: Node, columns: tuple[str, ...]) -> list[pa.Table] | None:
        """Tables of values (columns in order) among which the delta's values are, without running anything."""
        spans = self.spans(node)
        if spans is None:
            return []
        if spans.settled and spans.source in self._values:
            return [self._values[spans.source].select(list(columns))]
        if isinstance(node, Filter | Repeat):
            return self._trace(node.input, columns)
        if isinstance(node, Projection):
            names = renaming(node)
            if all(column in names for column in columns):
                return self._trace(node.input, tuple(names[column] for column in columns))
            return None
        if isinstance(node, Generate) and all(column in node.input.columns for column in columns):
            return self._trace(node.input, columns)
        if isinstance(node, Window) and all(column in node.partition for column in columns):
            return self._trace(node.input, columns)
        if isinstance(node, Aggregate) and all(column in node.keys for column in columns):
            return self._trace(node.input, columns)
        if isinstance(node, UnionAll):
            return _joined([self._trace(branch, columns) for branch in node.branches])
        if isinstance(node, Join | AsOfJoin):
            return self._trace_join(node, columns)
        return None

    def _trace_join(self, node: Join | AsOfJoin, columns: tuple[str, ...]) -> list[pa.Table] | None:
        to_right = dict(node.keys)
        to_left = {right: left for left, right in node.keys}
        left = tuple(to_left.get(column, column) for column in columns)
        inner = isinstance(node, Join) and node.kind == "inner"
        if not inner and any(column not in node.left.columns for column in columns):
            return None
        if all(column in to_right for column in left):
            right = tuple(to_right[column] for column in left)
            return _joined([self._trace(node.left, left), self._trace(node.right, right)])
        only_left = self.spans(node.right) is None or node in self._forward
        if only_left and all(column in node.left.columns for column in left):
            return self._trace(node.left, left)
        right = tuple(to_right.get(column, column) for column in columns)
        for side, other, names in ((node.left, node.right, left), (node.right, node.left, right)):
            if inner and all(column in side.columns for column in names):
                return self._trace_side(node, side, other, names)
        return None

    def _trace_side(
        self, node: Join | AsOfJoin, side: Node, other: Node, columns: tuple[str, ...]
    ) -> list[pa.Table] | None:
        """Values of one side of an inner join: those of its changes, and of its rows that the other side's changes met."""
        traced = self._trace(side, columns)
        if self.spans(other) is None or traced is None or not isinstance(node, Join):
            return traced
        met = self._looked_up_values(side, columns, self._met[node])
        return [*traced, met] if met is not None else None

    def row_keys(
        self, node: Node, rows: Relation, columns: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Relation | None, Keys | None]:
        found = self._looked_up_values(node, columns, self._looked_up)
        if found is not None:
            return rows, _keys([found], names)
        settled = self.settle(rows, weighted=False)
        return settled, self.keys_of(settled, columns, names) if settled is not None else None

    def _looked_up_values(
        self, node: Node, columns: tuple[str, ...], looked_up: Mapping[Scan, pa.Table]
    ) -> pa.Table | None:
        """The columns in the rows that were looked up for the scan that they come from, if that is one scan."""
        if isinstance(node, Scan):
            found = looked_up.get(node)
            return found.select(list(columns)) if found is not None else None
        if isinstance(node, Filter | Repeat):
            return self._looked_up_values(node.input, columns, looked_up)
        if isinstance(node, Projection):
            plain = renaming(node)
            if all(column in plain for column in columns):
                return self._looked_up_values(node.input, tuple(plain[column] for column in columns), looked_up)
            return None
        if isinstance(node, Join | AsOfJoin) and all(column in node.left.columns for column in columns):
            return self._looked_up_values(node.left, columns, looked_up)
        return None

    def is_cheap(self, node: Node) -> bool:
        return all(self._tables[part.table].is_small(self._after) for part in walk(node) if isinstance(part, Scan))

    def scan_delta(self, scan: Scan) -> Relation | None:
        changes = self._views.changes(self._tables[scan.table], self._after, self._upto)
        if changes is None or changes.spans is None:
            return self._scan_changes(scan)
        return self._scanned(scan, changes.spans_view, changes.spans, spanned=True)

    def _scan_changes(self, scan: Scan) -> Relation | None:
        changes = self._views.changes(self._tables[scan.table], self._after, self._upto)
        return None if changes is None else self._scanned(scan, changes.view, changes.rows, spanned=False)

    def _scanned(self, scan: Scan, view: str, rows: pa.Table, *, spanned: bool) -> Relation:
        marks = [JOB, WEIGHT, UNTIL] if spanned else [JOB, WEIGHT]
        outputs = [f"{quoted(output.sql)} AS {quoted(output.name)}" for output in scan.outputs]
        source = f"(SELECT {', '.join([*outputs, *marks])} FROM {view})"
        chosen = rows.select([output.sql for output in scan.outputs] + marks)
        self._values[source] = chosen.rename_columns([*scan.columns, *marks])
        return Relation(source, scan.columns, rows.num_rows, spanned)

    def scan_rows(self, scan: Scan, keys: Keys | None) -> Relation | None:
        self._looked_up.pop(scan, None)
        table = self._tables[scan.table]
        names = {output.name: output.sql for output in scan.outputs}
        changes = self._views.changes(table, self._after, self._upto) if self._untouched else None
        relation = self._stored_rows(table, names, keys, changes)
        if relation is None:
            kinds = [(name, table.spec.arrow_schema.field(column).type) for name, column in names.items()]
            self._looked_up[scan] = pa.schema(kinds).empty_table()
        elif relation.settled:
            self._looked_up[scan] = self._values[relation.source]
        return relation

    def state_rows(self, node: Aggregate, keys: Keys | None) -> Relation | None:
        table = self._states[node]
        names = {name: name for name in table.spec.schema.names}
        return self._stored_rows(table, names, keys)

    def _stored_rows(
        self, table: StoredTable, names: Mapping[str, str], keys: Keys | None, changes: TableChanges | None = None
    ) -> Relation | None:
        """Rows of a table at job `after` that the changes leave; `names` maps output names to the table's columns.

        Settled if looked up.
        """
        columns = tuple(names)
        if table.is_empty(self._after):
            return None
        if keys is not None and not table.is_small(self._after):
            wanted = keys.renamed(dict(names))
            found = None
            if wanted is not None:
                selected = tuple(dict.fromkeys(names.values()))
                key = table.spec.key if changes is not None else ()
                found = table.lookup(
                    wanted.columns, wanted.values, self._after, tuple(dict.fromkeys((*selected, *key)))
                )
            if found is not None:
                if changes is not None:
                    found = changes.untouched(found).select(list(selected))
                if found.num_rows == 0:
                    return None
                view = self._views.of_rows(found, table.schema_of(tuple(found.column_names)))
                relation = replace(_selected(view, names, columns), rows=found.num_rows)
                self._values[relation.source] = found.select(list(names.values())).rename_columns(list(names))
                return relation
        whole = self._views.whole(table, self._after)
        if changes is not None:
            same = " AND ".join(f"w.{quoted(name)} <=> c.{quoted(name)}" for name in table.spec.key)
            whole = f"(SELECT w.* FROM {whole} w LEFT ANTI JOIN {changes.spans_view} c ON {same})"
        return _selected(whole, names, columns)

    def keep_state(self, node: Aggregate, changes: Relation) -> None:
        self.state_changes[node] = self._values[changes.source]

    def recomputes(self, below: Node, group: tuple[str, ...]) -> None:
        spans = self.settled_spans(below)
        if self._upto - self._after == 1 or spans is None:
            return
        changed = self._values[spans.source]
        moments = _keys([changed.select([*group, JOB])], (*group, JOB)).values.num_rows
        groups = _keys([changed.select(list(group))], group).values.num_rows if group else 1
        scans = [part for part in walk(below) if isinstance(part, Scan)]
        if sum(self._rows_read(scan) for scan in scans) * moments > self._most_rows * max(1, groups):
            raise TooMuchToRead

    def _rows_read(self, scan: Scan) -> int:
        found = self._looked_up.get(scan)
        return int(found.num_rows) if found is not None else self._tables[scan.table].count(self._after)

    def affects_only_future(self, node: AsOfJoin, moved: Relation) -> bool:
        stored = table_column(node.left, node.at)
        rows = self._values.get(moved.source)
        if stored is None or stored[1] != COMMIT_AT or rows is None or rows.num_rows > _FEW_ROWS:
            return False
        for job, effect in _earliest_effects(rows, node, self.graph.is_read(node, node.end)).items():
            before = self._newest_commit_at(JobId(job - 1))
            if before is not None and before >= effect:
                return False
        self._forward.add(node)
        return True

    def lookup_missed(self, node: AsOfJoin, missed: Relation) -> None:
        row = self._values[missed.source].slice(0, 1).to_pylist()[0]
        keys = {left: row[left] for left, _ in node.keys}
        shown = ", ".join(f"{name.split('__', 1)[-1]} = {value!r}" for name, value in keys.items())
        dimension = next((part.table for part in walk(node.right) if isinstance(part, Scan)), "the dimension")
        raise FlowFailed(
            f"flow {self._flow}: no version of {dimension} was valid for {shown} at {row[node.at]}, job {row[JOB]}",
            hint="load the dimension first, or set lookup_miss to 'unknown' or 'drop' in the view's TBLPROPERTIES",
        )


def _selected(view: str, names: Mapping[str, str], columns: tuple[str, ...]) -> Relation:
    outputs = ", ".join(f"{quoted(column)} AS {quoted(name)}" for name, column in names.items()) or "1 AS __one"
    return Relation(f"(SELECT {outputs} FROM {view})", columns)


def _earliest_effects(rows: pa.Table, node: AsOfJoin, end_is_read: bool) -> dict[int, datetime]:
    """Per job the first moment at which what is valid differs: equal versions that came and went with other ends cancel."""
    weights: dict[tuple[int, str, object], int] = {}
    names = [name for name in node.right.columns if end_is_read or name not in (node.start, node.end)]
    fixed = zip(*(rows.column(name).to_pylist() for name in names), strict=True) if names else iter(lambda: (), None)
    columns = (rows.column(name).to_pylist() for name in (node.start, node.end, JOB, WEIGHT))
    for rest, (start, end, job, weight) in zip(fixed, zip(*columns, strict=True), strict=False):
        for moment, sign in ((start, 1), (end, -1)):
            if moment is not None:
                place = (job, repr(rest), moment)
                weights[place] = weights.get(place, 0) + weight * sign
    effects: dict[int, datetime] = {}
    for (job, _, moment), weight in weights.items():
        if weight:
            effect = moment if isinstance(moment, datetime) else BEGINNING
            effects[job] = min(effect, effects.get(job, effect))
    return effects


def _parent_counts(root: Node) -> dict[Node, int]:
    counts: dict[Node, int] = {}
    for node in walk(root):
        for child in node.inputs:
            counts[child] = counts.get(child, 0) + 1
    return counts


def _joined(parts: Sequence[list[pa.Table] | None]) -> list[pa.Table] | None:
    found: list[pa.Table] = []
    for part in parts:
        if part is None:
            return None
        found.extend(part)
    return found


def _keys(tables: list[pa.Table], names: tuple[str, ...]) -> Keys:
    """Distinct rows of the tables; of types that do not agree, the widest integer (else the column is left out)."""
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
    return Keys(tuple(kept), _distinct(values))


def _distinct(values: pa.Table) -> pa.Table:
    if any(pa.types.is_nested(field.type) for field in values.schema):
        return values
    return values.group_by(values.column_names).aggregate([])
