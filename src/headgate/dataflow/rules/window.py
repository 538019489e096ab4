"""Window functions with PARTITION BY: the touched partitions are recomputed."""

from __future__ import annotations

from headgate.dataflow.graph import Window, WindowCall
from headgate.dataflow.relation import Keys, Relation, column_list, quoted, select
from headgate.dataflow.rules.touched import AT, NEXT, recomputed
from headgate.dataflow.run import Run


def window_delta(node: Window, run: Run) -> Relation | None:
    def operator(rows: str, moments: str) -> str:
        return f"SELECT {column_list((*node.input.columns, AT, NEXT))}, {_calls(node, (AT,))} FROM {rows}"

    return recomputed(run, node.input, node.partition, node.columns, operator)


def window_rows(node: Window, run: Run, keys: Keys | None) -> Relation | None:
    rows = run.rows(node.input, keys and keys.only(node.partition))
    return rows and select(
        f"SELECT {column_list(node.input.columns)}, {_calls(node, ())} FROM {rows.source}", node.columns
    )


def _calls(node: Window, more: tuple[str, ...]) -> str:
    return ", ".join(window_call_text(node, call, more) for call in node.calls)


def window_call_text(node: Window, call: WindowCall, more: tuple[str, ...] = ()) -> str:
    """`function OVER (…) AS name`, partitioned also by `more`."""
    order = [call.order_by] if call.order_by else []
    if call.tie_break:
        order += [quoted(column) for column in node.input.columns]
    parts = [f"PARTITION BY {column_list((*more, *node.partition))}"]
    if order:
        parts.append(f"ORDER BY {', '.join(order)}")
    if call.frame:
        parts.append(call.frame)
    return f"{call.function} OVER ({' '.join(parts)}) AS {quoted(call.name)}"
