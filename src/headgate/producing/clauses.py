"""The clauses of simple statements about one table: what is selected, under which conditions, in which order.

None says that a clause is not simple: then the warehouse has to read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from headgate.capture.shape import Shape
from headgate.producing import plans
from headgate.producing.arrangement import Value
from headgate.producing.literals import NotAConstant, value_in
from headgate.producing.parameters import Template
from headgate.sql.names import folded


def outputs_of(tree: exp.Select, shape: Shape, names: set[str]) -> list[tuple[str, int]] | None:
    """The selected columns: their names in the result and their places in the table."""
    if len(tree.selects) == 1 and isinstance(tree.selects[0], exp.Star) and not any(tree.selects[0].args.values()):
        return [(column, place) for place, column in enumerate(shape.columns)]
    outputs: list[tuple[str, int]] = []
    for selected in tree.selects:
        place = column_place(selected.unalias(), shape, names)
        if place is None:
            return None
        outputs.append((selected.alias or selected.name, place))
    return outputs


def conditions_of(where: exp.Expr | None, template: Template, shape: Shape, names: set[str]) -> plans.Conditions | None:
    """The conditions of WHERE, if all of them are simple and each is about another column."""
    if where is None:
        return plans.Conditions(template=template)
    found: dict[int, tuple[tuple[Value, ...], bool]] = {}
    for node in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        if isinstance(node, exp.Paren):
            node = node.unnest()
        match node:
            case exp.EQ():
                swapped = column_place(node.this, shape, names) is None
                column, values = (node.expression, [node.this]) if swapped else (node.this, [node.expression])
            case exp.In() if not node.args.get("query") and not node.args.get("unnest"):
                column, values = node.this, node.expressions
            case exp.Is() if isinstance(node.expression, exp.Null):
                column, values = node.this, []
            case _:
                return None
        place = compared_place(column, shape, names)
        if place is None or place in found:
            return None
        try:
            given = tuple(value_in(value, template.places, shape.fields[place]) for value in values)
        except NotAConstant:
            return None
        found[place] = (given, isinstance(node, exp.Is))
    places = tuple(sorted(found))
    return plans.Conditions(
        places, tuple(found[place][0] for place in places), tuple(found[place][1] for place in places), template
    )


def ordering_of(
    tree: exp.Select, shape: Shape, names: set[str], outputs: Sequence[tuple[str, int]]
) -> tuple[plans.Ordering, ...] | None:
    """The columns of ORDER BY, if it has only columns of the table."""
    order = tree.args.get("order")
    result: list[plans.Ordering] = []
    for node in order.expressions if order is not None else ():
        place = compared_place(node.this, shape, names)
        renamed = {folded(name): other for name, other in outputs}
        if place is None or renamed.get(folded(shape.columns[place]), place) != place:
            return None
        result.append(plans.Ordering(place, bool(node.args.get("desc")), bool(node.args.get("nulls_first"))))
    return tuple(result)


def column_place(node: exp.Expr | None, shape: Shape, names: set[str]) -> int | None:
    """The place of a column of the table; None for anything else."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if node.table and (node.args.get("db") or folded(node.table) not in names):
        return None
    by_name = {folded(column): place for place, column in enumerate(shape.columns)}
    return by_name.get(folded(node.name))


def compared_place(node: exp.Expr | None, shape: Shape, names: set[str]) -> int | None:
    """The place of a column whose values can be compared."""
    place = column_place(node, shape, names)
    return None if place is None or pa.types.is_nested(shape.fields[place].type) else place
