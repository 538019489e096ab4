"""The rule of every operator, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.dataflow import graph
from headgate.dataflow.relation import Keys, Relation
from headgate.dataflow.rules import aggregate, as_of, join, linear, window
from headgate.dataflow.run import Reading, Run


@dataclass(frozen=True, slots=True)
class Rule:
    delta: Callable[[Any, Run], Relation | None]
    rows: Callable[[Any, Reading, Keys | None], Relation | None]


RULES: dict[type[graph.Node], Rule] = {
    graph.Scan: Rule(lambda node, run: run.scan_delta(node), lambda node, run, keys: run.scan_rows(node, keys)),
    graph.Filter: Rule(*linear.linear(linear.filter_query)),
    graph.Projection: Rule(*linear.linear(linear.project_query)),
    graph.Generate: Rule(*linear.linear(linear.generate_query)),
    graph.Repeat: Rule(*linear.linear(linear.repeat_query)),
    graph.UnionAll: Rule(linear.union_delta, linear.union_rows),
    graph.Join: Rule(join.join_delta, join.join_rows),
    graph.AsOfJoin: Rule(as_of.as_of_delta, as_of.as_of_rows),
    graph.Aggregate: Rule(aggregate.aggregate_delta, aggregate.aggregate_rows),
    graph.Window: Rule(window.window_delta, window.window_rows),
}
