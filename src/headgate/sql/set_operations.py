"""UNION, INTERSECT and EXCEPT: rows of both sides with their side, counted per row.

INTERSECT  l > 0 and r > 0      INTERSECT ALL  least(l, r) times
EXCEPT     l > 0 and r = 0      EXCEPT ALL     l - r times
"""

from __future__ import annotations

from sqlglot import exp

from headgate.dataflow.expression import Column, Expression
from headgate.dataflow.graph import (
    Aggregate,
    AggregateCall,
    Filter,
    Node,
    Output,
    Projection,
    Repeat,
    UnionAll,
    kept,
)
from headgate.errors import FlowError
from headgate.sql.context import Context
from headgate.sql.scope import Environment, Field, Lowered, NotIncremental


def lower_set_operation(query: exp.SetOperation, context: Context, environment: Environment) -> Lowered:
    """The operation over its two queries."""
    if query.args.get("by_name") or query.args.get("on"):
        raise NotIncremental("a set operation BY NAME is not incremental")
    left = context.lower(query.this, environment)
    right = context.lower(query.expression, environment)
    if len(left.fields) != len(right.fields):
        raise FlowError(
            f"{query.key.upper()} of {len(left.fields)} and {len(right.fields)} columns",
            where=context.query.location(query.expression),
            hint="both sides need as many columns",
        )
    fields = tuple(Field(item.name, context.names.fresh("set", item.name)) for item in left.fields)
    carried = tuple(context.names.fresh("set", name) for name in left.carried)
    names = tuple(item.column for item in fields) + carried
    renames = dict(zip(carried, left.carried, strict=True))
    distinct = bool(query.args.get("distinct"))
    if isinstance(query, exp.Union):
        node: Node = UnionAll((_sided(left, names, ()), _sided(right, names, ())))
        node = Aggregate(node, names) if distinct else node
    else:
        node = _counted(left, right, names, isinstance(query, exp.Except), distinct, context)
    if carried:
        restored = tuple(Output(renames.get(name, name), Column(name)) for name in names)
        node = Projection(node, restored)
    return Lowered(node, fields, left.carried)


def _sided(lowered: Lowered, names: tuple[str, ...], more: tuple[Output, ...]) -> Node:
    columns = tuple(item.column for item in lowered.fields) + lowered.carried
    outputs = tuple(Output(name, Column(old)) for name, old in zip(names, columns, strict=True))
    return Projection(lowered.node, outputs + more)


def _counted(
    left: Lowered, right: Lowered, names: tuple[str, ...], is_except: bool, distinct: bool, context: Context
) -> Node:
    one, other = context.names.fresh("left_side"), context.names.fresh("right_side")
    left_count, right_count = Column(context.names.fresh("left_count")), Column(context.names.fresh("right_count"))
    both = UnionAll(
        (
            _sided(left, names, (Output(one, Expression("1")), Output(other, Expression("0")))),
            _sided(right, names, (Output(one, Expression("0")), Output(other, Expression("1")))),
        )
    )
    counts = (AggregateCall(left_count, "sum", (Column(one),)), AggregateCall(right_count, "sum", (Column(other),)))
    node: Node = Aggregate(both, names, counts)
    if distinct:
        right_test = " = 0" if is_except else " > 0"
        node = Filter(node, Expression(left_count, " > 0 AND ", right_count, right_test))
    else:
        difference = Expression(left_count, " - ", right_count)
        node = Repeat(node, difference if is_except else Expression("least(", left_count, ", ", right_count, ")"))
    return Projection(node, kept(names))
