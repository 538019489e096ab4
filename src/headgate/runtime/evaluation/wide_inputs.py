"""The tables of a flow in a wide batch, as relations over files.

Rows are looked up by joining a table with the keys; a table that is not many times larger than the changes is read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.types import DataType, IntegralType

from headgate.dataflow.graph import Join, Node, Scan, scans, walk
from headgate.dataflow.relation import UNTIL, Keys, Relation, column_list, quoted, same_values, select
from headgate.delta.changes import JOB, WEIGHT
from headgate.runtime.evaluation.file_relations import FileRelations
from headgate.runtime.evaluation.flow_batch import FlowBatch
from headgate.runtime.evaluation.inputs import Inputs
from headgate.runtime.evaluation.key_ranges import within_ranges
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.stored import StoredTable

ROWS_PER_CHANGE = 1
"""A table with at most this many rows for each change of the batch is read whole: few of its rows would be left out."""
SKIPPED_PER_CHANGE = 10
MANY_ROWS = 1_000_000
"""Of a table with more rows, and more for each change than that, skipping row groups can save more than finding out which."""
_ODD = "__odd"


@dataclass(frozen=True, slots=True)
class KeyRelation:
    """Rows of key values: a view (None when there are none), and the types of its columns."""

    view: str | None
    types: Mapping[str, DataType]


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """Implements `KeyValues`: columns of a relation that is made when a lookup needs it."""

    find: Callable[[], KeyRelation]
    names: tuple[str, ...]

    def select(self, places: list[int], /) -> WantedKeys:
        return WantedKeys(self.find, tuple(self.names[place] for place in places))


class WideInputs(Inputs):
    def __init__(self, batch: FlowBatch, views: BatchViews, files: FileRelations, changed_rows: int) -> None:
        super().__init__(batch, views)
        self.files = files
        self.changed_rows = changed_rows
        self._views_of_changes: dict[str, Relation | None] = {}
        self._spans: dict[str, Relation | None] = {}

    def changes(self, scan: Scan) -> Relation | None:
        return _scanned(scan, self._changes(self._table(scan)))

    def spans(self, scan: Scan) -> Relation | None:
        table = self._table(scan)
        if table.name not in self._spans:
            self._spans[table.name] = self._spans_of(table)
        return _scanned(scan, self._spans[table.name]) or self.changes(scan)

    def _is_read_whole(self, table: StoredTable) -> bool:
        after = self.batch.after
        return table.is_small(after) or table.count(after) <= ROWS_PER_CHANGE * self.changed_rows

    def _changes(self, table: StoredTable) -> Relation | None:
        if table.name not in self._views_of_changes:
            found = table.changes(self.batch.after, self.batch.upto)
            relation = None
            if found is not None and found.rows:
                view = self.views.of_frame(self.files.staged(found))
                relation = Relation(view, table.spec.columns, found.rows)
            self._views_of_changes[table.name] = relation
        return self._views_of_changes[table.name]

    def _spans_of(self, table: StoredTable) -> Relation | None:
        """The table's changes as spans; None when no row comes and goes within the batch and none of them meet."""
        changes = self._changes(table)
        if changes is None:
            return None
        columns = table.spec.columns
        if self.batch.jobs == 1:
            # Of two tables that change, old rows never meet new ones.
            text = (
                f"SELECT {column_list(columns)}, IF({WEIGHT} > 0, {JOB}, 0L) AS {JOB}, 1L AS {WEIGHT},"
                f" IF({WEIGHT} > 0, NULL, {JOB}) AS {UNTIL} FROM {changes.source}"
            )
            return Relation(f"({text})", columns, changes.rows, spanned=True) if self._changes_meet else None
        window = f"OVER (PARTITION BY {column_list(table.spec.key)} ORDER BY {JOB}, {WEIGHT})"
        steps = (
            f"(SELECT *, LAG({WEIGHT}) {window} AS __before, LEAD({WEIGHT}) {window} AS __next,"
            f" LEAD({JOB}) {window} AS __next_job FROM {changes.source})"
        )
        text = (
            f"SELECT {column_list(columns)}, IF({WEIGHT} > 0, {JOB}, 0L) AS {JOB}, 1L AS {WEIGHT},"
            f" IF({WEIGHT} > 0, IF(__next < 0, __next_job, NULL), {JOB}) AS {UNTIL},"
            f" COALESCE(__before = {WEIGHT} OR __next = {WEIGHT}, false) AS {_ODD}"
            f" FROM {steps} WHERE {WEIGHT} > 0 OR COALESCE(__before, -1L) < 0"
        )
        spans = self.files.settle(select(text, (*columns, _ODD), spanned=True))
        if spans is None:
            return None
        # What does not come and go by turns is none of a key's rows.
        flags = f"SELECT BOOL_OR({_ODD}) AS odd, BOOL_OR({JOB} > 0 AND {UNTIL} IS NOT NULL) AS ends FROM {spans.source}"
        odd, ends = (part[0].as_py() for part in self.views.collect(flags)[0].columns)
        return Relation(spans.source, columns, spans.rows, spanned=True) if ends and not odd else None

    @cached_property
    def _changes_meet(self) -> bool:
        """Whether a join has changes on both sides."""

        def is_changed(node: Node) -> bool:
            return any(self._changes(self._table(scan)) is not None for scan in scans(node))

        joins = (node for node in walk(self.batch.graph.root) if isinstance(node, Join))
        return any(is_changed(node.left) and is_changed(node.right) for node in joins)

    def _stored(
        self, table: StoredTable, names: Mapping[str, str], keys: Keys | None, *, untouched: bool = False
    ) -> Relation | None:
        if table.is_empty(self.batch.after):
            return None
        changes = self._changes(table) if untouched else None
        wanted = None if keys is None or self._is_read_whole(table) else keys.renamed(dict(names))
        source = self.views.whole(table, self.batch.after) if wanted is None else self._looked_up(table, names, wanted)
        if source is None:
            return None
        if changes is not None:
            hashable = "collate" not in table.spec.schema.simpleString()
            same = same_values("w", "c", [(name, name) for name in table.spec.key], same_types=hashable)
            # The first change of a row that was there is that it goes.
            gone = f"(SELECT {column_list(table.spec.key)} FROM {changes.source} WHERE {WEIGHT} < 0)"
            source = f"(SELECT w.* FROM {source} w LEFT ANTI JOIN {gone} c ON {same})"
        outputs = ", ".join(f"{quoted(column)} AS {quoted(name)}" for name, column in names.items()) or "1 AS __one"
        return select(f"SELECT {outputs} FROM {source}", tuple(names))

    def _looked_up(self, table: StoredTable, names: Mapping[str, str], wanted: Keys) -> str | None:
        """Rows with the wanted values, from the copy of the table whose order helps; None when there are no values."""
        assert isinstance(wanted.values, WantedKeys)
        found = wanted.values.find()
        if found.view is None:
            return None
        keys = {
            of_table: of_key
            for of_table, of_key in zip(wanted.columns, wanted.values.names, strict=True)
            if of_key in found.types and _compare(table.spec.schema[of_table].dataType, found.types[of_key])
        }
        if not keys:
            return self.views.whole(table, self.batch.after)
        needed = {*names.values(), *table.spec.key}
        for copy in table.parts():
            lead = copy.spec.sort[0]
            if lead in keys and needed <= set(copy.spec.columns):
                break
        else:
            copy, lead = table.main, ""
        source = (
            self.views.whole(table, self.batch.after)
            if copy is table.main
            else self.views.arranged(copy, self.batch.after)
        )
        within = None
        rows = table.count(self.batch.after)
        if lead and rows >= max(MANY_ROWS, SKIPPED_PER_CHANGE * self.changed_rows):
            key, groups = keys[lead], rows // table.main.limits.rows_per_group
            within = within_ranges(self.views, found.view, key, found.types[key], f"w.{quoted(lead)}", groups)
        hashable = all(
            _is_hashed_alike(table.spec.schema[one].dataType, found.types[other]) for one, other in keys.items()
        )
        same = same_values("w", "k", list(keys.items()), same_types=hashable)
        # A row group is skipped by what stands before the join.
        source = source if within is None else f"(SELECT * FROM {source} w WHERE {within})"
        return f"(SELECT w.* FROM {source} w LEFT SEMI JOIN {found.view} k ON {same})"


def _scanned(scan: Scan, changes: Relation | None) -> Relation | None:
    if changes is None:
        return None
    source = f"(SELECT {', '.join([scan.select_list, *changes.marks])} FROM {changes.source})"
    return Relation(source, scan.columns, changes.rows, changes.spanned)


def _is_hashed_alike(one: DataType, other: DataType) -> bool:
    return one == other and "collate" not in one.simpleString()


def _compare(one: DataType, other: DataType) -> bool:
    """Whether equality of the two types is that of the values."""
    return one == other or (isinstance(one, IntegralType) and isinstance(other, IntegralType))
