"""The flows of a project checked one by one, each after those it reads; what is wrong with one does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql.types import NullType, StructType

from headgate.cli.problems import Problems
from headgate.dataflow.flow import AutoCdc, Flow
from headgate.dataflow.graph import Fragment
from headgate.errors import FlowError
from headgate.runtime.catalog import TableEntry, WarehouseCatalog, versions_hidden
from headgate.runtime.definitions import auto_cdc, read_statements
from headgate.runtime.flows import Planner
from headgate.sql.lower import lower_view
from headgate.sql.ordering import order_flows, view_inputs
from headgate.sql.statements import CreateAutoCdc, CreateStreamingTable, CreateView, Statement

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

    def entry(self, flow: Flow, catalog: WarehouseCatalog) -> tuple[TableEntry, tuple[str, ...]]:
        """The flow's table, and which of its groups are recomputed and why."""
        ...


class SparkTypes:
    """Spark derives the types, on empty tables."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def entry(self, flow: Flow, catalog: WarehouseCatalog) -> tuple[TableEntry, tuple[str, ...]]:
        plan = self._planner.plan(flow, {})
        recomputed = [
            f"touched groups are recomputed: {why}" for view in plan.views for why in view.graph.recomputed.values()
        ]
        return plan.entry, tuple(dict.fromkeys(recomputed))


class NamesOnly:
    """Without Spark: columns have names and no types."""

    def entry(self, flow: Flow, catalog: WarehouseCatalog) -> tuple[TableEntry, tuple[str, ...]]:
        if isinstance(flow, AutoCdc):
            source = catalog.find(flow.source)
            schema = StructType() if source is None else source.schema
            hidden = versions_hidden(NullType()) if flow.scd_type == 2 else StructType()
            return TableEntry(flow.name, schema, hidden, flow.keys, is_versioned=flow.scd_type == 2), ()
        schema = StructType()
        for name in flow.outputs:
            schema.add(name, NullType())
        return TableEntry(flow.name, schema, StructType(), None, is_fragment=isinstance(flow.result, Fragment)), ()


def read_flow_files(files: Sequence[Path], problems: Problems) -> list[Statement]:
    """The statements of the files that can be read; one with a mistake is left out as a whole."""
    statements: list[Statement] = []
    for file in files:
        with problems.collected():
            statements += read_statements([file])
    return statements


def check_flows(
    statements: Sequence[Statement], catalog: WarehouseCatalog, unknown: Sequence[str], types: Types, problems: Problems
) -> list[CheckedFlow]:
    """Checks every flow and adds its table to the catalog. `unknown` are source tables that could not be looked at."""
    inputs: dict[str, tuple[str, ...]] = {}
    readable: list[Statement] = []
    for statement in statements:
        with problems.collected():
            if not isinstance(statement, CreateStreamingTable):
                inputs[_target(statement)] = _inputs(statement)
            readable.append(statement)
    broken = {name.casefold() for name in unknown}
    broken |= {_target(each).casefold() for each in statements if each not in readable}
    tables = [each for each in readable if isinstance(each, CreateStreamingTable)]
    ordered: list[Statement] = []
    with problems.collected():
        ordered = order_flows(readable)
    checked = []
    for statement in ordered:
        if isinstance(statement, CreateStreamingTable):
            continue
        name, reads = _target(statement), inputs[_target(statement)]
        found = CheckedFlow(name, str(statement.where), reads, NOT_CHECKED)
        missing = [table for table in reads if table.casefold() in broken]
        if missing:
            found = CheckedFlow(name, found.where, reads, NOT_CHECKED, (f"it reads {', '.join(missing)}",))
        else:
            with problems.collected():
                found = _checked(statement, tables, reads, catalog, types)
        if found.how == NOT_CHECKED:
            broken.add(name.casefold())
        checked.append(found)
    filled = {each.target.casefold() for each in readable if isinstance(each, CreateAutoCdc)}
    for table in tables:
        if table.name.casefold() not in filled:
            problems.append(FlowError(f"no flow writes into the streaming table {table.name}", where=table.where))
    return checked


def _checked(
    statement: CreateView | CreateAutoCdc,
    tables: Sequence[CreateStreamingTable],
    reads: tuple[str, ...],
    catalog: WarehouseCatalog,
    types: Types,
) -> CheckedFlow:
    flow: Flow = lower_view(statement, catalog) if isinstance(statement, CreateView) else auto_cdc(statement, tables)
    entry, recomputed = types.entry(flow, catalog)
    catalog.add(entry)
    where = str(statement.where)
    if isinstance(flow, AutoCdc):
        return CheckedFlow(flow.name, where, reads, f"dimension of type {flow.scd_type}, {INCREMENTAL}")
    if isinstance(flow.result, Fragment):
        return CheckedFlow(flow.name, where, reads, PARTLY, (*flow.result.reasons, *recomputed))
    return CheckedFlow(flow.name, where, reads, INCREMENTAL, recomputed)


def _target(statement: Statement) -> str:
    return statement.target if isinstance(statement, CreateAutoCdc) else statement.name


def _inputs(statement: CreateView | CreateAutoCdc) -> tuple[str, ...]:
    return (statement.source,) if isinstance(statement, CreateAutoCdc) else tuple(view_inputs(statement))
