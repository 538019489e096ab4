"""Running sums: how an aggregate is kept without reading its input again.

An accumulator is a number per group that adds up over changes; an aggregate's value is a function of the accumulators.
Only exact arithmetic qualifies (counts, integers, decimals); for everything else the touched groups are recomputed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.dataflow.graph import Aggregate, AggregateCall
from headgate.dataflow.relation import quoted
from headgate.delta.changes import WEIGHT

ROWS = "__rows"
"""The accumulator that every state has: how many input rows the group holds."""
GROUP = "__group"
"""Key of the state of an aggregate without keys."""

_INTEGRAL = {"tinyint", "smallint", "int", "bigint"}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Accumulator:
    name: str
    sql: str
    """Summed over the changes of a group; uses the input's columns and the weight."""
    type: str


@dataclass(frozen=True, slots=True)
class Running:
    """An aggregate node as accumulators and the expression of each of its calls over them."""

    accumulators: tuple[Accumulator, ...]
    values: tuple[tuple[str, str], ...]

    def keys(self, node: Aggregate) -> tuple[str, ...]:
        return node.keys or (GROUP,)


def running(node: Aggregate, argument_types: Mapping[str, str], result_types: Mapping[str, str]) -> Running | str:
    """The node's running form, or the first call that needs its groups recomputed, in words. Types by call name."""
    accumulators = [Accumulator(ROWS, WEIGHT, "bigint")]
    values = []
    for call in node.calls:
        parts = _call(call, argument_types.get(call.name, ""), result_types[call.name])
        if parts is None:
            shown = f"{call.function}({'DISTINCT ' if call.distinct else ''}{', '.join(call.arguments)})"
            return f"{shown} of {argument_types.get(call.name) or 'rows'}"
        accumulators.extend(parts[0])
        values.append((call.name, parts[1]))
    return Running(tuple(accumulators), tuple(values))


def _call(call: AggregateCall, argument_type: str, result_type: str) -> tuple[list[Accumulator], str] | None:
    if call.distinct:
        return None
    function = call.function.lower()
    if function == "count":
        conditions = [f"({argument}) IS NOT NULL" for argument in call.arguments if argument != "*"]
        if call.where is not None:
            conditions.append(f"({call.where})")
        counted = f"IF({' AND '.join(conditions)}, {WEIGHT}, 0L)" if conditions else WEIGHT
        name = f"{call.name}__n"
        return [Accumulator(name, counted, "bigint")], quoted(name)
    if function == "count_if" and call.where is None:
        name = f"{call.name}__n"
        return [Accumulator(name, f"IF({call.arguments[0]}, {WEIGHT}, 0L)", "bigint")], quoted(name)
    if function in ("sum", "avg", "mean"):
        return _sum(call, function, argument_type, result_type)
    return None


def _sum(
    call: AggregateCall, function: str, argument_type: str, result_type: str
) -> tuple[list[Accumulator], str] | None:
    argument = f"({call.arguments[0]})"
    if call.where is not None:
        argument = f"(CASE WHEN {call.where} THEN {argument} END)"
    total, counted = f"{call.name}__sum", f"{call.name}__n"
    decimal = _DECIMAL.fullmatch(argument_type)
    if argument_type in _INTEGRAL:
        kind = "bigint" if function == "sum" else "decimal(38,0)"
        weighted = f"CAST({argument} AS {kind}) * {WEIGHT}" if function == "sum" else _decimal(argument, 20, 0, kind)
    elif decimal is not None:
        digits, scale = int(decimal[1]), int(decimal[2])
        if digits > _MOST_DIGITS - 11 and scale > 6:
            return None
        kind = f"decimal({min(_MOST_DIGITS, digits + 10)},{scale})"
        weighted = _decimal(argument, digits, scale, kind)
    else:
        return None
    accumulators = [
        Accumulator(total, f"COALESCE({weighted}, 0)", kind),
        Accumulator(counted, f"IF({argument} IS NOT NULL, {WEIGHT}, 0L)", "bigint"),
    ]
    value = quoted(total)
    if function != "sum":
        dividend = f"CAST({value} AS DOUBLE)" if result_type == "double" else value
        value = f"{dividend} / {quoted(counted)}"
    return accumulators, f"CAST(IF({quoted(counted)} > 0, {value}, NULL) AS {result_type})"


def _decimal(argument: str, digits: int, scale: int, kind: str) -> str:
    """The argument times the weight without losing digits: nearly all weights are 1 or -1."""
    exact = f"CAST({argument} AS {kind})"
    product = f"CAST(CAST({argument} AS decimal({digits},{scale})) * CAST({WEIGHT} AS decimal(10,0)) AS {kind})"
    return f"CASE {WEIGHT} WHEN 1 THEN {exact} WHEN -1 THEN -{exact} ELSE {product} END"
