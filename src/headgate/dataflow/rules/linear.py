"""Filter, project, generate, repeat, union all: linear, so the rule is to apply the operator to the changes, or to spans.

Δ(f(R)) = f(ΔR)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.dataflow.graph import Filter, Generate, Projection, Repeat, UnionAll
from headgate.dataflow.relation import Keys, Relation, column_list, quoted, select, union_all
from headgate.dataflow.run import Reading, Run
from headgate.delta.changes import WEIGHT

Apply = Callable[[Any, Relation, tuple[str, ...]], str]
"""The query of an operator over its input's rows, or over its changes, which have these marks besides the columns."""
Delta = Callable[[Any, Run], Relation | None]
Rows = Callable[[Any, Reading, Keys | None], Relation | None]


def linear(apply: Apply) -> tuple[Delta, Rows]:
    """The rule of an operator over one input."""

    def delta(node: Any, run: Run) -> Relation | None:
        below = run.spans(node.input)
        return below and select(apply(node, below, below.marks), node.columns, spanned=below.spanned)

    def rows(node: Any, run: Reading, keys: Keys | None) -> Relation | None:
        origins = {column: node.origin(column) for column in keys.columns} if keys is not None else {}
        wanted = keys and keys.renamed({column: origin[1] for column, origin in origins.items() if origin is not None})
        below = run.rows(node.input, wanted)
        return below and select(apply(node, below, ()), node.columns)

    return delta, rows


def filter_query(node: Filter, below: Relation, marks: tuple[str, ...]) -> str:
    return f"SELECT * FROM {below.source} WHERE {node.predicate}"


def project_query(node: Projection, below: Relation, marks: tuple[str, ...]) -> str:
    outputs = [f"{output.sql} AS {quoted(output.name)}" for output in node.outputs]
    return f"SELECT {', '.join([*outputs, *marks])} FROM {below.source}"


def generate_query(node: Generate, below: Relation, marks: tuple[str, ...]) -> str:
    view = f"LATERAL VIEW {'OUTER ' if node.outer else ''}{node.generator} __g AS {column_list(node.names)}"
    return f"SELECT {column_list((*node.columns, *marks))} FROM {below.source} {view}"


def repeat_query(node: Repeat, below: Relation, marks: tuple[str, ...]) -> str:
    """Changes are weighted, rows repeated."""
    weighted = [f"{WEIGHT} * ({node.times}) AS {WEIGHT}" if mark == WEIGHT else mark for mark in marks]
    copies = "" if marks else f" LATERAL VIEW explode(sequence(1, CAST({node.times} AS INT))) __g AS __n"
    outputs = ", ".join([column_list(node.columns), *weighted])
    return f"SELECT {outputs} FROM {below.source}{copies} WHERE ({node.times}) > 0"


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
