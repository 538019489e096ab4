"""The order of flows: each after the flows it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.errors import FlowError, Problems, all_problems
from headgate.sql.names import folded
from headgate.sql.references import read_tables
from headgate.sql.statements import CreateAutoCdc, CreateStreamingTable, CreateView, Statement

Inputs = Callable[[CreateView], Sequence[str]]
"""Gives the tables that a view reads."""


def view_inputs(statement: CreateView) -> tuple[str, ...]:
    """The tables that a view reads, as headgate's parser reads it."""
    return read_tables(statement.query_text, statement.query_where).tables


def order_flows(
    statements: Sequence[Statement], problems: Problems | None = None, inputs: Inputs = view_inputs
) -> list[Statement]:
    """The statements in dependency order, otherwise in the order given; a cycle or a name used twice is a problem.

    A streaming table stands before its flow, a flow before the views that read its target. Where `problems` are collected,
    the second of a name and the flows of a cycle are left out.
    """
    with all_problems(problems) as wrong:
        return _in_order(_once_each(statements, wrong), wrong, inputs)


def _in_order(statements: Sequence[Statement], problems: Problems, inputs: Inputs) -> list[Statement]:
    tables = {folded(item.name): item for item in statements if isinstance(item, CreateStreamingTable)}
    makers: dict[str, list[Statement]] = {name: [table] for name, table in tables.items()}
    for item in statements:
        if isinstance(item, CreateAutoCdc):
            makers.setdefault(folded(item.target), []).append(item)
        elif isinstance(item, CreateView):
            makers[folded(item.name)] = [item]
    ordered: list[Statement] = []
    done: set[int] = set()
    path: list[CreateView] = []

    def visit(item: Statement) -> None:
        if id(item) in done:
            return
        if isinstance(item, CreateView):
            if item in path:
                circle = path[path.index(item) :]
                done.update(map(id, circle))
                raise _cycle(circle)
            path.append(item)
            for name in inputs(item):
                for maker in makers.get(folded(name), ()):
                    visit(maker)
            path.pop()
        elif isinstance(item, CreateAutoCdc) and folded(item.target) in tables:
            visit(tables[folded(item.target)])
        done.add(id(item))
        ordered.append(item)

    for item in statements:
        path.clear()
        with problems.collected():
            visit(item)
    return ordered


def _cycle(path: Sequence[CreateView]) -> FlowError:
    names = " -> ".join([*(item.name for item in path), path[0].name])
    places = ", ".join(str(item.where) for item in path)
    return FlowError(
        f"flows read each other in a circle: {names} ({places})",
        where=path[0].where,
        hint="let one of them read source tables instead",
    )


def _once_each(statements: Sequence[Statement], problems: Problems) -> list[Statement]:
    """The statements without those that define a name again, or fill a table again."""
    targets: dict[str, Statement] = {}
    flows: dict[str, Statement] = {}
    written: dict[str, CreateAutoCdc] = {}
    found: list[Statement] = []
    for item in statements:
        with problems.collected():
            if isinstance(item, CreateAutoCdc):
                _once(flows, item.flow, item, "flow")
                other = written.setdefault(folded(item.target), item)
                if other is not item:
                    raise FlowError(
                        f"two flows fill '{item.target}': {other.flow} at {other.where} and {item.flow} at {item.where}",
                        where=item.where,
                        hint="one AUTO CDC flow fills one table",
                    )
            else:
                _once(targets, item.name, item, "flow")
            found.append(item)
    return found


def _once(known: dict[str, Statement], name: str, item: Statement, what: str) -> None:
    other = known.setdefault(folded(name), item)
    if other is not item:
        raise FlowError(
            f"{what} '{name}' is defined twice: at {other.where} and at {item.where}",
            where=item.where,
            hint="rename or remove one",
        )
