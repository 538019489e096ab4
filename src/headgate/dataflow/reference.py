"""A graph as one plain Spark SQL query: the result from scratch, without state and without jobs.

This is what incremental results are compared with and what a full recomputation runs. A node that several others read
is one common table expression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from headgate.dataflow.graph import (
    Aggregate,
    AsOfJoin,
    Filter,
    Generate,
    Join,
    Node,
    Projection,
    Repeat,
    Scan,
    UnionAll,
    Window,
    walk,
)
from headgate.dataflow.ordered import call_text, ordered_rows, window_call_text
from headgate.dataflow.relation import column_list, quoted
from headgate.delta.changes import UNKNOWN_MEMBER

_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


def plain_sql(
    node: Node, tables: Callable[[str], str], sensitive: Mapping[Node, frozenset[str]] = MappingProxyType({})
) -> str:
    """The query; `tables` gives the SQL relation to read for each scanned table.

    `sensitive` names the calls whose values are to be the same in whatever order rows come.
    """
    return _Writer(tables, node, sensitive).query()


class _Writer:
    def __init__(self, tables: Callable[[str], str], root: Node, sensitive: Mapping[Node, frozenset[str]]) -> None:
        self._tables = tables
        self._sensitive = sensitive
        self._root = root
        uses = Counter(child for node in walk(root) for child in node.inputs)
        self._shared = {
            node: f"__shared_{number}"
            for number, node in enumerate(walk(root))
            if uses[node] > 1 and not isinstance(node, Scan)
        }

    def query(self) -> str:
        definitions = ", ".join(f"{name} AS ({self._text(node)})" for node, name in self._shared.items())
        text = self._text(self._root)
        return f"WITH {definitions} {text}" if definitions else text

    def _from(self, node: Node) -> str:
        return self._shared.get(node) or f"({self._text(node)})"

    def _text(self, node: Node) -> str:
        match node:
            case Scan():
                outputs = ", ".join(f"{quoted(output.sql)} AS {quoted(output.name)}" for output in node.outputs)
                return f"SELECT {outputs} FROM {self._tables(node.table)}"
            case Filter():
                return f"SELECT * FROM {self._from(node.input)} WHERE {node.predicate}"
            case Projection():
                outputs = ", ".join(f"{output.sql} AS {quoted(output.name)}" for output in node.outputs)
                return f"SELECT {outputs} FROM {self._from(node.input)}"
            case Generate():
                view = "LATERAL VIEW OUTER" if node.outer else "LATERAL VIEW"
                names = column_list(node.names)
                return f"SELECT * FROM {self._from(node.input)} {view} {node.generator} __view AS {names}"
            case Repeat():
                copies = f"explode(array_repeat(0, CAST(greatest({node.times}, 0) AS INT)))"
                return (
                    f"SELECT {column_list(node.columns)} FROM {self._from(node.input)} "
                    f"LATERAL VIEW {copies} __view AS __copy_number"
                )
            case UnionAll():
                names = column_list(node.columns)
                return " UNION ALL ".join(f"SELECT {names} FROM {self._from(branch)}" for branch in node.branches)
            case Join():
                return self._join(node)
            case AsOfJoin():
                return self._lookup(node)
            case Aggregate():
                return self._aggregate(node)
            case Window():
                sensitive = self._sensitive.get(node, frozenset())
                calls = ", ".join(window_call_text(node, call, sensitive) for call in node.calls)
                return f"SELECT *, {calls} FROM {self._from(node.input)}"
            case _:
                raise TypeError(f"unknown operator {type(node).__name__}")

    def _join(self, node: Join) -> str:
        conditions = [f"{quoted(left)} = {quoted(right)}" for left, right in node.keys]
        if node.residual is not None:
            conditions.append(f"({node.residual})")
        condition = " AND ".join(conditions) or "true"
        return f"SELECT * FROM {self._from(node.left)} {_JOINS[node.kind]} {self._from(node.right)} ON {condition}"

    def _lookup(self, node: AsOfJoin) -> str:
        at, start, end = quoted(node.at), quoted(node.start), quoted(node.end)
        conditions = [f"{quoted(left)} = {quoted(right)}" for left, right in node.keys]
        conditions.append(f"{start} <= {at} AND ({end} IS NULL OR {at} < {end})")
        outputs = [quoted(name) for name in node.columns]
        if node.miss == "unknown" and node.surrogate_key is not None:
            key = quoted(node.surrogate_key)
            outputs[node.columns.index(node.surrogate_key)] = f"coalesce({key}, {UNKNOWN_MEMBER}L) AS {key}"
        kind = "JOIN" if node.miss == "drop" else "LEFT JOIN"
        text = (
            f"SELECT {', '.join(outputs)} FROM {self._from(node.left)} {kind} {self._from(node.right)} "
            f"ON {' AND '.join(conditions)}"
        )
        if node.miss == "fail":
            failure = "CAST(raise_error('a lookup found no member') AS BOOLEAN)"
            text += f" WHERE IF({start} IS NULL, {failure}, true)"
        return text

    def _aggregate(self, node: Aggregate) -> str:
        sensitive = self._sensitive.get(node, frozenset())
        outputs = [quoted(key) for key in node.keys]
        outputs += [f"{call_text(call, sensitive)} AS {quoted(call.name)}" for call in node.calls]
        text = f"SELECT {', '.join(outputs)} FROM {ordered_rows(node, self._from(node.input), sensitive)}"
        return f"{text} GROUP BY {column_list(node.keys)}" if node.keys else text
