"""Window functions with PARTITION BY: the touched partitions are recomputed."""

from __future__ import annotations

from headgate.dataflow.graph import Window
from headgate.dataflow.ordered import window_call_text
from headgate.dataflow.relation import Keys, Relation, column_list, select
from headgate.dataflow.rules.touched import AT, NEXT, recomputed
from headgate.dataflow.run import Reading, Run


def window_delta(node: Window, run: Run) -> Relation | None:
    def operator(rows: str, moments: str) -> str:
        calls = _calls(node, run.graph.order_sensitive(node), (AT,))
        return f"SELECT {column_list((*node.input.columns, AT, NEXT))}, {calls} FROM {rows}"

    return recomputed(run, node.input, node.partition, node.columns, operator)


def window_rows(node: Window, run: Reading, keys: Keys | None) -> Relation | None:
    rows = run.rows(node.input, keys and keys.only(node.partition))
    return rows and select(
        f"SELECT {column_list(node.input.columns)}, {_calls(node, run.graph.order_sensitive(node))} FROM {rows.source}",
        node.columns,
    )


def _calls(node: Window, sensitive: frozenset[str], more: tuple[str, ...] = ()) -> str:
    return ", ".join(window_call_text(node, call, sensitive, more) for call in node.calls)
