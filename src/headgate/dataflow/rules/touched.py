"""Recomputing the touched groups: for operators whose result is a function of each group as a whole.

For every group and every job that changed it, the group's rows as of that job are put through the operator; the result
appears at that job and goes at the next one that touches the group:

    moments of a group      0 (the state) < j1 < j2 …         result(j1) − result(0) at j1, result(j2) − result(j1) at j2
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.dataflow.graph import Node
from headgate.dataflow.relation import SIGNS, Relation, column_list, netted, quoted, select, union_all
from headgate.dataflow.run import Run
from headgate.delta.changes import JOB, WEIGHT

AT = "__at"
NEXT = "__next"


def recomputed(
    run: Run, below: Node, group: tuple[str, ...], columns: tuple[str, ...], operator: Callable[[str, str], str]
) -> Relation | None:
    """Changes of an operator over groups.

    `operator(rows, moments)` is the query that computes the output `columns` and the two moment columns from rows
    (the input's columns and the moment columns, copies expanded) within each moment and group.
    """
    if run.delta(below) is None:
        return None
    delta = run.settled_delta(below)
    if delta is None:
        return None
    keys = None if not group or run.is_cheap(below) else run.delta_keys(below, group, group)
    state = run.rows(below, keys)
    run.recomputes(below, group)
    old = state and select(f"SELECT *, 0L AS {JOB}, 1L AS {WEIGHT} FROM {state.source}", below.columns)
    every = union_all([old, delta], below.columns)
    assert every is not None
    groups = "".join(f"{quoted(column)}, " for column in group)
    partition = f"PARTITION BY {column_list(group)} " if group else ""
    moments = (
        f"(SELECT {groups}{AT}, LEAD({AT}) OVER ({partition}ORDER BY {AT}) AS {NEXT} FROM"
        f" (SELECT DISTINCT {groups}{JOB} AS {AT} FROM {delta.source}"
        f" UNION ALL SELECT DISTINCT {groups}0L AS {AT} FROM {delta.source}))"
    )
    same = "".join(f"m.{quoted(column)} <=> r.{quoted(column)} AND " for column in group)
    names = column_list(below.columns, "r")
    alive = (
        f"SELECT {names}, m.{AT}, m.{NEXT}, SUM(r.{WEIGHT}) AS __n FROM {moments} m JOIN {every.source} r"
        f" ON {same}r.{JOB} <= m.{AT} GROUP BY {names}, m.{AT}, m.{NEXT} HAVING SUM(r.{WEIGHT}) > 0"
    )
    expanded = (
        f"(SELECT {column_list(below.columns)}, {AT}, {NEXT} FROM ({alive})"
        " LATERAL VIEW explode(sequence(1, CAST(__n AS INT))) __g AS __i)"
    )
    results = operator(expanded, moments)
    text = (
        f"SELECT {column_list(columns)}, IF(__sign > 0, {AT}, {NEXT}) AS {JOB}, __sign AS {WEIGHT}"
        f" FROM ({results}) {SIGNS}"
        f" WHERE IF(__sign > 0, {AT} > 0, {NEXT} IS NOT NULL)"
    )
    return netted(select(text, columns))
