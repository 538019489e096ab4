"""Aggregation.

Running (exact sums and counts), for each group and job:   Σ_new = Σ_old + ΔΣ,   emit −value(Σ_old) +value(Σ_new).
The sums of all jobs of a batch come from one window over (group, job), so k jobs cost one pass.

Everything else (minimum, maximum, distinct, floating point, …) recomputes the touched groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.dataflow.accumulators import GROUP, ROWS, Running
from headgate.dataflow.graph import Aggregate, Filter, Node, Projection
from headgate.dataflow.ordered import call_text, ordered_rows
from headgate.dataflow.relation import SIGNS, Keys, Relation, column_list, quoted, same_values, select
from headgate.dataflow.rules.touched import AT, NEXT, recomputed
from headgate.dataflow.run import GraphFacts, Reading, Run
from headgate.delta.changes import JOB, WEIGHT


def _call_outputs(node: Aggregate, sensitive: frozenset[str]) -> list[str]:
    return [f"{call_text(call, sensitive)} AS {quoted(call.name)}" for call in node.calls]


def aggregate_delta(node: Aggregate, run: Run) -> Relation | None:
    form = run.graph.running(node)
    if form is None:
        sensitive = run.graph.order_sensitive(node)
        return recomputed(
            run, node.input, node.keys, node.columns, lambda rows, moments: _groups(node, sensitive, rows, moments)
        )
    changes = run.settle(_state_delta(node, form, run))
    if changes is None:
        return None
    run.keep_state(node, changes)
    return value_changes(node, form, changes)


def value_changes(node: Aggregate, form: Running, state: Relation) -> Relation:
    """The aggregate's changes, from those of its state."""
    return _values(node, form, state, f", {JOB}, {WEIGHT}")


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
    # The steps keep their names up to the filter on them: for n renamed columns Spark derives 2^n forms of its condition.
    step = {name: quoted("step_" + name) for name in names}
    move = _moved_once if run.jobs == 1 else _moved
    moved = move(node, form, run, delta, state, step)
    value = {
        item.name: f"CAST(IF(__sign > 0, {quoted('new_' + item.name)}, {quoted('new_' + item.name)} - {step[item.name]})"
        f" AS {item.type})"
        for item in form.accumulators
    }
    outputs = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in value.items())
    kept = f" AND {value[ROWS]} > 0" if node.keys else ""
    text = (
        f"SELECT {column_list(keys)}, {outputs}, {JOB}, __sign AS {WEIGHT} FROM {moved} {SIGNS} WHERE __changed{kept}"
    )
    return select(text, (*keys, *names))


def _moved_once(
    node: Aggregate, form: Running, run: Run, delta: Relation, state: Relation | None, step: Mapping[str, str]
) -> str:
    """The touched groups after the batch's only job, `new_…`, and its steps: state and changes are grouped together."""
    keys = form.keys(node)
    names = column_list(keys)
    old = {item.name: quoted("old_" + item.name) for item in form.accumulators}
    parts = [f"{item.sql} AS {step[item.name]}, 0 AS {old[item.name]}" for item in form.accumulators]
    every = f"SELECT {names if node.keys else f'0 AS {GROUP}'}, {JOB}, {', '.join(parts)} FROM {delta.source}"
    if state is not None:
        parts = [f"0 AS {step[item.name]}, {quoted(item.name)} AS {old[item.name]}" for item in form.accumulators]
        every += f" UNION ALL SELECT {names}, NULL AS {JOB}, {', '.join(parts)} FROM {state.source}"
    sums = [
        f"CAST(SUM({column}) AS {item.type}) AS {column}"
        for item in form.accumulators
        for column in (step[item.name], old[item.name])
    ]
    grouped = f"SELECT {names}, MAX({JOB}) AS {JOB}, {', '.join(sums)} FROM ({every}) GROUP BY {names}"
    new = [f"{old[item.name]} + {step[item.name]} AS {quoted('new_' + item.name)}" for item in form.accumulators]
    changed = " OR ".join(f"{column} <> 0" for column in step.values())
    steps = ", ".join(step.values())
    return f"(SELECT {names}, {JOB}, ({changed}) AS __changed, {', '.join(new)}, {steps} FROM ({grouped}))"


def _moved(
    node: Aggregate, form: Running, run: Run, delta: Relation, state: Relation | None, step: Mapping[str, str]
) -> str:
    """The touched groups after each job that touches them, `new_…`, and the job's steps."""
    keys = form.keys(node)
    names = [item.name for item in form.accumulators]
    grouped_keys = column_list(keys)
    selected_keys = grouped_keys if node.keys else f"0 AS {GROUP}"
    sums = ", ".join(f"SUM({item.sql}) AS {step[item.name]}" for item in form.accumulators)
    by = f"{grouped_keys}, {JOB}" if node.keys else JOB
    grouped = f"(SELECT {selected_keys}, {JOB}, {sums} FROM {delta.source} GROUP BY {by})"
    changed = " OR ".join(f"g.{step[name]} <> 0" for name in names)
    window = f"OVER (PARTITION BY {column_list(keys, 'g')} ORDER BY g.{JOB})"
    if state is None:
        before, joined = dict.fromkeys(names, "0"), ""
    else:
        before = {name: f"COALESCE(s.{quoted(name)}, 0)" for name in names}
        hashable = not any("collate" in run.graph.type_of(node, key).lower() for key in node.keys)
        same = same_values("g", "s", [(key, key) for key in keys], same_types=hashable)
        joined = f" LEFT JOIN {state.source} s ON {same}"
    new = [f"{before[name]} + SUM(g.{step[name]}) {window} AS {quoted('new_' + name)}" for name in names]
    return (
        f"(SELECT {column_list(keys, 'g')}, g.{JOB}, ({changed}) AS __changed, {', '.join(new)}, {', '.join(step.values())}"
        f" FROM {grouped} g{joined})"
    )


@dataclass(frozen=True, slots=True)
class Fused:
    """An aggregate with only filters and projections above it: each touched group after each job that changed it.

    `rows` has the result's columns, `__job` (0 for a group as it was before the batch), the state's columns under other
    names (`state_columns` maps these to the state's own) and, for each filter, a flag whether the row is in the result.
    Whoever holds the rows puts a group's one after the other: each replaces the one before.
    """

    node: Aggregate
    rows: Relation | None
    state_columns: dict[str, str]
    kept_flags: tuple[str, ...]

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that tell groups apart."""
        keys = self.node.keys or (GROUP,)
        return tuple(hidden for hidden, name in self.state_columns.items() if name in keys)

    @property
    def size(self) -> str | None:
        """The column with the number of the group's input rows: at 0 there is no group. None for the group of all rows."""
        return next(hidden for hidden, name in self.state_columns.items() if name == ROWS) if self.node.keys else None


def fuse(root: Node, run: Run) -> Fused | None:
    """The graph's changes in fused form, if it has the shape for it."""
    node, above = aggregate_on_top(root)
    form = run.graph.running(node) if node is not None else None
    if node is None or form is None:
        return None
    sums = _sums_after_jobs(node, form, run)
    return Fused(node, None, {}, ()) if sums is None else _fused(root, node, form, above, sums)


def fuse_moved(root: Node, graph: GraphFacts, delta: Relation, state: Relation) -> Fused | None:
    """The whole result in fused form, if the graph has the shape for it: every group after all changes, as job 0.

    `delta` has the changes of what the aggregate reads, `state` every group before them.
    """
    node, above = aggregate_on_top(root)
    form = graph.running(node) if node is not None else None
    if node is None or form is None:
        return None
    keys = column_list(form.keys(node))
    names = [quoted(item.name) for item in form.accumulators]
    steps = [f"{item.sql} AS {name}" for item, name in zip(form.accumulators, names, strict=True)]
    every = (
        f"SELECT {', '.join([keys if node.keys else f'0 AS {GROUP}', *steps])} FROM {delta.source}"
        f" UNION ALL SELECT {', '.join([keys, *names])} FROM {state.source}"
    )
    sums = [f"CAST(SUM({name}) AS {item.type}) AS {name}" for item, name in zip(form.accumulators, names, strict=True)]
    kept = f" HAVING SUM({quoted(ROWS)}) > 0" if node.keys else ""
    text = f"SELECT {', '.join([keys, *sums])}, 0L AS {JOB} FROM ({every}) GROUP BY {keys}{kept}"
    columns = (*form.keys(node), *(item.name for item in form.accumulators))
    return _fused(root, node, form, above, select(text, columns))


def aggregate_on_top(root: Node) -> tuple[Aggregate | None, list[Filter | Projection]]:
    """The aggregate that has only filters and projections above it, and these, the highest first."""
    above: list[Filter | Projection] = []
    node = root
    while isinstance(node, Filter | Projection):
        above.append(node)
        node = node.input
    return (node if isinstance(node, Aggregate) else None), above


def _fused(root: Node, node: Aggregate, form: Running, above: list[Filter | Projection], sums: Relation) -> Fused:
    columns = {f"__state_{number}": name for number, name in enumerate(sums.columns)}
    carried = [f"{quoted(name)} AS {hidden}" for hidden, name in columns.items()]
    there = Fused(node, None, columns, ()).size

    def shown(sql: str, size: str | None = there) -> str:
        # A group that is gone has sums of nothing, which an expression may not stand.
        return sql if size is None else f"IF({size} > 0, {sql}, NULL)"

    outputs = [quoted(key) for key in node.keys]
    outputs += [f"{shown(sql, there and ROWS)} AS {quoted(name)}" for name, sql in form.values]
    text = f"SELECT {', '.join([*outputs, *carried, JOB])} FROM {sums.source}"
    flags: list[str] = []
    for operator in reversed(above):
        if isinstance(operator, Filter):
            flags.append(f"__kept_{len(flags)}")
            text = f"SELECT *, COALESCE({shown(operator.predicate)}, false) AS {flags[-1]} FROM ({text})"
        else:
            values = [f"{shown(output.sql)} AS {quoted(output.name)}" for output in operator.outputs]
            text = f"SELECT {', '.join([*values, *columns, *flags, JOB])} FROM ({text})"
    return Fused(node, select(text, root.columns), columns, tuple(flags))


def _sums_after_jobs(node: Aggregate, form: Running, run: Run) -> Relation | None:
    """The state of each touched group before the batch (job 0) and after each job that touches it."""
    delta = run.delta(node.input)
    if delta is None:
        return None
    state = run.state_rows(node, None if not node.keys else run.delta_keys(node.input, node.keys, node.keys))
    delta = run.delta(node.input) or delta
    keys = form.keys(node)
    names = tuple(item.name for item in form.accumulators)
    steps = ", ".join(f"SUM({item.sql}) AS {quoted(item.name)}" for item in form.accumulators)
    # Rows that changed in many jobs of a batch meet in combinations that never were; their steps are all 0.
    real = " OR ".join(f"SUM({item.sql}) <> 0" for item in form.accumulators)
    if node.keys:
        by = f"{column_list(keys)}, {JOB}"
        every = f"SELECT {column_list(keys)}, {steps}, {JOB} FROM {delta.source} GROUP BY {by} HAVING {real}"
    else:
        every = f"SELECT 0 AS {GROUP}, {steps}, {JOB} FROM {delta.source} GROUP BY {JOB} HAVING {real}"
    if state is not None:
        every += f" UNION ALL SELECT {column_list((*keys, *names))}, 0L AS {JOB} FROM {state.source}"
    elif not node.keys:
        every += f" UNION ALL SELECT 0 AS {GROUP}, {', '.join('0' for _ in names)}, 0L AS {JOB}"
    window = f"OVER (PARTITION BY {column_list(keys)} ORDER BY {JOB})"
    sums = ", ".join(
        f"CAST(SUM({quoted(item.name)}) {window} AS {item.type}) AS {quoted(item.name)}" for item in form.accumulators
    )
    return select(f"SELECT {column_list(keys)}, {sums}, {JOB} FROM ({every})", (*keys, *names))


def _groups(node: Aggregate, sensitive: frozenset[str], rows: str, moments: str) -> str:
    """The aggregate as written, within each moment; without keys also for the moments that hold no row."""
    rows = ordered_rows(node, rows, sensitive, (AT,))
    calls = _call_outputs(node, sensitive)
    outputs = ", ".join([*(quoted(key) for key in node.keys), *calls, AT, NEXT])
    by = ", ".join([*(quoted(key) for key in node.keys), AT, NEXT])
    text = f"SELECT {outputs} FROM {rows} GROUP BY {by}"
    if node.keys:
        return text
    nothing = f"(SELECT {', '.join(calls)} FROM {rows} WHERE false)"
    names = column_list(node.columns)
    return (
        f"{text} UNION ALL SELECT {names}, m.{AT}, m.{NEXT} FROM {moments} m"
        f" LEFT ANTI JOIN (SELECT DISTINCT {AT} FROM {rows}) a ON m.{AT} = a.{AT} CROSS JOIN {nothing}"
    )


def aggregate_rows(node: Aggregate, run: Reading, keys: Keys | None) -> Relation | None:
    form = run.graph.running(node)
    wanted = keys and keys.only(node.keys)
    if form is not None:
        state = run.state_rows(node, wanted)
        return state and _values(node, form, state, "")
    below = run.rows(node.input, wanted)
    if below is None and node.keys:
        return None
    sensitive = run.graph.order_sensitive(node) if below is not None else frozenset()
    outputs = ", ".join([*(quoted(key) for key in node.keys), *_call_outputs(node, sensitive)])
    if below is None:
        empty = ", ".join(
            f"CAST(NULL AS {run.graph.type_of(node.input, name)}) AS {quoted(name)}" for name in node.input.columns
        )
        return select(f"SELECT {outputs} FROM (SELECT {empty or '1'}) WHERE false", node.columns)
    by = f" GROUP BY {column_list(node.keys)}" if node.keys else ""
    return select(f"SELECT {outputs} FROM {ordered_rows(node, below.source, sensitive)}{by}", node.columns)
