"""Which keys of each scan a query can depend on, read off Spark's optimized plan (as JSON) over relations without rows.

The optimizer moves predicates down to the scans and infers what equi-joins carry over; each of its rules keeps the result for
every content of the tables. So the query depends on a scan only through the rows for which the filters right above it can be
true. Only comparisons of the range column itself with literals of its own type are read; everything else means all keys.

    Filter (k >= 3 AND k < 9 AND v > 0)     ->  keys [3, 9)
      Project
        scan with a marker column `__scan_2`
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from headgate.ranges.key_set import ALL, NOT_NULL, NOTHING, NULL, KeySet, Value, above, any_of, below, equal_to

MARKER = "__scan_"
"""What begins the name of the column that tells which table a scan is of."""

_WHOLE_NUMBERS = ("byte", "short", "integer", "long")
_REPLACED = "\ufffd"
"""Stands for bytes that are no text: such a literal is not known."""


@dataclass(slots=True)
class _PlanNode:
    """A node of a plan or an expression; `fields` are as Spark writes them."""

    name: str
    fields: Mapping[str, Any]
    children: list[_PlanNode] = field(default_factory=list)
    parent: _PlanNode | None = None


def keys_read(plan: str, columns: Mapping[str, str]) -> dict[str, KeySet]:
    """The keys that the query can depend on, for the marked tables; `columns` has each marker's range column.

    A table that the plan does not scan any more, or not where this finds it, has all.
    """
    found: dict[str, KeySet] = {}
    scans = 0
    for root in _trees(json.loads(plan)):
        for node in _below(root):
            names = {attribute.fields["name"]: attribute for attribute in _outputs(node)} if not node.children else {}
            marker = next((name for name in names if name.startswith(MARKER)), None)
            if marker is None:
                continue
            scans += 1
            column = names.get(columns.get(marker, ""))
            keys = ALL if column is None else _keys_above(node, column)
            found[marker] = found[marker].union(keys) if marker in found else keys
    # Scans at places where none is looked for are scans of anything.
    if plan.count(f'"name":"{MARKER}') != scans:
        return dict.fromkeys(columns, ALL)
    return {marker: found.get(marker, ALL) for marker in columns}


def reads_the_time(plan: str) -> bool:
    """Whether an analyzed plan (as JSON) may make a date or a timestamp of the time of the call, as of the text 'today'.

    That is told from texts which are not read from a table and do not begin with a year.
    """
    return any(
        node.name == "Cast"
        and str(node.fields["dataType"]).startswith(("date", "timestamp"))
        and not any(_is_attribute(part) for part in _below(node))
        and not _begins_with_year(node.children[0])
        for tree in _trees(json.loads(plan))
        for node in _below(tree)
    )


def _begins_with_year(node: _PlanNode) -> bool:
    """Whether a literal is an instant whenever it is read; one that is no text is."""
    if node.name != "Literal":
        return False
    return node.fields["dataType"] != "string" or re.match(r"\s*[-+]?\d{4}", str(node.fields["value"])) is not None


def _keys_above(scan: _PlanNode, column: _PlanNode) -> KeySet:
    """The keys that the filters above the scan leave, and the semi-join above those."""
    keys, node = ALL, scan
    while node.parent is not None and node.parent.name in ("Filter", "Project"):
        node = node.parent
        if node.name == "Filter":
            keys = keys.intersection(_keys(_expression(node.fields["condition"]), column))
    join = node.parent
    if join is not None and join.name == "Join" and join.fields.get("joinType") == _SEMI and join.children[0] is node:
        keys = keys.intersection(_semi_joined(join, column))
    return keys


_SEMI = {"object": "org.apache.spark.sql.catalyst.plans.LeftSemi$"}


def _semi_joined(join: _PlanNode, column: _PlanNode) -> KeySet:
    """The keys that have a match: those which filters leave of the column that they are equal to."""
    if not join.fields.get("condition"):
        return ALL
    for part in _conjuncts(_expression(join.fields["condition"])):
        if part.name != "EqualTo" or not all(_is_attribute(side) for side in part.children):
            continue
        for mine, other in (part.children, part.children[::-1]):
            if _is(mine, column) and mine.fields["dataType"] == other.fields["dataType"]:
                return _left_by_filters(join.children[1], other)
    return ALL


def _left_by_filters(node: _PlanNode, column: _PlanNode) -> KeySet:
    keys = ALL
    while node.name in ("Filter", "Project"):
        if node.name == "Filter":
            keys = keys.intersection(_keys(_expression(node.fields["condition"]), column))
        node = node.children[0]
    return keys


def _keys(condition: _PlanNode, column: _PlanNode) -> KeySet:
    """A set that has every key for which the condition can be true."""
    match condition.name, condition.children:
        case "And", [left, right]:
            return _keys(left, column).intersection(_keys(right, column))
        case "Or", [left, right]:
            return _keys(left, column).union(_keys(right, column))
        case "IsNull", [child] if _is(child, column):
            return NULL
        case "IsNotNull", [child] if _is(child, column):
            return NOT_NULL
        case "Literal", _ if condition.fields["dataType"] == "boolean":
            return ALL if condition.fields["value"] == "true" else NOTHING
        case "EqualNullSafe", [child, other] if _is_true(other):
            return _keys(child, column)
        case "EqualNullSafe", [other, child] if _is_true(other):
            return _keys(child, column)
        case "In", [child, *others] if _is(child, column):
            values = [_value(other, column) for other in others if not _is_null(other)]
            return ALL if any(value is None for value in values) else any_of(v for v in values if v is not None)
        case "StartsWith", [child, other] if _is(child, column):
            prefix = _value(other, column)
            return _beginning_with(prefix) if isinstance(prefix, str) and prefix else ALL
        case name, [left, right] if name in _COMPARISONS:
            if _is(left, column) and (value := _value(right, column)) is not None:
                return _compared(name, value)
            if _is(right, column) and (value := _value(left, column)) is not None:
                return _compared(_COMPARISONS[name], value)
    return ALL


_COMPARISONS = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
"""Each with the one that says the same with its sides exchanged."""


def _compared(name: str, value: Value) -> KeySet:
    match name:
        case "LessThan" | "LessThanOrEqual":
            return below(value, inclusive=name.endswith("OrEqual"))
        case "GreaterThan" | "GreaterThanOrEqual":
            return above(value, inclusive=name.endswith("OrEqual"))
    return equal_to(value)


def _beginning_with(prefix: str) -> KeySet:
    last = ord(prefix[-1]) + 1
    keys = above(prefix, inclusive=True)
    # Surrogates are no characters; behind the last one there is none.
    return keys if last > 0x10FFFF or 0xD800 <= last <= 0xDFFF else keys.intersection(below(prefix[:-1] + chr(last)))


# expressions


def _is_attribute(node: _PlanNode) -> bool:
    return node.name == "AttributeReference"


def _is(node: _PlanNode, column: _PlanNode) -> bool:
    return _is_attribute(node) and node.fields["exprId"]["id"] == column.fields["exprId"]["id"]


def _is_true(node: _PlanNode) -> bool:
    return node.name == "Literal" and (node.fields["dataType"], node.fields["value"]) == ("boolean", "true")


def _is_null(node: _PlanNode) -> bool:
    return node.name == "Literal" and node.fields["value"] is None


def _value(node: _PlanNode, column: _PlanNode) -> Value | None:
    """The value of a literal that has the column's type; None when it is not known."""
    kind = column.fields["dataType"]
    if node.name != "Literal" or node.fields["value"] is None or node.fields["dataType"] != kind:
        return None
    text: str = node.fields["value"]
    try:
        if kind in _WHOLE_NUMBERS:
            return int(text)
        if kind == "date":
            return date.fromisoformat(text)
        if kind == "timestamp":
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None
    return text if kind == "string" and _REPLACED not in text else None


def _conjuncts(condition: _PlanNode) -> Iterator[_PlanNode]:
    if condition.name == "And":
        for child in condition.children:
            yield from _conjuncts(child)
    else:
        yield condition


# Spark's JSON: a tree is a list of its nodes, each before its children


def _expression(body: list[dict[str, Any]]) -> _PlanNode:
    return _tree(iter(body))


def _tree(bodies: Iterator[dict[str, Any]]) -> _PlanNode:
    body = next(bodies)
    node = _PlanNode(body["class"].rsplit(".", 1)[-1], body)
    for _ in range(body["num-children"]):
        child = _tree(bodies)
        child.parent = node
        node.children.append(child)
    return node


def _trees(body: Any) -> Iterator[_PlanNode]:
    """The plan, and the plans of subqueries within its expressions."""
    if isinstance(body, list) and body and isinstance(body[0], dict) and "num-children" in body[0]:
        yield _tree(iter(body))
        for node in body:
            for name, value in node.items():
                if name != "output":
                    yield from _trees(value)
    elif isinstance(body, list):
        for each in body:
            yield from _trees(each)


def _below(node: _PlanNode) -> Iterator[_PlanNode]:
    yield node
    for child in node.children:
        yield from _below(child)


def _outputs(node: _PlanNode) -> Iterator[_PlanNode]:
    """The columns of a scan."""
    for body in node.fields.get("output", ()):
        if isinstance(body, list):
            yield _expression(body)
