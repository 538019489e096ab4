"""From statements to definitions, and the fingerprint by which a changed flow is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from headgate.dataflow.flow import AutoCdc, Flow, MaterializedView
from headgate.delta.changes import BEGINNING, COMMIT_AT, START_AT
from headgate.errors import FlowError, Location, Problems, all_problems
from headgate.sql.expectations import COUNTED
from headgate.sql.lower import lower_view
from headgate.sql.ordering import order_flows, view_inputs
from headgate.sql.scope import TableCatalog
from headgate.sql.statements import (
    CreateAutoCdc,
    CreateStreamingTable,
    CreateView,
    Statement,
    is_statement,
    parse_statements,
)

Made = TypeVar("Made")


def read_statements(files: Sequence[Path], problems: Problems | None = None) -> list[Statement]:
    """The statements of the files; those with a mistake are left out where `problems` are collected."""
    statements: list[Statement] = []
    with all_problems(problems) as wrong:
        for file in files:
            with wrong.collected():
                statements += parse_statements(_text_of(file), str(file), problems=wrong)
    return statements


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FlowError(
            f"the file is not UTF-8 text: {error.reason} at byte {error.start}",
            where=Location(str(file)),
            hint="save it as UTF-8",
        ) from None


def view_statements(name: str, sql: str) -> list[Statement]:
    """The statements of a view that a program declares, by its query or by a statement of its own; lines count from its first."""
    file = f"flow {name}"
    if not sql.strip():
        raise FlowError("there is no query", where=Location(file, 1), hint="write one SELECT")
    is_whole = is_statement(sql, Location(file, 1))
    text, before = (sql, 0) if is_whole else (f"CREATE MATERIALIZED VIEW {name} AS\n{sql}", 1)
    try:
        statements = parse_statements(text, file, first_line=1 - before)
    except FlowError as error:
        if error.where is None or error.where.line != 0:
            raise
        raise FlowError(
            f"a flow cannot be called {name}", where=Location(file), hint="other names than words go into backquotes"
        ) from None
    view, *others = statements
    if not isinstance(view, CreateView) or (is_whole and view.name.casefold() != name.strip("`").casefold()):
        raise FlowError(
            f"expected a materialized view {name}",
            where=Location(file, 1),
            hint="write one SELECT, or CREATE MATERIALIZED VIEW",
        )
    if [target_of(each) for each in others] != [f"{view.name}{COUNTED}"] * bool(view.expectations):
        raise FlowError("expected one query", where=others[0].where, hint="declare each flow by itself")
    return [replace(each, where=Location(file, 1)) for each in statements]


def without_declared(
    statements: Sequence[Statement], declared: Container[str], held: Container[str], disputed: Problems, wrong: Problems
) -> list[Statement]:
    """The files' statements but those about flows that clients or programs declare, by folded names.

    A flow stays with its first owner: of flows that were `held` already the file's statement is disputed, of others the declaration
    is wrong.
    """
    found = list[Statement]()
    for statement in statements:
        name, place = target_of(statement), statement.where
        if name.casefold() not in declared:
            found.append(statement)
        elif name.casefold() in held:
            what = f"flow {name} belongs to the client or program that declared it, and {place} defines it as well"
            hint = (
                f"remove it from the file; or DROP MATERIALIZED VIEW {name} (a program: drop), then the file's counts"
            )
            disputed.append(FlowError(what, where=place, hint=hint))
        else:
            what = f"flow {name} belongs to the project's files: {place} defines it"
            hint = "change it in the file and `headgate apply`; or remove it there, apply, and declare it then"
            wrong.append(FlowError(what, where=Location(f"flow {name}"), hint=hint))
    return found


class ViewReader(Protocol):
    """Who reads the queries of views."""

    def tables_of(self, view: CreateView) -> tuple[str, ...]:
        """The tables that the view names."""

    def lower(self, view: CreateView) -> MaterializedView:
        """The view's graph or fragment."""


@dataclass(frozen=True, slots=True)
class PlainReader:
    """Reads views without Spark: what only Spark can read is a mistake to it."""

    catalog: TableCatalog

    def tables_of(self, view: CreateView) -> tuple[str, ...]:
        return view_inputs(view)

    def lower(self, view: CreateView) -> MaterializedView:
        return lower_view(view, self.catalog)


@dataclass(frozen=True, slots=True)
class FlowOutcome(Generic[Made]):
    """What became of one flow's statement."""

    statement: CreateView | CreateAutoCdc
    reads: tuple[str, ...]
    made: Made | None
    """None when something is wrong with it, or with what it reads."""
    missing: tuple[str, ...] = ()
    """Tables that it reads and with which something is wrong."""


def each_flow(
    statements: Sequence[Statement],
    views: ViewReader,
    make: Callable[[Flow], Made],
    problems: Problems,
    unknown: Iterable[str] = (),
) -> Iterator[FlowOutcome[Made]]:
    """Makes something of every flow, each after those that it reads; what is wrong with one does not hide the others.

    `make` puts the flow's table into the reader's catalog. `unknown` are tables that could not be looked at.
    """
    inputs: dict[int, tuple[str, ...]] = {}
    for statement in statements:
        with problems.collected():
            if isinstance(statement, CreateStreamingTable):
                inputs[id(statement)] = ()
            elif isinstance(statement, CreateAutoCdc):
                inputs[id(statement)] = (statement.source,)
            else:
                inputs[id(statement)] = views.tables_of(statement)
    readable = [statement for statement in statements if id(statement) in inputs]
    tables = [statement for statement in readable if isinstance(statement, CreateStreamingTable)]
    ordered = order_flows(readable, problems, views.tables_of)
    sound = {target_of(statement).casefold() for statement in ordered}
    broken = {name.casefold() for name in unknown}
    broken |= {name for each in statements if (name := target_of(each).casefold()) not in sound}
    for statement in ordered:
        if isinstance(statement, CreateStreamingTable):
            continue
        reads = inputs[id(statement)]
        missing = tuple(table for table in reads if table.casefold() in broken)
        made = None
        if not missing:
            with problems.collected():
                made = make(_lowered(statement, views, tables))
        if made is None:
            broken.add(target_of(statement).casefold())
        yield FlowOutcome(statement, reads, made, missing)
    filled = {each.target.casefold() for each in statements if isinstance(each, CreateAutoCdc)}
    for table in tables:
        if table.name.casefold() not in filled:
            problems.append(
                FlowError(
                    f"no flow writes into the streaming table {table.name}",
                    where=table.where,
                    hint=f"add: CREATE FLOW … AS AUTO CDC INTO {table.name} FROM source.table KEYS (…);",
                )
            )


def _lowered(statement: CreateView | CreateAutoCdc, views: ViewReader, tables: Sequence[CreateStreamingTable]) -> Flow:
    return views.lower(statement) if isinstance(statement, CreateView) else auto_cdc(statement, tables)


def target_of(statement: Statement) -> str:
    """The table that a statement is about."""
    return statement.target if isinstance(statement, CreateAutoCdc) else statement.name


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
        expectations=target.expectations,
        comment=target.comment,
    )


def fingerprint(flow: Flow, *types: str) -> str:
    """Equal for definitions that compute the same way into the same columns."""
    if isinstance(flow, MaterializedView):
        content = repr((flow.name, flow.result, flow.outputs, types))
        failing = [each.condition for each in flow.expectations if each.action == "fail"]
        if failing:
            # All rows have to be looked at again when there is another one.
            content += repr(failing)
        if COMMIT_AT in content or START_AT in content:
            # What it makes of rows of an initial load is a function of the beginning of time, too.
            content += BEGINNING.isoformat()
    else:
        content = repr((flow.name, flow.source, flow.keys, flow.scd_type, flow.sequence_by, flow.track, types))
    return hashlib.sha256(content.encode()).hexdigest()[:16]
