"""Aggregation.

Running (exact sums and counts), for each group and job:   Σ_new = Σ_old + ΔΣ,   emit −value(Σ_old) +value(Σ_new).
The sums of all jobs of a batch come from one window over (group, job), so k jobs cost one pass.

Everything else (minimum, maximum, distinct, floating point, …) recomputes the touched groups.
"""

from __future__ import annotations

from headgate.dataflow.accumulators import GROUP, ROWS, Running
from headgate.dataflow.graph import Aggregate, AggregateCall
from headgate.dataflow.relation import Keys, Relation, column_list, quoted, select
from headgate.dataflow.rules.touched import AT, NEXT, recomputed
from headgate.dataflow.run import Run
from headgate.delta.changes import JOB, WEIGHT


def call_text(call: AggregateCall) -> str:
    arguments = ", ".join(call.arguments) or ("*" if call.function.lower() == "count" else "")
    distinct = "DISTINCT " if call.distinct else ""
    where = f" FILTER (WHERE {call.where})" if call.where is not None else ""
    return f"{call.function}({distinct}{arguments}){where}"


def _call_outputs(node: Aggregate) -> list[str]:
    return [f"{call_text(call)} AS {quoted(call.name)}" for call in node.calls]


def aggregate_delta(node: Aggregate, run: Run) -> Relation | None:
    form = run.running(node)
    if form is None:
        return recomputed(run, node.input, node.keys, node.columns, lambda rows, moments: _groups(node, rows, moments))
    changes = _state_delta(node, form, run)
    if changes is None:
        return None
    run.keep_state(node, changes)
    return _values(node, form, changes, f", {JOB}, {WEIGHT}")


def _values(node: Aggregate, form: Running, state: Relation, more: str) -> Relation:
    outputs = [quoted(key) for key in node.keys]
    outputs += [f"{sql} AS {quoted(name)}" for name, sql in form.values]
    return select(f"SELECT {', '.join(outputs)}{more} FROM {state.source}", node.columns)


def _state_delta(node: Aggregate, form: Running, run: Run) -> Relation | None:
    delta = run.delta(node.input)
    if delta is None:
        return None
    keys = form.keys(node)
    state = run.state_rows(node, None if not node.keys else run.delta_keys(node.input, node.keys, node.keys))
    delta = run.delta(node.input) or delta
    names = [accumulator.name for accumulator in form.accumulators]
    grouped_keys = column_list(keys)
    selected_keys = grouped_keys if node.keys else f"0 AS {GROUP}"
    sums = ", ".join(f"SUM({item.sql}) AS {quoted(item.name)}" for item in form.accumulators)
    by = f"{grouped_keys}, {JOB}" if node.keys else JOB
    grouped = f"(SELECT {selected_keys}, {JOB}, {sums} FROM {delta.source} GROUP BY {by})"
    changed = " OR ".join(f"g.{quoted(name)} <> 0" for name in names)
    window = f"OVER (PARTITION BY {column_list(keys, 'g')} ORDER BY g.{JOB})"
    if state is None:
        before, joined = {name: "0" for name in names}, ""
    else:
        before = {name: f"COALESCE(s.{quoted(name)}, 0)" for name in names}
        same = " AND ".join(f"g.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
        joined = f" LEFT JOIN {state.source} s ON {same}"
    new = [f"{before[name]} + SUM(g.{quoted(name)}) {window} AS {quoted('new_' + name)}" for name in names]
    step = [f"g.{quoted(name)} AS {quoted('step_' + name)}" for name in names]
    moved = (
        f"(SELECT {column_list(keys, 'g')}, g.{JOB}, ({changed}) AS __changed, {', '.join(new + step)}"
        f" FROM {grouped} g{joined})"
    )
    value = {
        item.name: f"CAST(IF(__sign > 0, {quoted('new_' + item.name)}, {quoted('new_' + item.name)} - {quoted('step_' + item.name)})"
        f" AS {item.type})"
        for item in form.accumulators
    }
    outputs = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in value.items())
    kept = f" AND {value[ROWS]} > 0" if node.keys else ""
    text = (
        f"SELECT {grouped_keys}, {outputs}, {JOB}, __sign AS {WEIGHT} FROM {moved}"
        f" CROSS JOIN (SELECT * FROM VALUES (1L), (-1L) AS s(__sign)) WHERE __changed{kept}"
    )
    return run.settle(select(text, (*keys, *names)))


def _groups(node: Aggregate, rows: str, moments: str) -> str:
    """The aggregate as written, within each moment; without keys also for the moments that hold no row."""
    outputs = ", ".join([*(quoted(key) for key in node.keys), *_call_outputs(node), AT, NEXT])
    by = ", ".join([*(quoted(key) for key in node.keys), AT, NEXT])
    text = f"SELECT {outputs} FROM {rows} GROUP BY {by}"
    if node.keys:
        return text
    nothing = f"(SELECT {', '.join(_call_outputs(node))} FROM {rows} WHERE false)"
    names = column_list(node.columns)
    return (
        f"{text} UNION ALL SELECT {names}, m.{AT}, m.{NEXT} FROM {moments} m"
        f" LEFT ANTI JOIN (SELECT DISTINCT {AT} FROM {rows}) a ON m.{AT} = a.{AT} CROSS JOIN {nothing}"
    )


def aggregate_rows(node: Aggregate, run: Run, keys: Keys | None) -> Relation | None:
    form = run.running(node)
    wanted = keys and keys.only(node.keys)
    if form is not None:
        state = run.state_rows(node, wanted)
        return state and _values(node, form, state, "")
    below = run.rows(node.input, wanted)
    if below is None and node.keys:
        return None
    outputs = ", ".join([*(quoted(key) for key in node.keys), *_call_outputs(node)])
    if below is None:
        empty = ", ".join(
            f"CAST(NULL AS {run.type_of(node.input, name)}) AS {quoted(name)}" for name in node.input.columns
        )
        return select(f"SELECT {outputs} FROM (SELECT {empty or '1'}) WHERE false", node.columns)
    by = f" GROUP BY {column_list(node.keys)}" if node.keys else ""
    return select(f"SELECT {outputs} FROM {below.source}{by}", node.columns)
