"""Queries whose answer can be moved on from job to job: sums per group over the rows of one table, which its changes add up to.

    state(j) = state(i) + Σ changes (i, j]        answer(j) = the rest of the query over state(j)

The sums are those of a flow's running aggregates, in exact arithmetic, so the answer is that of the query run from scratch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.accumulators import Running
from headgate.dataflow.graph import Aggregate, Filter, Fragment, Generate, Node, Projection, Repeat, Scan, scans, walk
from headgate.dataflow.reference import plain_sql
from headgate.dataflow.relation import Relation, column_list, quoted
from headgate.dataflow.rulebook import RULES
from headgate.dataflow.rules.aggregate import Fused, aggregate_on_top, fuse_moved
from headgate.dataflow.run import Run
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import JOB, WEIGHT
from headgate.errors import Location
from headgate.runtime.flows.flows import FlowPlan, Planner
from headgate.runtime.stages.view_stage import state_text
from headgate.sql.names import substituted
from headgate.sql.statements import CreateView

_NAME = "kept_answer"
_LINEAR = (Scan, Filter, Projection, Generate, Repeat)
"""Operators below the aggregate: changes of the table go through them without a look at other rows."""


class NotKept(Exception):
    """Why a query's answer cannot be moved on."""


@dataclass(frozen=True)
class KeptPlan:
    graph: TypedGraph
    node: Aggregate
    form: Running
    scan: Scan
    state: StructType
    """The columns of the sums."""
    rest: Fragment | None
    """What runs as written over the result of the graph."""

    def state_text(self, table: str) -> str:
        """The sums from scratch, over a relation with the table's rows."""
        below = plain_sql(self.node.input, lambda _: table, self.graph.sensitive)
        return state_text(self.node, self.form, below)

    def result_text(self, state: str) -> str:
        """The graph's result over a view of the sums."""
        states = {self.node: (self.form, state)}
        text = plain_sql(self.graph.root, lambda name: name, self.graph.sensitive, states)
        return f"SELECT {column_list(self.graph.root.columns)} FROM ({text})"

    def rest_text(self, result: str) -> str:
        """The query's answer over a view of the graph's result."""
        assert self.rest is not None
        return substituted(self.rest.sql, {self.rest.inputs[0][0]: result})

    def changed(self, rows: pa.Table) -> pa.Table:
        """Of a table's changes the columns that the query reads."""
        return rows.select([*dict.fromkeys(output.sql for output in self.scan.outputs), JOB, WEIGHT])

    def moved(self, changes: str, state: str) -> Fused:
        """Result and sums after the changes, from views of them and of the sums before."""
        source = f"(SELECT {', '.join([self.scan.select_list, JOB, WEIGHT])} FROM {changes})"
        delta = _Changes(self.graph, Relation(source, self.scan.columns)).spans(self.node.input)
        fused = fuse_moved(self.graph.root, self.graph, delta, Relation(state, tuple(self.state.names)))
        assert fused is not None
        return fused


@dataclass(frozen=True)
class _Changes:
    """The changes of a scan, taken through linear operators: as much of a run as their rules ask for."""

    graph: TypedGraph
    scanned: Relation

    def spans(self, node: Node) -> Relation:
        if isinstance(node, Scan):
            return self.scanned
        found = RULES[type(node)].delta(node, cast(Run, self))
        assert found is not None
        return found


def plan_kept(text: str, planner: Planner) -> KeptPlan:
    """The plan of a query whose answer can be kept; raises `NotKept`."""
    view = CreateView(_NAME, text, Location("query"), Location("query"))
    planner.tables_of(view)
    return _kept(planner.plan(planner.lower(view), {}))


def _kept(plan: FlowPlan) -> KeptPlan:
    rest = plan.fragment
    if rest is not None and rest.context:
        raise NotKept("it depends on more than the rows of tables")
    if len(plan.views) != 1 or (rest is not None and len(rest.inputs) != 1):
        raise NotKept("nothing of it is incremental" if not plan.views else "it reads several results")
    (found,) = plan.views
    graph = found.graph
    node, _ = aggregate_on_top(graph.root)
    form = graph.running(node) if node is not None else None
    if node is None or form is None:
        raise NotKept("it is not made of sums per group")
    if not all(isinstance(below, _LINEAR) for below in walk(node.input)):
        raise NotKept("the sums are not of one table's rows")
    if any("collate" in graph.type_of(node, key).lower() for key in node.keys):
        raise NotKept("it groups by a text with a collation")
    (scan,) = scans(node.input)
    return KeptPlan(graph, node, form, scan, found.state_specs[0].schema, rest)


def select_text(fused: Fused, result: tuple[str, ...]) -> str:
    """Result and sums of the groups, and for each filter whether the group is in the result."""
    assert fused.rows is not None
    columns = [*map(quoted, result), *fused.state_columns, *fused.kept_flags]
    return f"SELECT {', '.join(columns)} FROM {fused.rows.source}"
