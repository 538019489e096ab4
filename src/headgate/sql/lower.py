"""Lowering: a view's SELECT becomes an operator graph, or a fragment over graphs where a part is not incremental."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from sqlglot import exp

from headgate.dataflow.expression import Column
from headgate.dataflow.flow import MaterializedView
from headgate.dataflow.graph import Fragment, LookupMiss, Node, Output, Projection
from headgate.errors import FlowError, Location
from headgate.sql.bounds import bounded_recursion
from headgate.sql.context import Context
from headgate.sql.fragments import FragmentBuilder
from headgate.sql.joins import JoinBuilder
from headgate.sql.names import NameAllocator, folded
from headgate.sql.positions import QueryText, SyntaxProblem
from headgate.sql.prune import pruned
from headgate.sql.scope import Environment, Field, Lowered, NotIncremental, TableCatalog
from headgate.sql.select import Selects, lower_select
from headgate.sql.set_operations import lower_set_operation
from headgate.sql.statements import LOOKUP_MISS, CreateView


def lower_view(statement: CreateView, catalog: TableCatalog) -> MaterializedView:
    """The view as a graph whose columns are the view's, or as a fragment."""
    query = QueryText(statement.query_text, statement.query_where)
    tree = query.parse()
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise FlowError(
            f"view '{statement.name}' is not a query", where=query.where, hint="write AS SELECT … or AS WITH … SELECT …"
        )
    miss = cast(LookupMiss, statement.properties.get(LOOKUP_MISS, "unknown"))
    lowering = Lowering(query, catalog, miss)
    try:
        with bounded_recursion(query.where):
            lowered = lowering.lower(tree, Environment())
    except NotIncremental as failure:
        builder = FragmentBuilder(lowering.context, lowering.common_tables)
        fragment, names = builder.build(tree, failure)
        return view_of(statement, fragment, checked_names(names, query.location(tree), _places(query, tree)))
    outputs = checked_names([item.name for item in lowered.fields], query.location(tree), _places(query, tree))
    return view_of(statement, named(lowered, outputs), outputs)


def view_of(statement: CreateView, result: Node | Fragment, outputs: tuple[str, ...]) -> MaterializedView:
    """The view with its query's graph or fragment."""
    return MaterializedView(
        statement.name,
        statement.query_text,
        statement.where,
        result,
        outputs,
        statement.query_where,
        dict(statement.properties),
        statement.expectations,
        statement.comment,
    )


def named(lowered: Lowered, outputs: Sequence[str]) -> Node:
    """The query with its columns under the names that users see, and nothing else in the graph."""
    columns = tuple(Output(name, Column(item.column)) for name, item in zip(outputs, lowered.fields, strict=True))
    return pruned(Projection(lowered.node, columns))


def checked_names(
    names: Sequence[str], where: Location, places: Mapping[str, Sequence[Location]] = MappingProxyType({})
) -> tuple[str, ...]:
    """The view's column names: each once, none of those that headgate keeps for itself.

    `places` are those of the select list's items, by their folded names.
    """
    seen: set[str] = set()
    for name in names:
        found = places.get(folded(name), ())
        if folded(name) in seen:
            at = f", at {found[0]} and {found[1]}" if len(found) > 1 else ""
            raise FlowError(
                f"the view has two columns called '{name}'{at}",
                where=found[1] if len(found) > 1 else where,
                hint="give one of them another name with AS",
            )
        if name.startswith("__"):
            raise FlowError(
                f"a view's column cannot be called '{name}'",
                where=found[0] if found else where,
                hint="names that begin with two underscores are headgate's own: rename it with AS",
            )
        seen.add(folded(name))
    return tuple(names)


def named_places(text: str, where: Location) -> dict[str, list[Location]]:
    """Where a query's select list names its columns, as far as headgate's parser reads it."""
    try:
        query = QueryText(text, where)
        return _places(query, query.parse())
    except SyntaxProblem:
        return {}


def _places(query: QueryText, tree: exp.Expr) -> dict[str, list[Location]]:
    """By folded names; a set operation has the names of its first query."""
    while not isinstance(tree, exp.Select) and isinstance(tree.args.get("this"), exp.Query):
        tree = tree.this
    places: dict[str, list[Location]] = {}
    for item in tree.expressions if isinstance(tree, exp.Select) else ():
        if item.alias_or_name:
            places.setdefault(folded(item.alias_or_name), []).append(query.location(item))
    return places


class Lowering:
    """Lowers the queries of one text."""

    def __init__(self, query: QueryText, catalog: TableCatalog, lookup_miss: LookupMiss) -> None:
        names = NameAllocator()
        joins = JoinBuilder(names, catalog)
        self.context = Context(query, catalog, names, joins, lookup_miss, Selects(), self.lower)

    def lower(self, query: exp.Expr, environment: Environment) -> Lowered:
        """A query: SELECT, set operation, with common table expressions before it."""
        if query.args.get("with_") is not None:
            tables = self.common_tables(query.args["with_"], environment.tables)
            environment = Environment(tables, environment.outer, environment.domain, environment.use)
        if isinstance(query, exp.Select):
            return lower_select(query, self.context, environment)
        for option in ("limit", "offset"):
            if query.args.get(option):
                raise NotIncremental(f"{option.upper()} keeps only some of the rows")
        if isinstance(query, exp.SetOperation):
            return lower_set_operation(query, self.context, environment)
        if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
            return self.lower(query.this, environment)
        raise NotIncremental("this form of query is not incremental")

    def common_tables(
        self, clause: exp.With, known: Mapping[str, Lowered | NotIncremental]
    ) -> dict[str, Lowered | NotIncremental]:
        """The tables of a WITH clause; each may read those before it."""
        tables = dict(known)
        for table in clause.expressions:
            name = folded(table.alias)
            if clause.args.get("recursive"):
                tables[name] = NotIncremental("a recursive query is not incremental")
                continue
            try:
                tables[name] = self._renamed(self.lower(table.this, Environment(dict(tables))), table)
            except NotIncremental as failure:
                tables[name] = failure
        return tables

    def _renamed(self, lowered: Lowered, table: exp.CTE) -> Lowered:
        names = [item.name for item in table.args["alias"].args.get("columns") or ()]
        if not names:
            return lowered
        if len(names) != len(lowered.fields):
            raise FlowError(
                f"'{table.alias}' names {len(names)} columns, but its query has {len(lowered.fields)}",
                where=self.context.query.location(table),
            )
        fields = tuple(Field(name, item.column) for name, item in zip(names, lowered.fields, strict=True))
        return Lowered(lowered.node, fields)
