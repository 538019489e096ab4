"""As-of lookup: for each left row the dimension version that was valid at the row's own time.

A version valid in [s, e) is the difference of two rays, so the lookup is bilinear like a join:

    [s, e) = [s, ∞) − [e, ∞)        ΔS as rays: +ray(s) −ray(e) for what came, the opposite for what went

Closing a version (-[s, ∞) +[s, e)) nets to −ray(e): it concerns only left rows at or after e. Rows that the state
holds are older than every new commit, so a dimension that only moves forward in time never makes the state be read.

    L ⟕ S = L ⋈ S  +  (L − π(L ⋈ S)) extended        at most one version is valid at a time
"""

from __future__ import annotations

from headgate.dataflow.graph import AsOfJoin
from headgate.dataflow.relation import Keys, Relation, column_list, netted, quoted, select, union_all
from headgate.dataflow.run import Run
from headgate.delta.changes import JOB, UNKNOWN_MEMBER, WEIGHT

_FROM = "__from"


def as_of_delta(node: AsOfJoin, run: Run) -> Relation | None:
    inner = _inner_delta(node, run)
    if node.miss == "drop":
        return inner
    left = run.delta(node.left)
    if inner is not None:
        inner = run.settle(netted(inner))
    columns = node.left.columns
    matched = inner and select(
        f"SELECT {column_list(columns)}, {JOB}, -{WEIGHT} AS {WEIGHT} FROM {inner.source}", columns
    )
    missed = union_all([left, matched], columns)
    missed = missed and netted(missed)
    if node.miss == "fail":
        missed = run.settle(missed)
        if missed is not None:
            run.lookup_missed(node, missed)
    return union_all([inner, missed and _extended(node, run, missed, [JOB, WEIGHT])], node.columns)


def _inner_delta(node: AsOfJoin, run: Run) -> Relation | None:
    left_keys = tuple(pair[0] for pair in node.keys)
    right_keys = tuple(pair[1] for pair in node.keys)
    left = run.delta(node.left)
    rays = _rays(node, run)
    if left is not None and rays is not None:
        left = run.settled_delta(node.left)
    equal = " AND ".join(f"l.{quoted(a)} = r.{quoted(b)}" for a, b in node.keys)
    started = f"r.{_FROM} <= l.{quoted(node.at)}"
    parts: list[Relation | None] = []
    if left is not None:
        keys = None if run.is_cheap(node.right) else run.delta_keys(node.left, left_keys, right_keys)
        state = run.rows(node.right, keys)
        left = run.delta(node.left) or left
        if state is not None:
            parts.append(
                select(
                    f"SELECT {_outputs(node, run)}, l.{JOB}, l.{WEIGHT}"
                    f" FROM {left.source} l JOIN {state.source} r ON {equal} AND {_valid(node)}",
                    node.columns,
                )
            )
        if rays is not None:
            parts.append(
                select(
                    f"SELECT {_outputs(node, run)}, GREATEST(l.{JOB}, r.{JOB}) AS {JOB}, l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
                    f" FROM {left.source} l JOIN {rays.source} r ON {equal} AND {started}",
                    node.columns,
                )
            )
    if rays is not None and not run.is_before(node.left, node.at, rays, _FROM):
        keys = None if run.is_cheap(node.left) else run.keys_of(rays, right_keys, left_keys)
        state = run.rows(node.left, keys)
        if state is not None:
            parts.append(
                select(
                    f"SELECT {_outputs(node, run)}, r.{JOB}, r.{WEIGHT}"
                    f" FROM {state.source} l JOIN {rays.source} r ON {equal} AND {started}",
                    node.columns,
                )
            )
    return union_all(parts, node.columns)


def _rays(node: AsOfJoin, run: Run) -> Relation | None:
    delta = run.delta(node.right)
    if delta is None:
        return None
    names = ", ".join(
        _end_column(node, run, "") if column == node.end else quoted(column) for column in node.right.columns
    )
    text = (
        f"SELECT {names}, IF(__sign > 0, {quoted(node.start)}, {quoted(node.end)}) AS {_FROM}, {JOB}, {WEIGHT} * __sign AS {WEIGHT}"
        f" FROM {delta.source} CROSS JOIN (SELECT * FROM VALUES (1L), (-1L) AS s(__sign))"
        f" WHERE __sign > 0 OR {quoted(node.end)} IS NOT NULL"
    )
    return run.settle(netted(select(text, (*node.right.columns, _FROM))))


def _end_column(node: AsOfJoin, run: Run, qualifier: str) -> str:
    """The end of validity, if anybody reads it; else NULL, so that closing a version concerns no row before."""
    if run.is_read(node, node.end):
        return f"{qualifier}{quoted(node.end)}"
    return f"CAST(NULL AS {run.type_of(node.right, node.end)}) AS {quoted(node.end)}"


def _outputs(node: AsOfJoin, run: Run) -> str:
    left = column_list(node.left.columns, "l")
    right = ", ".join(
        _end_column(node, run, "r.") if column == node.end else f"r.{quoted(column)}" for column in node.right.columns
    )
    return f"{left}, {right}"


def _valid(node: AsOfJoin) -> str:
    end = f"r.{quoted(node.end)}"
    at = f"l.{quoted(node.at)}"
    return f"r.{quoted(node.start)} <= {at} AND ({end} IS NULL OR {at} < {end})"


def _extended(node: AsOfJoin, run: Run, left: Relation, more: list[str]) -> Relation:
    values = []
    for column in node.right.columns:
        known = node.miss == "unknown" and column == node.surrogate_key
        value = str(UNKNOWN_MEMBER) if known else "NULL"
        values.append(f"CAST({value} AS {run.type_of(node.right, column)}) AS {quoted(column)}")
    return select(f"SELECT {', '.join([column_list(left.columns), *values, *more])} FROM {left.source}", node.columns)


def as_of_rows(node: AsOfJoin, run: Run, keys: Keys | None) -> Relation | None:
    left_keys = keys and keys.only(node.left.columns)
    left = run.rows(node.left, left_keys)
    if left is None:
        return None
    to_right = dict(node.keys)
    shared = left_keys and left_keys.renamed(to_right)
    if shared is None and left_keys is not None and not run.is_cheap(node.right):
        left = run.settle(left, weighted=False)
        if left is None:
            return None
        shared = run.keys_of(left, tuple(to_right), tuple(to_right.values()))
    right = run.rows(node.right, shared)
    if right is None:
        return None if node.miss == "drop" else _extended(node, run, left, [])
    equal = " AND ".join(f"l.{quoted(a)} = r.{quoted(b)}" for a, b in node.keys)
    kind = "JOIN" if node.miss in ("drop", "fail") else "LEFT JOIN"
    outputs = _outputs(node, run)
    if node.miss == "unknown" and node.surrogate_key is not None:
        name = quoted(node.surrogate_key)
        found = f"COALESCE(r.{name}, CAST({UNKNOWN_MEMBER} AS {run.type_of(node.right, node.surrogate_key)})) AS {name}"
        outputs = outputs.replace(f"r.{name}", found)
    return select(
        f"SELECT {outputs} FROM {left.source} l {kind} {right.source} r ON {equal} AND {_valid(node)}", node.columns
    )
