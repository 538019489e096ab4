"""Joins. The inner join is bilinear, the others are built on it.

    Δ(R ⋈ S) = ΔR ⋈ S + R ⋈ ΔS + ΔR ⋈ ΔS          weights multiply, the job is the later one
    R ⋉ S    = R ⋈ E                               E = the keys that S has, each once
    R ▷ S    = R − R ⋉ S
    R ⟕ S    = R ⋈ S  +  (R ▷ S) extended by NULLs

Rows of spans join where their times overlap: the pair is there from the later beginning to the earlier end. So a row that
changes in k jobs of a batch, joined with another that does, gives k pairs rather than the k² of their changes.

E is S itself when every left row has at most one match; else DISTINCT of S's keys, or, where the join has a residual
condition, of the left rows that have a match: an aggregate with counts, the join's `companion`. When only R changed,
each kind is linear in R: the join as written, of ΔR with S.
"""

from __future__ import annotations

from headgate.dataflow.expression import Column, Expression
from headgate.dataflow.graph import Aggregate, Join, Node, Output, Projection
from headgate.dataflow.relation import (
    UNTIL,
    Keys,
    Relation,
    as_changes,
    as_spans,
    column_list,
    quoted,
    select,
    union_all,
)
from headgate.dataflow.run import Reading, Run
from headgate.delta.changes import JOB, WEIGHT

_KIND_TEXT = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}
_PREFIX = "__e_"


def companion(node: Join) -> Aggregate | None:
    """E of the module's equations, where it is a stored aggregate."""
    if node.kind == "inner" or node.at_most_one:
        return None
    if node.residual is None:
        columns = tuple(right for _, right in node.keys)
        below: Node = node.right
    else:
        columns = tuple(column for column in node.left.columns if column in node.reads)
        below = Join(node.left, node.right, "inner", node.keys, node.residual)
    names = tuple(_PREFIX + column for column in columns)
    outputs = tuple(Output(name, Column(column)) for name, column in zip(names, columns, strict=True))
    if not outputs:
        outputs, names = (Output(_PREFIX + "any", Expression("1")),), (_PREFIX + "any",)
    return Aggregate(Projection(below, outputs), names)


def condition(node: Join) -> str:
    parts = [f"l.{quoted(left)} = r.{quoted(right)}" for left, right in node.keys]
    if node.residual is not None:
        parts.append(f"({node.residual})")
    return " AND ".join(parts) or "true"


def join_delta(node: Join, run: Run) -> Relation | None:
    if node.kind == "inner":
        merged = run.merged(node)
        if merged is not None:
            left, right = merged
            on = f"{condition(node)} AND GREATEST(l.{JOB}, r.{JOB}) > 0"
            return left and right and _both_changed(left, right, column_list(node.columns), on, node.columns)
        return bilinear(run, node.left, node.right, node.keys, condition(node), node.columns)
    if run.delta(node.right) is None:
        known = companion(node)
        if known is not None and node.residual is not None:
            run.delta(known)  # its counts change with either side
        left = run.spans(node.left)
        return left and _as_written(node, run, left)
    left = run.delta(node.left)
    matched, inner = _matched(node, run)
    if node.kind == "semi":
        return matched
    missed = union_all([left, matched and _negated(matched)], node.left.columns)
    if node.kind == "anti":
        return missed
    return union_all([inner, missed and null_extended(node, run, missed)], node.columns)


def _matched(node: Join, run: Run) -> tuple[Relation | None, Relation | None]:
    """Changes of the left rows that have a match, and (for a left join) of the joined rows."""
    known = companion(node)
    columns = node.left.columns
    if known is None:
        whole = node.columns if node.kind == "left" else columns
        inner = _changes(bilinear(run, node.left, node.right, node.keys, condition(node), whole))
        if node.kind == "left":
            inner = run.settle(inner)
        matched = inner and select(f"SELECT {column_list((*columns, JOB, WEIGHT))} FROM {inner.source}", columns)
        return matched, inner
    if node.residual is None:
        pairs = tuple((left, _PREFIX + right) for left, right in node.keys)
        on = " AND ".join(f"l.{quoted(left)} = r.{quoted(right)}" for left, right in pairs) or "true"
    else:
        pairs = tuple((name.removeprefix(_PREFIX), name) for name in known.keys)
        on = " AND ".join(f"l.{quoted(left)} <=> r.{quoted(right)}" for left, right in pairs)
    matched = _changes(bilinear(run, node.left, known, pairs, on, columns))
    inner = None
    if node.kind == "left":
        inner = _changes(bilinear(run, node.left, node.right, node.keys, condition(node), node.columns))
    return matched, inner


def _changes(delta: Relation | None) -> Relation | None:
    return delta and as_changes(delta)


def bilinear(
    run: Run, left: Node, right: Node, keys: tuple[tuple[str, str], ...], on: str, columns: tuple[str, ...]
) -> Relation | None:
    """The module's first equation; `columns` of the two sides are kept."""
    left_keys = tuple(pair[0] for pair in keys)
    right_keys = tuple(pair[1] for pair in keys)
    delta_left, delta_right = run.spans(left), run.spans(right)
    if delta_left is not None and delta_right is not None:
        delta_right = run.settled_spans(right)
    names = column_list(columns)
    parts: list[Relation | None] = []
    if delta_left is not None:
        state = _looked_up(run, right, right_keys, left, left_keys)
        delta_left = run.spans(left) or delta_left
        old = state and select(f"SELECT *, 0L AS {JOB}, 1L AS {WEIGHT} FROM {state.source}", right.columns)
        other = union_all([old, delta_right], right.columns)
        if other is not None:
            parts.append(_both_changed(delta_left, other, names, on, columns))
    if delta_right is not None:
        state = _looked_up(run, left, left_keys, right, right_keys)
        delta_right = run.spans(right) or delta_right
        if state is not None:
            marks = column_list(delta_right.marks, "r")
            text = f"SELECT {names}, {marks} FROM {state.source} l JOIN {delta_right.source} r ON {on}"
            parts.append(select(text, columns, spanned=delta_right.spanned))
    return union_all(parts, columns)


def _both_changed(left: Relation, right: Relation, names: str, on: str, columns: tuple[str, ...]) -> Relation:
    job = f"GREATEST(l.{JOB}, r.{JOB})"
    marks = f"{job} AS {JOB}, l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
    spanned = left.spanned or right.spanned
    if spanned:
        left, right = as_spans(left), as_spans(right)
        until = f"LEAST(l.{UNTIL}, r.{UNTIL})"  # NULL only if both are
        marks += f", {until} AS {UNTIL}"
        on = f"{on} AND COALESCE({job} < {until}, true)"
    text = f"SELECT {names}, {marks} FROM {left.source} l JOIN {right.source} r ON {on}"
    return select(text, columns, spanned=spanned)


def _looked_up(
    run: Run, node: Node, columns: tuple[str, ...], changed: Node, changed_columns: tuple[str, ...]
) -> Relation | None:
    """The node's rows that can meet a change of the other side, but for those that its spans tell of."""
    if not columns or run.is_cheap(node):
        return run.rows(node, None, untouched=True)
    return run.rows(node, run.delta_keys(changed, changed_columns, columns), untouched=True)


def _as_written(node: Join, run: Run, left: Relation) -> Relation | None:
    state = _looked_up(
        run, node.right, tuple(right for _, right in node.keys), node.left, tuple(left for left, _ in node.keys)
    )
    left = run.spans(node.left) or left
    if state is None:
        if node.kind == "semi":
            return None
        return left if node.kind == "anti" else null_extended(node, run, left)
    return select(
        f"SELECT {column_list(node.columns)}, {column_list(left.marks, 'l')} FROM {left.source} l"
        f" {_KIND_TEXT[node.kind]} {state.source} r ON {condition(node)}",
        node.columns,
        spanned=left.spanned,
    )


def _negated(relation: Relation) -> Relation:
    return select(
        f"SELECT {column_list(relation.columns)}, {JOB}, -{WEIGHT} AS {WEIGHT} FROM {relation.source}", relation.columns
    )


def null_extended(node: Node, run: Reading, left: Relation, *, weighted: bool = True) -> Relation:
    """The left rows with the right side's columns NULL, in their types."""
    right = node.inputs[1]
    nulls = [f"CAST(NULL AS {run.graph.type_of(right, column)}) AS {quoted(column)}" for column in right.columns]
    more = left.marks if weighted else ()
    return select(
        f"SELECT {', '.join([column_list(left.columns), *nulls, *more])} FROM {left.source}",
        left.columns + right.columns,
        spanned=left.spanned,
    )


def join_rows(node: Join, run: Reading, keys: Keys | None) -> Relation | None:
    to_right = dict(node.keys)
    to_left = {right: left for left, right in node.keys}
    left_keys = keys and keys.only(node.left.columns)
    right_keys: Keys | None = None
    if keys is not None and node.kind == "inner":
        right_keys = keys.only(node.right.columns)
    if left_keys is None and right_keys is not None:
        left_keys = right_keys.renamed(to_left)
        if left_keys is None:
            return _join_rows_from_right(node, run, right_keys)
    left = run.rows(node.left, left_keys)
    if left is None:
        return None
    shared = left_keys and left_keys.renamed(to_right)
    if shared is None and left_keys is not None and node.keys and not run.is_cheap(node.right):
        left, shared = run.row_keys(node.left, left, tuple(to_right), tuple(to_right.values()))
        if left is None:
            return None
    right = run.rows(node.right, shared)
    return _rows_text(node, run, left, right)


def _join_rows_from_right(node: Join, run: Reading, right_keys: Keys) -> Relation | None:
    right = run.rows(node.right, right_keys)
    shared: Keys | None = None
    if right is not None and node.keys and not run.is_cheap(node.left):
        columns, names = tuple(pair[1] for pair in node.keys), tuple(pair[0] for pair in node.keys)
        right, shared = run.row_keys(node.right, right, columns, names)
    if right is None:
        return None
    left = run.rows(node.left, shared)
    return left and _rows_text(node, run, left, right)


def _rows_text(node: Join, run: Reading, left: Relation, right: Relation | None) -> Relation | None:
    if right is None:
        if node.kind in ("inner", "semi"):
            return None
        return left if node.kind == "anti" else null_extended(node, run, left, weighted=False)
    return select(
        f"SELECT {column_list(node.columns)} FROM {left.source} l {_KIND_TEXT[node.kind]} {right.source} r"
        f" ON {condition(node)}",
        node.columns,
    )
