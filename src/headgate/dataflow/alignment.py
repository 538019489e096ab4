"""Which scans of a flow are aligned with a column of its result.

A scan is aligned when result rows with the column's value x depend only on rows of the scanned table whose own column has
the value x, uncast. So one range of the result is the flow over that range of the aligned tables and over all others whole.

    result.purc_id -> Aggregate by purc_id -> Join on purc_id -> purchases.purc_id   aligned
                                                              -> lineitems.purc_id   aligned, by the join's equality
                                         -> Join on store_id  -> stores              not aligned
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

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
    scans,
)
from headgate.dataflow.lineage import all_nodes
from headgate.dataflow.rules.join import companion

TypeOf = Callable[[Node, str], str]
"""The Spark SQL type of a node's column."""


@dataclass(frozen=True, slots=True)
class ScanAlignment:
    """One scan: the table's column that the result's is, or why there is none."""

    scan: Scan
    column: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """All scans of a flow against one column of its result."""

    scans: tuple[ScanAlignment, ...]
    states: Mapping[Aggregate, str]
    """The stored aggregates whose groups have the column, with its name there."""

    def columns(self) -> dict[str, str]:
        """The tables all of whose scans are aligned on one and the same of their columns, with that column."""
        found: dict[str, set[str | None]] = {}
        for each in self.scans:
            found.setdefault(each.scan.table, set()).add(each.column)
        return {
            table: next(iter(columns))  # type: ignore[misc]
            for table, columns in found.items()
            if len(columns) == 1 and None not in columns
        }


def align(root: Node, column: str, type_of: TypeOf, states: Collection[Aggregate] = ()) -> Alignment:
    """How each scan, and each of the stored aggregates, is aligned with the root's column."""
    search = _AlignmentSearch(type_of, frozenset(states))
    search.visit(root, column)
    found = [
        ScanAlignment(scan, None if len(columns) > 1 else next(iter(columns)), search.reasons[scan])
        for scan, columns in search.scans.items()
    ]
    return Alignment(tuple(found), {node: name for node, name in search.states.items() if name is not None})


def covered(node: Node, column: str, type_of: TypeOf, tables: Collection[str]) -> bool:
    """Whether all rows that the node gives lie in a range when these tables are restricted to it (other tables are whole)."""
    match node:
        case Scan():
            return node.table in tables
        case UnionAll():
            return all(
                same_values({type_of(node, column), type_of(branch, column)})
                and covered(branch, column, type_of, tables)
                for branch in node.branches
            )
        case Join():
            left, right = _sides(node, column, type_of)
            return (left is not None and covered(node.left, left, type_of, tables)) or (
                node.kind in ("inner", "semi") and right is not None and covered(node.right, right, type_of, tables)
            )
    below = _below(node, column)
    return not isinstance(below, str) and covered(*below, type_of, tables)


class _AlignmentSearch:
    def __init__(self, type_of: TypeOf, stored: frozenset[Aggregate]) -> None:
        self._type_of = type_of
        self._stored = stored
        self.scans: dict[Scan, set[str | None]] = {}
        self.reasons: dict[Scan, str] = {}
        self.states: dict[Aggregate, str | None] = {}

    def visit(self, node: Node, column: str) -> None:
        match node:
            case Scan():
                own = next(output.sql for output in node.outputs if output.name == column)
                self._note(node, str(own), f"aligned on {own}")
            case UnionAll():
                for branch in node.branches:
                    if same_values({self._type_of(node, column), self._type_of(branch, column)}):
                        self.visit(branch, column)
                    else:
                        self._whole([branch], f"the union converts {_shown(column)}")
            case Join():
                self._join(node, column)
            case _:
                below = _below(node, column)
                if isinstance(node, Aggregate):
                    self._state(node, None if isinstance(below, str) else column)
                if isinstance(below, str):
                    self._whole(node.inputs, below)
                else:
                    self.visit(*below)
                    # What a lookup finds besides.
                    self._whole([part for part in node.inputs if part is not below[0]], "versions are looked up in it")

    def _join(self, node: Join, column: str) -> None:
        left, right = _sides(node, column, self._type_of)
        self._companion(node, left, right)
        if left is None and node.kind != "inner":
            self._whole(node.inputs, f"the outer join can leave {_shown(column)} NULL")
            return
        for side, found in ((node.left, left), (node.right, right)):
            if found is not None:
                self.visit(side, found)
            else:
                self._whole([side], f"it is joined by other columns than {_shown(column)}")

    def _companion(self, node: Join, left: str | None, right: str | None) -> None:
        """The aggregate that the join's rule keeps, whose groups are of the right side, or of the left."""
        beside = companion(node)
        if beside is None:
            return
        below = beside.input
        assert isinstance(below, Projection)
        wanted = right if node.residual is None else left
        named = [output.name for output in below.outputs if wanted is not None and output.sql == wanted]
        self._state(beside, named[0] if named else None)

    def _state(self, node: Aggregate, column: str | None) -> None:
        if node in self._stored:
            known = self.states.get(node, column)
            self.states[node] = column if known == column else None

    def _whole(self, nodes: Iterable[Node], reason: str) -> None:
        for node in nodes:
            for scan in scans(node):
                self._note(scan, None, reason)

    def _note(self, scan: Scan, column: str | None, reason: str) -> None:
        columns = self.scans.setdefault(scan, set())
        columns.add(column)
        if len(columns) > 1:
            self.reasons[scan] = "it is read in two ways"
        else:
            self.reasons[scan] = reason


def _below(node: Node, column: str) -> tuple[Node, str] | str:
    """Where the column comes from, such that rows of a value depend only on input rows of that value; else why not."""
    match node:
        case Filter() | Repeat():
            return node.input, column
        case Generate() if column in node.input.columns:
            return node.input, column
        case Projection():
            if column in node.renames:
                return node.input, node.renames[column]
            return f"{_shown(column)} is computed"
        case Aggregate():
            return (node.input, column) if column in node.keys else f"rows are grouped without {_shown(column)}"
        case Window():
            if column in node.partition:
                return node.input, column
            return f"a window's partitions do not have {_shown(column)}"
        case AsOfJoin() if column in node.left.columns:
            return node.left, column
    return f"{_shown(column)} is computed"


def _sides(node: Join, column: str, type_of: TypeOf) -> tuple[str | None, str | None]:
    """The column of each side that has the value of the join's column in every row that the value's rows depend on."""
    if node.kind == "inner":
        same = _equal(node, column, type_of)
    elif column in node.left.columns:
        same = _equal(node.left, column, type_of)
        # Of the right side only rows that match are read.
        same |= {right for left, right in node.keys if left in same and _alike(node, left, right, type_of)}
    else:
        return None, None
    left = column if column in node.left.columns else next((name for name in node.left.columns if name in same), None)
    right = (
        column if column in node.right.columns else next((name for name in node.right.columns if name in same), None)
    )
    return left, right


def _equal(node: Node, column: str, type_of: TypeOf) -> set[str]:
    """Columns of the node that have the same value as this one in every row."""
    match node:
        case Join(kind="inner"):
            found, waiting = set[str](), [column]
            while waiting:
                name = waiting.pop()
                if name in found:
                    continue
                side = node.left if name in node.left.columns else node.right
                found |= {name}
                waiting += _equal(side, name, type_of) - found
                for left, right in node.keys:
                    if name in (left, right) and _alike(node, left, right, type_of):
                        waiting.append(right if name == left else left)
            return found
        case Join() if column in node.left.columns:
            return _equal(node.left, column, type_of)
        case Filter() | Repeat():
            return _equal(node.input, column, type_of)
        case Projection() if column in node.renames:
            below = _equal(node.input, node.renames[column], type_of)
            return {name for name, own in node.renames.items() if own in below}
        case Aggregate() if column in node.keys:
            return _equal(node.input, column, type_of) & set(node.keys)
    return {column}


def _alike(node: Join, left: str, right: str, type_of: TypeOf) -> bool:
    """Whether equality of two join columns is that of their values."""
    return same_values({type_of(node.left, left), type_of(node.right, right)})


def same_values(types: set[str]) -> bool:
    """Whether values of these types are the same ones, in the same order."""
    return types <= {"tinyint", "smallint", "int", "bigint"} or (
        len(types) == 1 and types <= {"date", "timestamp", "string"}
    )


def _shown(column: str) -> str:
    """A column as the flow names it."""
    return column.split("__", 1)[-1] if not column.startswith("__") else column


@dataclass(frozen=True, slots=True)
class Restriction:
    """What a range of a flow's result is computed from: these tables within the range, all others whole."""

    column: str
    tables: frozenset[str]
    states: Mapping[Aggregate, str]
    """The stored aggregates that have these ranges, with the column."""
    scans: tuple[ScanAlignment, ...]
    whole: frozenset[Aggregate] = frozenset()
    """The other stored aggregates, in whose groups rows of all ranges meet, with all that are stored below them."""


def restriction(
    root: Node,
    column: str,
    type_of: TypeOf,
    states: Collection[Aggregate],
    range_columns: Mapping[str, str],
) -> Restriction | str:
    """How ranges of the result's column are computed from tables with ranges of the same map, by their range columns.

    A text says why the result has one range only.
    """
    found = align(root, column, type_of, states)
    on = {table for table, own in found.columns().items() if range_columns.get(table) == own}
    if not covered(root, column, type_of, on):
        missing = [each for each in found.scans if each.scan.table not in on]
        why = next((f"{each.scan.table}: {each.reason}" for each in missing if each.column is None), None)
        return why or f"no table that it reads has ranges of {_shown(column)}"
    divided = {
        state: name
        for state in states
        if (name := found.states.get(state)) is not None and covered(state, name, type_of, on)
    }
    below = {node for state in states if state not in divided for node in all_nodes(state)}
    whole = {state for state in states if state in below}
    kept = {state: name for state, name in divided.items() if state not in whole}
    return Restriction(column, frozenset(on), kept, found.scans, frozenset(whole))
