"""What the catalogs tell of a warehouse: its tables and their columns, the roles, and how fresh each table is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate.gateway.catalog.mirror import Contents, TableRow
from headgate.gateway.comments import Comments
from headgate.gateway.dialect import FLOWS_SCHEMA
from headgate.runtime.flows.descriptions import TableDescription
from headgate.scheduling.warehouse import Warehouse
from headgate.warehouse.roles import ADMINISTRATOR, Roles


def contents_of(warehouse: Warehouse, roles: Roles, comments: Comments) -> Contents:
    # Indexes of a view that a client defined are the client's to define: dbt would drop one that it does not know.
    defined = set(warehouse.declared)
    tables = tuple(
        _row(replace(table, key=None) if table.name in defined else table, comments.of(table.name))
        for table in warehouse.describe()
    )
    schemas = dict.fromkeys([*warehouse.sources, *(table.schema for table in tables)])
    schemas.pop(FLOWS_SCHEMA, None)
    return Contents(warehouse.project.name, tables, tuple(schemas), (ADMINISTRATOR, *roles.all()))


def named(table: str) -> tuple[str, str]:
    """The schema and name of a table of the warehouse."""
    schema, dot, name = table.partition(".")
    return (schema, name) if dot else (FLOWS_SCHEMA, table)


def _row(table: TableDescription, comments: Mapping[str, str]) -> TableRow:
    schema, name = named(table.name)
    columns = tuple((column.name, column.type) for column in table.columns)
    shown = {column for column, _ in columns}
    key = table.key or ()
    return TableRow(
        schema,
        name,
        table.kind != "source",
        columns,
        # Rows without a key of their own are known by a hidden column.
        key if shown.issuperset(key) else (),
        table.definition,
        comments.get("", table.comment),
        tuple((column, text) for column, text in comments.items() if column),
    )


def freshness_of(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    """The rows of headgate.tables."""
    kinds = {table.name: table.kind for table in warehouse.describe()}
    return [
        (
            *named(status.name),
            kinds.get(status.name),
            int(status.through),
            status.data_timestamp,
            None if status.lag is None else status.lag.total_seconds(),
        )
        for status in warehouse.status.tables
        if status.name in kinds
    ]
