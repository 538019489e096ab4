"""The tables of a warehouse in words: their columns, their keys, and what they derive from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


def describe_tables(catalog: WarehouseCatalog, flows: FlowSet) -> tuple[TableDescription, ...]:
    """Every table that there is."""
    called = {stage.name: stage.procedure.on for stage in flows.stages() if isinstance(stage, ProcedureStage)}
    return tuple(_described(entry, flows, called.get(entry.name)) for entry in catalog.entries())


def _described(entry: TableEntry, flows: FlowSet, called_on: str | None) -> TableDescription:
    plan = flows.plan_of(entry.name)
    kind: TableKind = "flow" if plan is not None else "source" if called_on is None else "procedure"
    reads = plan.tables_read if plan is not None else () if called_on is None else (called_on,)
    columns = tuple(ColumnDescription(field.name, field.dataType.simpleString()) for field in entry.schema.fields)
    return TableDescription(entry.name, kind, columns, entry.key, reads)
