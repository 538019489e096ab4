"""The tables of a warehouse in words: their columns, their keys, and what they derive from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headgate.dataflow.flow import AutoCdc, MaterializedView
from headgate.dataflow.graph import Fragment
from headgate.dataflow.lineage import value_columns
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.stages.procedures import ProcedureStage
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog

TableKind = Literal["source", "flow", "procedure"]


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    name: str
    type: str
    """As Spark SQL writes it."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table that SQL can name."""

    name: str
    kind: TableKind
    """What keeps it: capture, a flow, or a procedure."""
    columns: tuple[ColumnDescription, ...]
    key: tuple[str, ...] | None
    reads: tuple[str, ...]
    """The tables that it derives from; none for one that is captured."""
    definition: str | None = None
    """The query of a view, as it was written."""
    comment: str | None = None
    """Of a flow, as its file has it."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    table: str
    column: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which columns a table's columns are made of."""

    table: str
    columns: Mapping[str, tuple[TableColumn, ...] | None]
    """By column; none for a table that is captured, None where only the whole query is known."""


def lineage_of(name: str, catalog: WarehouseCatalog, flows: FlowSet) -> Lineage:
    """The lineage of a table that there is."""
    entry = catalog.find(name)
    assert entry is not None
    plan = flows.plan_of(name)
    found: dict[str, tuple[TableColumn, ...] | None] = {}
    for column in entry.schema.names:
        if plan is None:
            found[column] = ()
        elif isinstance(plan.flow, AutoCdc):
            found[column] = (TableColumn(plan.flow.source, column),)
        elif isinstance(plan.flow.result, Fragment):
            found[column] = None
        else:
            found[column] = tuple(TableColumn(*each) for each in sorted(value_columns(plan.flow.result, column)))
    return Lineage(entry.name, found)


def describe_tables(catalog: WarehouseCatalog, flows: FlowSet) -> tuple[TableDescription, ...]:
    """Every table that there is."""
    called = {stage.name: stage.procedure.on for stage in flows.stages() if isinstance(stage, ProcedureStage)}
    return tuple(_described(entry, flows, called.get(entry.name)) for entry in catalog.entries())


def _described(entry: TableEntry, flows: FlowSet, called_on: str | None) -> TableDescription:
    plan = flows.plan_of(entry.name)
    kind: TableKind = "flow" if plan is not None else "source" if called_on is None else "procedure"
    reads = plan.tables_read if plan is not None else () if called_on is None else (called_on,)
    columns = tuple(ColumnDescription(field.name, field.dataType.simpleString()) for field in entry.schema.fields)
    view = plan.flow if plan is not None and isinstance(plan.flow, MaterializedView) else None
    definition = None if view is None else view.text
    comment = None if plan is None else plan.flow.comment
    return TableDescription(entry.name, kind, columns, entry.key, reads, definition, comment)
