"""Which tables of the warehouse are placed at a platform, as their flows say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.config.platforms import SPARK
from headgate.dataflow.flow import Flow, MaterializedView
from headgate.errors import FlowError, HeadgateError
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.flows import FlowPlan
from headgate.runtime.tables.stored import StoredTable
from headgate.serving.placed import PlacedTable, placed_table
from headgate.sql.names import did_you_mean, folded
from headgate.sql.statements import INDEXES, PLACE


@dataclass(frozen=True)
class Placed:
    """A placed table, and where its rows and changes are."""

    table: PlacedTable
    stored: StoredTable


@dataclass(frozen=True)
class Placements:
    """The placed tables by platform and folded name, and why others are not placed although their flows say so."""

    at: Mapping[str, Mapping[str, Placed]]
    problems: Mapping[str, HeadgateError] = field(default_factory=dict)


def placements(flows: FlowSet, platforms: Iterable[str]) -> Placements:
    """As the flows are now."""
    names = {folded(name): name for name in platforms}
    found: dict[str, dict[str, Placed]] = {name: {} for name in names.values()}
    problems: dict[str, HeadgateError] = {}
    for running in flows:
        try:
            place = platform_of(running.plan.flow, names.values())
            if place is not None:
                table = _placed_table(running.plan, running.generation)
                found[place][folded(table.name)] = Placed(table, running.stages[0].target)
        except FlowError as problem:
            problems[running.plan.name] = problem
    return Placements(found, problems)


def platform_of(flow: Flow, platforms: Iterable[str]) -> str | None:
    """The platform that a flow is placed at besides Spark, as the project spells it; a FlowError if there is none of that name."""
    place = flow.properties.get(PLACE) if isinstance(flow, MaterializedView) else None
    if place is None or folded(place) == SPARK:
        return None
    names = {folded(name): name for name in platforms}
    if folded(place) not in names:
        known = list(names.values())
        hint = "open the warehouse with it in the project file: platforms: {serving: {type: postgres, dsn: …}}"
        raise FlowError(
            f"{flow.name} is placed at {place}, which is not a platform of the project",
            where=flow.where,
            hint=did_you_mean(place, known) if known else hint,
        )
    return names[folded(place)]


def require_placeable(plan: FlowPlan, platforms: Iterable[str]) -> None:
    """Refuses a definition that cannot be placed where it says."""
    if platform_of(plan.flow, platforms) is not None:
        _placed_table(plan, 1)


def _placed_table(plan: FlowPlan, generation: int) -> PlacedTable:
    flow = plan.flow
    assert isinstance(flow, MaterializedView)
    if plan.fragment is not None:
        raise FlowError(
            f"{plan.name} cannot be placed: it runs as written when it is read, and nothing is stored for it",
            where=flow.where,
            hint=f"`headgate explain {plan.name}` says why; place a flow that it reads",
        )
    spec = plan.views[0].spec
    shown = [column for column in spec.columns if column in plan.entry.schema.names]
    declared = flow.properties.get(INDEXES, "")
    origin = f"{plan.fingerprint}.{generation}"
    return placed_table(plan.name, spec.schema, shown, spec.key, declared, origin, flow.where)
