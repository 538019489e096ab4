"""Floating point aggregates, computed over sorted values.

Adding doubles in another order gives another last digit. A rule takes back what an earlier job gave by computing it
again, so the value must be a function of the group's rows alone, on one partition or on many:

    sum(x) of a group  =  any_value(s)        s = sum(x) OVER (PARTITION BY keys ORDER BY x, the whole partition)

Each window sorts its group; groups that do not fit the memory are spilled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headgate.dataflow.graph import Aggregate, AggregateCall, Node, Window, WindowCall
from headgate.dataflow.relation import column_list, quoted

WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_FLOATING = ("double", "float")
_SUMS = {"sum", "try_sum", "avg", "mean", "try_avg"}
_MOMENTS = {"variance", "var_samp", "var_pop", "std", "stddev", "stddev_samp", "stddev_pop", "skewness", "kurtosis"}
_PAIRS = {"corr", "covar_pop", "covar_samp"}
_PREFIX = "__ordered_"


def order_sensitive(node: Node, types: Mapping[str, str]) -> frozenset[str]:
    """The calls of an aggregate or window whose value depends on the order of the rows; types by column."""
    if isinstance(node, Aggregate):
        return frozenset(
            call.name for call in node.calls if types[call.name] in _FLOATING and not call.distinct and _adds(call)
        )
    if isinstance(node, Window) and not any("map<" in kind for kind in types.values()):  # maps have no order
        return frozenset(
            call.name
            for call in node.calls
            if types[call.name] in _FLOATING and call.order_by is None and call.frame is None
        )
    return frozenset()


def _adds(call: AggregateCall) -> bool:
    function = call.function.lower()
    return function in _SUMS | _MOMENTS | _PAIRS or function.startswith("regr_")


def call_text(call: AggregateCall, sensitive: Collection[str] = ()) -> str:
    """The call as written, or over the column that `ordered_rows` adds for it."""
    if call.name in sensitive:
        return f"any_value({quoted(_PREFIX + call.name)})"
    arguments = ", ".join(call.arguments) or ("*" if call.function.lower() == "count" else "")
    distinct = "DISTINCT " if call.distinct else ""
    where = f" FILTER (WHERE {call.where})" if call.where is not None else ""
    return f"{call.function}({distinct}{arguments}){where}"


def ordered_rows(node: Aggregate, rows: str, sensitive: Collection[str], more: tuple[str, ...] = ()) -> str:
    """The rows (what can stand behind FROM) with a column per sensitive call; groups are of the keys and `more`."""
    calls = [call for call in node.calls if call.name in sensitive]
    if not calls:
        return rows
    keys = (*node.keys, *more)
    partition = f"PARTITION BY {column_list(keys)} " if keys else ""
    columns = []
    for call in calls:
        arguments = [
            argument if call.where is None else f"CASE WHEN {call.where} THEN {argument} END"
            for argument in call.arguments
        ]
        over = f"OVER ({partition}ORDER BY {', '.join(arguments)} {WHOLE})"
        columns.append(f"{call.function}({', '.join(arguments)}) {over} AS {quoted(_PREFIX + call.name)}")
    return f"(SELECT *, {', '.join(columns)} FROM {rows})"


def window_call_text(
    node: Window, call: WindowCall, sensitive: Collection[str] = (), more: tuple[str, ...] = ()
) -> str:
    """`function OVER (…) AS name`, partitioned also by `more`; a sensitive one goes through its partition in order."""
    order: list[str] = [call.order_by] if call.order_by else []
    if call.tie_break or call.name in sensitive:
        order += [quoted(column) for column in node.input.columns]
    parts = [f"PARTITION BY {column_list((*more, *node.partition))}"]
    if order:
        parts.append(f"ORDER BY {', '.join(order)}")
    if call.frame or call.name in sensitive:
        parts.append(call.frame or WHOLE)
    return f"{call.function} OVER ({' '.join(parts)}) AS {quoted(call.name)}"
