"""The order of flows: each after the flows it reads."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import FlowError, Location
from headgate.sql.names import folded
from headgate.sql.references import table_references
from headgate.sql.statements import CreateAutoCdc, CreateStreamingTable, CreateView, Statement


def order_flows(statements: Sequence[Statement]) -> list[Statement]:
    """The statements in dependency order, otherwise in the order given; a cycle or a name used twice is an error.

    A streaming table stands before its flow, a flow before the views that read its target.
    """
    _check_names(statements)
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
                raise _cycle(path[path.index(item) :])
            path.append(item)
            for name in view_inputs(item):
                for maker in makers.get(folded(name), ()):
                    visit(maker)
            path.pop()
        elif isinstance(item, CreateAutoCdc) and folded(item.target) in tables:
            visit(tables[folded(item.target)])
        done.add(id(item))
        ordered.append(item)

    for item in statements:
        visit(item)
    return ordered


def view_inputs(statement: CreateView) -> list[str]:
    """The tables that a view reads."""
    references = table_references(statement.query_text, Location(statement.where.file, statement.query_line))
    return list(dict.fromkeys(reference.name for reference in references))


def _cycle(path: Sequence[CreateView]) -> FlowError:
    names = " -> ".join([*(item.name for item in path), path[0].name])
    places = ", ".join(str(item.where) for item in path)
    return FlowError(
        f"flows read each other in a circle: {names} ({places})",
        where=path[0].where,
        hint="let one of them read source tables instead",
    )


def _check_names(statements: Sequence[Statement]) -> None:
    targets: dict[str, Statement] = {}
    flows: dict[str, Statement] = {}
    written: dict[str, CreateAutoCdc] = {}
    for item in statements:
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


def _once(known: dict[str, Statement], name: str, item: Statement, what: str) -> None:
    other = known.setdefault(folded(name), item)
    if other is not item:
        raise FlowError(
            f"{what} '{name}' is defined twice: at {other.where} and at {item.where}",
            where=item.where,
            hint="rename or remove one",
        )
