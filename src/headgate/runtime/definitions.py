"""From statements to definitions, and the fingerprint by which a changed flow is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from headgate.dataflow.flow import AutoCdc, Flow, MaterializedView
from headgate.delta.changes import BEGINNING, COMMIT_AT, START_AT
from headgate.errors import FlowError, Location
from headgate.sql.lower import lower_view
from headgate.sql.ordering import order_flows
from headgate.sql.scope import Catalog
from headgate.sql.statements import CreateAutoCdc, CreateStreamingTable, CreateView, Statement, parse_statements


def read_statements(files: Sequence[Path]) -> list[Statement]:
    statements: list[Statement] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise FlowError(
                f"the file is not UTF-8 text: {error.reason} at byte {error.start}",
                where=Location(str(file)),
                hint="save it as UTF-8",
            ) from None
        statements.extend(parse_statements(text, str(file)))
    return statements


def view_statement(name: str, sql: str) -> Statement:
    """The statement of a view that a program declares; lines count from its SELECT."""
    return parse_statements(f"CREATE MATERIALIZED VIEW {name} AS\n{sql}", f"flow {name}", first_line=0)[0]


def definitions(statements: Sequence[Statement], catalog: Catalog) -> Iterator[Flow]:
    """The flows in dependency order; each is lowered when asked for, when the catalog knows those before it."""
    tables = [statement for statement in statements if isinstance(statement, CreateStreamingTable)]
    filled: set[str] = set()
    for statement in order_flows(statements):
        if isinstance(statement, CreateView):
            yield lower_view(statement, catalog)
        elif isinstance(statement, CreateAutoCdc):
            filled.add(statement.target.casefold())
            yield auto_cdc(statement, tables)
    for table in tables:
        if table.name.casefold() not in filled:
            raise FlowError(
                f"no flow writes into the streaming table {table.name}",
                where=table.where,
                hint=f"add: CREATE FLOW … AS AUTO CDC INTO {table.name} FROM source.table KEYS (…);",
            )


def auto_cdc(statement: CreateAutoCdc, tables: Sequence[CreateStreamingTable]) -> AutoCdc:
    """The dimension of an AUTO CDC flow; its streaming table must be declared."""
    declared = {table.name.casefold(): table for table in tables}
    target = declared.get(statement.target.casefold())
    if target is None:
        raise FlowError(
            f"flow {statement.flow} writes into {statement.target}, which is not declared",
            where=statement.where,
            hint=f"add: CREATE STREAMING TABLE {statement.target};",
        )
    return AutoCdc(
        name=target.name,
        flow=statement.flow,
        where=statement.where,
        source=statement.source,
        keys=statement.keys,
        scd_type=statement.scd_type,
        sequence_by=statement.sequence_by,
        track=statement.track,
        track_except=statement.track_except or (),
    )


def fingerprint(flow: Flow, *types: str) -> str:
    """Equal for definitions that compute the same way into the same columns."""
    if isinstance(flow, MaterializedView):
        content = repr((flow.name, flow.result, flow.outputs, types))
        if COMMIT_AT in content or START_AT in content:
            # What it makes of rows of an initial load is a function of the beginning of time, too.
            content += BEGINNING.isoformat()
    else:
        content = repr((flow.name, flow.source, flow.keys, flow.scd_type, flow.sequence_by, flow.track, types))
    return hashlib.sha256(content.encode()).hexdigest()[:16]
