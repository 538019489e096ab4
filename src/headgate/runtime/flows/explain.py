"""What a flow does and how: its graph, which operators are incremental, and what its arrangements cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headgate.dataflow.flow import AutoCdc
from headgate.dataflow.graph import Aggregate, Node, Scan
from headgate.dataflow.typed_graph import TypedGraph
from headgate.runtime.flows.flows import RunningFlow
from headgate.runtime.flows.range_status import range_status
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.stages.ways import WayChoice
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.versioned import VersionedTable


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """A table that the flow keeps or looks rows up in."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Explanation:
    flow: str
    is_incremental: bool
    """Every operator is kept incrementally."""
    reasons: tuple[str, ...]
    """Why the rest is not."""
    graph: str
    arrangements: tuple[StoredBytes, ...]
    states: tuple[StoredBytes, ...]
    ways: Mapping[str, str]
    """By table how its latest batch was taken, and why."""
    ranges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table its ranges, and per scan whether it is aligned, and why."""

    def __str__(self) -> str:
        kind = "incremental" if self.is_incremental else "partly incremental"
        lines = [f"flow {self.flow}: {kind}"]
        lines += [f"  not incremental: {reason}" for reason in self.reasons]
        lines += [f"  {line}" for line in self.graph.splitlines()]
        for title, found in (("arrangements", self.arrangements), ("running sums", self.states)):
            if found:
                lines.append(f"  {title}:")
                lines += [f"    {table.name}: {table.rows:,} rows, {table.bytes:,} bytes" for table in found]
        for table, found_lines in self.ranges.items():
            lines += [f"  {table}: {found_lines[0]}", *(f"  {line}" for line in found_lines[1:])]
        lines += [f"  latest batch of {table}: {way}" for table, way in self.ways.items()]
        return "\n".join(lines)


def explain_flow(
    flow: RunningFlow, stored: Callable[[str], StoredTable], choices: Mapping[str, WayChoice]
) -> Explanation:
    """`choices`: by stage how its latest batch was taken."""
    plan = flow.plan
    ways = {stage.name: str(choices[stage.name]) for stage in flow.stages if stage.name in choices}
    if isinstance(plan.flow, AutoCdc):
        cdc = plan.flow
        kind = f"slowly changing dimension type {cdc.scd_type}"
        text = f"{kind} of {cdc.source}, keys {', '.join(cdc.keys)}: one step per transaction"
        return Explanation(plan.name, True, (), text, (), (), ways)
    lines: list[str] = []
    states: list[StoredBytes] = []
    for stage in flow.stages:
        assert isinstance(stage, ViewStage)
        if plan.fragment is not None:
            lines.append(f"stored for the fragment: {stage.name}")
        lines.extend(_lines(stage.graph.root, stage.graph, 0))
        kept = (*stage.states.values(), *stage.whole_states.values())
        states.extend(_size(table.versioned, table.name) for table in kept)
    arrangements = [
        _size(found, found.spec.name)
        for table in dict.fromkeys(demand.table for demand in flow.demands)
        for by, found in stored(table).arrangements.items()
        if any(demand.by == by and demand.table == table for demand in flow.demands)
    ]
    if plan.fragment is not None:
        lines.append("as written, when a job is read:")
        lines.extend(f"  {line}" for line in plan.fragment.sql.strip().splitlines())
        for name, node in plan.fragment.inputs:
            if isinstance(node, Scan):
                lines.append(f"  {name}: all of {node.table}")
    reasons = plan.fragment.reasons if plan.fragment is not None else ()
    return Explanation(
        plan.name,
        plan.fragment is None,
        reasons,
        "\n".join(lines),
        tuple(arrangements),
        tuple(states),
        ways,
        _ranges(flow),
    )


def _ranges(flow: RunningFlow) -> dict[str, tuple[str, ...]]:
    return {
        stage.name: tuple(range_status(stage.target, stage).lines())
        for stage in flow.stages
        if isinstance(stage, ViewStage)
    }


def _size(table: VersionedTable, name: str) -> StoredBytes:
    return StoredBytes(name, table.count(table.through), table.bytes)


def _lines(node: Node, graph: TypedGraph, depth: int) -> Iterator[str]:
    why = graph.recomputed.get(node) if isinstance(node, Aggregate) else None
    rule = node.rule if why is None else f"touched groups recomputed: {why}"
    yield "  " * depth + (f"{node}  [{rule}]" if rule else str(node))
    for child in node.inputs:
        yield from _lines(child, graph, depth + 1)
