"""As-of lookup: for each left row the dimension version that was valid at the row's own time.

A version valid in [s, e) is the difference of two rays, so the lookup is bilinear like a join:

    [s, e) = [s, ∞) − [e, ∞)        ΔS as rays: +ray(s) −ray(e) for what came, the opposite for what went

Closing a version (-[s, ∞) +[s, e)) nets to −ray(e): it concerns only left rows at or after e. Left rows of earlier jobs
are older than every new commit, so a dimension that only moves forward in time concerns none of them: then the batch's left
rows are looked up in the versions after the batch.

    L ⟕ S = L ⋈ S  +  (L − π(L ⋈ S)) extended        at most one version is valid at a time
"""

from __future__ import annotations

from headgate.dataflow.graph import AsOfJoin
from headgate.dataflow.relation import SIGNS, Keys, Relation, column_list, netted, quoted, select, union_all
from headgate.dataflow.run import Reading, Run
from headgate.delta.changes import JOB, UNKNOWN_MEMBER, WEIGHT

_FROM = "__from"
_TO = "__to"


def as_of_delta(node: AsOfJoin, run: Run) -> Relation | None:
    left, moved = run.delta(node.left), run.delta(node.right)
    if node.miss != "fail" and (moved is None or run.affects_only_future(node, moved)):
        return left and _as_written(node, run, moved)
    rays = run.settle(moved and _rays(node, run, moved))
    if left is not None and node.miss != "drop":
        left = run.settled_delta(node.left)
    inner = _inner_delta(node, run, rays)
    if node.miss == "drop":
        return inner
    if node.miss == "fail":
        inner = run.settle(inner and netted(inner))
        missed = run.settle(_missed(node, left, inner))
        if missed is not None:
            run.lookup_missed(node, missed)
        return inner
    outer = left and _extended(node, run, left, weighted=True)
    both = union_all([inner and _replacing(node, run, inner), outer], node.columns)
    return both and netted(both)


def _missed(node: AsOfJoin, left: Relation | None, inner: Relation | None) -> Relation | None:
    """L − π(L ⋈ S): the left rows without a version."""
    columns = node.left.columns
    matched = inner and select(
        f"SELECT {column_list(columns)}, {JOB}, -{WEIGHT} AS {WEIGHT} FROM {inner.source}", columns
    )
    missed = union_all([left, matched], columns)
    return missed and netted(missed)


def _replacing(node: AsOfJoin, run: Run, inner: Relation) -> Relation:
    """Each joined row, and minus the same left row extended: what it replaces."""
    values = [
        f"IF(__sign > 0, {quoted(column)}, {_extension(node, run, column)}) AS {quoted(column)}"
        for column in node.right.columns
    ]
    return select(
        f"SELECT {', '.join([column_list(node.left.columns), *values])}, {JOB}, {WEIGHT} * __sign AS {WEIGHT}"
        f" FROM {inner.source} {SIGNS}",
        node.columns,
    )


def _as_written(node: AsOfJoin, run: Run, moved: Relation | None) -> Relation | None:
    """Only left rows of the batch can meet what changed: the lookup as written, in the versions after the batch."""
    versions = _after_batch(node, _versions(node, run), moved)
    left = run.spans(node.left)
    if left is None:
        return None
    if versions is None:
        return None if node.miss == "drop" else _extended(node, run, left, weighted=True)
    kind = "JOIN" if node.miss == "drop" else "LEFT JOIN"
    return select(
        f"SELECT {_found(node, run)}, {column_list(left.marks, 'l')} FROM {left.source} l {kind} {versions.source} r"
        f" ON {_equal(node)} AND {_valid(node)}",
        node.columns,
        spanned=left.spanned,
    )


def _after_batch(node: AsOfJoin, stored: Relation | None, moved: Relation | None) -> Relation | None:
    if moved is None:
        return stored
    names = column_list(node.right.columns)
    every = f"SELECT {names}, {WEIGHT} FROM {moved.source}"
    if stored is not None:
        every += f" UNION ALL SELECT {names}, 1L AS {WEIGHT} FROM {stored.source}"
    return select(f"SELECT {names} FROM ({every}) GROUP BY {names} HAVING SUM({WEIGHT}) > 0", node.right.columns)


def _versions(node: AsOfJoin, run: Run) -> Relation | None:
    """The stored versions that a changed left row can meet."""
    if run.is_cheap(node.right):
        return run.rows(node.right, None)
    left_keys, right_keys = zip(*node.keys, strict=True)
    return run.rows(node.right, run.delta_keys(node.left, left_keys, right_keys))


def _inner_delta(node: AsOfJoin, run: Run, rays: Relation | None) -> Relation | None:
    parts: list[Relation | None] = []
    left = run.delta(node.left)
    if left is not None:
        state = _versions(node, run)
        left = run.delta(node.left) or left
        names = column_list(node.right.columns)
        stored = state and select(
            f"SELECT {names}, {quoted(node.start)} AS {_FROM}, {quoted(node.end)} AS {_TO}, 0L AS {JOB}, 1L AS {WEIGHT}"
            f" FROM {state.source}",
            (*node.right.columns, _FROM, _TO),
        )
        moved = rays and select(
            f"SELECT {names}, {_FROM}, CAST(NULL AS {run.graph.type_of(node.right, node.end)}) AS {_TO}, {JOB}, {WEIGHT}"
            f" FROM {rays.source}",
            (*node.right.columns, _FROM, _TO),
        )
        right = union_all([stored, moved], (*node.right.columns, _FROM, _TO))
        if right is not None:
            at = f"l.{quoted(node.at)}"
            parts.append(
                select(
                    f"SELECT {_outputs(node, run)}, GREATEST(l.{JOB}, r.{JOB}) AS {JOB}, l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
                    f" FROM {left.source} l JOIN {right.source} r ON {_equal(node)}"
                    f" AND r.{_FROM} <= {at} AND (r.{_TO} IS NULL OR {at} < r.{_TO})",
                    node.columns,
                )
            )
    if rays is not None:
        left_keys, right_keys = zip(*node.keys, strict=True)
        keys = None if run.is_cheap(node.left) else run.keys_of(rays, right_keys, left_keys)
        state = run.rows(node.left, keys)
        if state is not None:
            parts.append(
                select(
                    f"SELECT {_outputs(node, run)}, r.{JOB}, r.{WEIGHT} FROM {state.source} l JOIN {rays.source} r"
                    f" ON {_equal(node)} AND r.{_FROM} <= l.{quoted(node.at)}",
                    node.columns,
                )
            )
    return union_all(parts, node.columns)


def _rays(node: AsOfJoin, run: Run, delta: Relation) -> Relation:
    names = ", ".join(
        _end_column(node, run, "") if column == node.end else quoted(column) for column in node.right.columns
    )
    text = (
        f"SELECT {names}, IF(__sign > 0, {quoted(node.start)}, {quoted(node.end)}) AS {_FROM}, {JOB}, {WEIGHT} * __sign AS {WEIGHT}"
        f" FROM {delta.source} {SIGNS}"
        f" WHERE __sign > 0 OR {quoted(node.end)} IS NOT NULL"
    )
    return netted(select(text, (*node.right.columns, _FROM)))


def _end_column(node: AsOfJoin, run: Reading, qualifier: str) -> str:
    """The end of validity, if anybody reads it; else NULL, so that closing a version concerns no row before."""
    if run.graph.is_read(node, node.end):
        return f"{qualifier}{quoted(node.end)}"
    return f"CAST(NULL AS {run.graph.type_of(node.right, node.end)}) AS {quoted(node.end)}"


def _outputs(node: AsOfJoin, run: Reading) -> str:
    left = column_list(node.left.columns, "l")
    right = ", ".join(
        _end_column(node, run, "r.") if column == node.end else f"r.{quoted(column)}" for column in node.right.columns
    )
    return f"{left}, {right}"


def _valid(node: AsOfJoin) -> str:
    end = f"r.{quoted(node.end)}"
    at = f"l.{quoted(node.at)}"
    return f"r.{quoted(node.start)} <= {at} AND ({end} IS NULL OR {at} < {end})"


def _equal(node: AsOfJoin) -> str:
    return " AND ".join(f"l.{quoted(left)} = r.{quoted(right)}" for left, right in node.keys)


def _extension(node: AsOfJoin, run: Reading, column: str) -> str:
    """What a left row without a version has in a right column."""
    if node.miss == "unknown" and column == node.surrogate_key:
        return f"{UNKNOWN_MEMBER}L"
    return f"CAST(NULL AS {run.graph.type_of(node.right, column)})"


def _extended(node: AsOfJoin, run: Reading, left: Relation, *, weighted: bool) -> Relation:
    outputs = [column_list(left.columns)]
    outputs += [f"{_extension(node, run, column)} AS {quoted(column)}" for column in node.right.columns]
    outputs += left.marks if weighted else ()
    return select(f"SELECT {', '.join(outputs)} FROM {left.source}", node.columns, spanned=left.spanned)


def _found(node: AsOfJoin, run: Reading) -> str:
    """The outputs of the lookup as a left join; a version's surrogate key is never NULL."""
    outputs = _outputs(node, run)
    if node.miss == "unknown" and node.surrogate_key is not None:
        name = quoted(node.surrogate_key)
        value = f"COALESCE(r.{name}, {_extension(node, run, node.surrogate_key)}) AS {name}"
        outputs = outputs.replace(f"r.{name}", value)
    return outputs


def as_of_rows(node: AsOfJoin, run: Reading, keys: Keys | None) -> Relation | None:
    left_keys = keys and keys.only(node.left.columns)
    left = run.rows(node.left, left_keys)
    if left is None:
        return None
    to_right = dict(node.keys)
    shared = left_keys and left_keys.renamed(to_right)
    if shared is None and left_keys is not None and not run.is_cheap(node.right):
        left, shared = run.row_keys(node.left, left, tuple(to_right), tuple(to_right.values()))
        if left is None:
            return None
    # Versions that moved on still serve the rows that were looked up in them.
    right = run.rows(node.right, shared, untouched=False)
    if right is None:
        return None if node.miss == "drop" else _extended(node, run, left, weighted=False)
    kind = "JOIN" if node.miss == "drop" else "LEFT JOIN"
    text = (
        f"SELECT {_found(node, run)} FROM {left.source} l {kind} {right.source} r ON {_equal(node)} AND {_valid(node)}"
    )
    if node.miss == "fail":
        failure = "CAST(raise_error('a lookup found no member') AS BOOLEAN)"
        text += f" WHERE IF(r.{quoted(node.start)} IS NULL, {failure}, true)"
    return select(text, node.columns)
