"""Filter, project, generate, repeat, union all: linear, so the rule is to apply the operator to the changes, or to spans.

Δ(f(R)) = f(ΔR)
"""

from __future__ import annotations

from headgate.dataflow.graph import Filter, Generate, Projection, Repeat, UnionAll
from headgate.dataflow.relation import Keys, Relation, column_list, quoted, select, union_all
from headgate.dataflow.run import Reading, Run
from headgate.delta.changes import WEIGHT


def _filter(node: Filter, relation: Relation | None) -> Relation | None:
    if relation is None:
        return None
    text = f"SELECT * FROM {relation.source} WHERE {node.predicate}"
    return select(text, node.columns, spanned=relation.spanned)


def filter_delta(node: Filter, run: Run) -> Relation | None:
    return _filter(node, run.spans(node.input))


def filter_rows(node: Filter, run: Reading, keys: Keys | None) -> Relation | None:
    return _filter(node, run.rows(node.input, keys))


def _project(node: Projection, relation: Relation | None, *, weighted: bool) -> Relation | None:
    if relation is None:
        return None
    outputs = [f"{output.sql} AS {quoted(output.name)}" for output in node.outputs]
    outputs += relation.marks if weighted else ()
    return select(f"SELECT {', '.join(outputs)} FROM {relation.source}", node.columns, spanned=relation.spanned)


def project_delta(node: Projection, run: Run) -> Relation | None:
    return _project(node, run.spans(node.input), weighted=True)


def project_rows(node: Projection, run: Reading, keys: Keys | None) -> Relation | None:
    return _project(node, run.rows(node.input, keys and keys.renamed(node.renames)), weighted=False)


def _generate(node: Generate, relation: Relation | None, *, weighted: bool) -> Relation | None:
    if relation is None:
        return None
    outer = "OUTER " if node.outer else ""
    outputs = column_list((*node.columns, *(relation.marks if weighted else ())))
    return select(
        f"SELECT {outputs} FROM {relation.source} LATERAL VIEW {outer}{node.generator} __g AS {column_list(node.names)}",
        node.columns,
        spanned=relation.spanned,
    )


def generate_delta(node: Generate, run: Run) -> Relation | None:
    return _generate(node, run.spans(node.input), weighted=True)


def generate_rows(node: Generate, run: Reading, keys: Keys | None) -> Relation | None:
    return _generate(node, run.rows(node.input, keys and keys.only(node.input.columns)), weighted=False)


def repeat_delta(node: Repeat, run: Run) -> Relation | None:
    delta = run.spans(node.input)
    if delta is None:
        return None
    marks = ", ".join(f"{WEIGHT} * ({node.times}) AS {WEIGHT}" if mark == WEIGHT else mark for mark in delta.marks)
    return select(
        f"SELECT {column_list(node.columns)}, {marks} FROM {delta.source} WHERE ({node.times}) > 0",
        node.columns,
        spanned=delta.spanned,
    )


def repeat_rows(node: Repeat, run: Reading, keys: Keys | None) -> Relation | None:
    rows = run.rows(node.input, keys)
    return rows and select(
        f"SELECT {column_list(node.columns)} FROM {rows.source} LATERAL VIEW explode(sequence(1, CAST({node.times} AS INT))) __g AS __n"
        f" WHERE ({node.times}) > 0",
        node.columns,
    )


def _branches(node: UnionAll, run: Reading, parts: list[Relation | None], *, weighted: bool) -> list[Relation | None]:
    """The branches in the union's own types: one of them alone would have its own."""
    cast: list[Relation | None] = []
    for branch, part in zip(node.branches, parts, strict=True):
        types = {column: run.graph.type_of(node, column) for column in node.columns}
        if part is not None and any(run.graph.type_of(branch, column) != kind for column, kind in types.items()):
            outputs = [f"CAST({quoted(column)} AS {kind}) AS {quoted(column)}" for column, kind in types.items()]
            outputs += part.marks if weighted else ()
            part = select(f"SELECT {', '.join(outputs)} FROM {part.source}", node.columns, spanned=part.spanned)
        cast.append(part)
    return cast


def union_delta(node: UnionAll, run: Run) -> Relation | None:
    parts = [run.spans(branch) for branch in node.branches]
    return union_all(_branches(node, run, parts, weighted=True), node.columns)


def union_rows(node: UnionAll, run: Reading, keys: Keys | None) -> Relation | None:
    parts = [run.rows(branch, keys) for branch in node.branches]
    return union_all(_branches(node, run, parts, weighted=False), node.columns, weighted=False)
