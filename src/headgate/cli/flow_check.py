"""The flows of a project checked one by one, each after those it reads; what is wrong with one does not hide the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.types import NullType, StructType

from headgate.dataflow.flow import AutoCdc, Flow
from headgate.dataflow.graph import Fragment
from headgate.errors import Problems
from headgate.runtime.flows.definitions import PlainReader, ViewReader, each_flow, target_of
from headgate.runtime.flows.flows import Planner
from headgate.runtime.placing.placement import platform_of
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog, versions_hidden
from headgate.sql.statements import Statement

NOT_CHECKED = "not checked"
INCREMENTAL = "incremental"
PARTLY = "partly incremental"


@dataclass(frozen=True, slots=True)
class CheckedFlow:
    """A flow: what it reads, how it is kept, and why not incrementally where that is so."""

    name: str
    where: str
    reads: tuple[str, ...]
    how: str
    reasons: tuple[str, ...] = ()


class Types(Protocol):
    """Who derives a flow's columns."""

    def views(self, catalog: WarehouseCatalog) -> ViewReader:
        """Who reads the queries of views over the catalog."""
        ...

    def entry(self, flow: Flow, catalog: WarehouseCatalog) -> tuple[Flow, TableEntry, tuple[str, ...]]:
        """The flow as it is kept, its table, and which of its groups are recomputed and why."""
        ...


class SparkTypes:
    """Spark derives the types, on empty tables."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def views(self, catalog: WarehouseCatalog) -> ViewReader:
        return self._planner

    def entry(self, flow: Flow, catalog: WarehouseCatalog) -> tuple[Flow, TableEntry, tuple[str, ...]]:
        plan = self._planner.plan(flow, {})
        recomputed = [
            f"touched groups are recomputed: {why}" for view in plan.views for why in view.graph.recomputed.values()
        ]
        return plan.flow, plan.entry, tuple(dict.fromkeys(recomputed))


class NamesOnly:
    """Without Spark: columns have names and no types."""

    def views(self, catalog: WarehouseCatalog) -> ViewReader:
        return PlainReader(catalog)

    def entry(self, flow: Flow, catalog: WarehouseCatalog) -> tuple[Flow, TableEntry, tuple[str, ...]]:
        if isinstance(flow, AutoCdc):
            source = catalog.find(flow.source)
            schema = StructType() if source is None else source.schema
            hidden = versions_hidden(NullType()) if flow.scd_type == 2 else StructType()
            return flow, TableEntry(flow.name, schema, hidden, flow.keys, is_versioned=flow.scd_type == 2), ()
        schema = StructType()
        for name in flow.outputs:
            schema.add(name, NullType())
        is_fragment = isinstance(flow.result, Fragment)
        return flow, TableEntry(flow.name, schema, StructType(), None, is_fragment=is_fragment), ()


def check_flows(
    statements: Sequence[Statement],
    catalog: WarehouseCatalog,
    unknown: Sequence[str],
    types: Types,
    problems: Problems,
    platforms: Collection[str] = (),
) -> list[CheckedFlow]:
    """Checks every flow and adds its table to the catalog. `unknown` are source tables that could not be looked at."""

    def make(defined: Flow) -> tuple[str, tuple[str, ...]]:
        platform_of(defined, platforms)
        flow, entry, recomputed = types.entry(defined, catalog)
        catalog.add(entry)
        if isinstance(flow, AutoCdc):
            return f"dimension of type {flow.scd_type}, {INCREMENTAL}", ()
        if isinstance(flow.result, Fragment):
            return PARTLY, (*flow.result.reasons, *recomputed)
        return INCREMENTAL, recomputed

    checked = []
    for found in each_flow(statements, types.views(catalog), make, problems, unknown):
        unread = (f"it reads {', '.join(found.missing)}",) if found.missing else ()
        how, reasons = found.made or (NOT_CHECKED, unread)
        where = str(found.statement.where)
        checked.append(CheckedFlow(target_of(found.statement), where, found.reads, how, reasons))
    return checked
