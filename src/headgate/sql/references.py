"""Table references in a query's text, and their replacement without touching anything else.

SELECT purchases.x FROM shop.purchases   ->   SELECT purchases.x FROM view_7 AS purchases
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from headgate.errors import DefiniteError, Location
from headgate.sql.functions import context_function
from headgate.sql.hidden_columns import HiddenColumns, HiddenOf
from headgate.sql.names import folded, quoted
from headgate.sql.positions import QueryText


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table in a FROM clause: `name` as catalogs spell it, text[start:end] is what the user wrote."""

    name: str
    start: int
    end: int
    alias: str | None


def table_references(text: str, where: Location) -> list[TableReference]:
    """The tables that a query reads, in the order of the text; names of common table expressions are none."""
    query = QueryText(text, where)
    return [_reference(query, table) for table in tables_in(_parsed(query))]


@lru_cache(maxsize=512)
def is_repeatable(text: str) -> bool:
    """Whether the query has the same rows whenever it is run over the same tables."""
    tree = _parsed(QueryText(text, Location("query")))
    return not any(isinstance(node, exp.TableSample) or context_function(node) is not None for node in tree.walk())


def replace_tables(text: str, mapping: Mapping[str, str]) -> str:
    """The text with tables replaced; those that the mapping does not have stay. Names compare without case."""
    replacements = {folded(name): relation for name, relation in mapping.items()}
    return bind_tables(text, lambda name, _: replacements.get(folded(name)), lambda _: ())


def bind_tables(text: str, relation: Callable[[str, tuple[str, ...]], str | None], hidden: HiddenOf) -> str:
    """The text over other relations, given each table's name and the hidden columns that the query names of it.

    Stars stand for the columns that are not hidden. A table without a relation stays.
    """
    query = QueryText(text, Location("query"))
    tree = _parsed(query)
    tables = tables_in(tree)
    columns = HiddenColumns(query, tree, tables, hidden)
    edits: list[tuple[int, int, str]] = []
    unaliased: set[tuple[str, ...]] = set()
    for table in tables:
        reference = _reference(query, table)
        found = relation(reference.name, columns.of(table))
        if found is None:
            continue
        edits.append((reference.start, reference.end, found))
        if reference.alias is None:
            end = query.tokens[query.span(table)[1]].end + 1 if table.args.get("sample") else reference.end
            edits.append((end, end, f" AS {quoted(table.name)}"))
            unaliased.add(tuple(folded(part.name) for part in table.parts))
    edits.extend(_shortened(query, tree, unaliased))
    edits.extend(
        (query.tokens[edit.first].start, query.tokens[edit.last].end + 1, edit.text) for edit in columns.edits()
    )
    result = text
    for start, end, replacement in sorted(edits, reverse=True):
        result = result[:start] + replacement + result[end:]
    return result


def _shortened(query: QueryText, tree: exp.Expr, unaliased: set[tuple[str, ...]]) -> Iterator[tuple[int, int, str]]:
    """`source.table.column` loses its first part, as the replaced table has an alias of one part."""
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if len(parts) >= 3 and tuple(folded(part.name) for part in parts[:2]) in unaliased:
            first = query.tokens[query.identifier_span(parts[0])[0]]
            second = query.tokens[query.identifier_span(parts[1])[0]]
            yield first.start, second.start, ""


def _parsed(query: QueryText) -> exp.Expr:
    tree = query.parse()
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise DefiniteError(
            "only a query can be run here", where=query.where, hint="write one SELECT, WITH … SELECT or VALUES"
        )
    for node in tree.walk():
        if isinstance(node, (exp.DML, exp.DDL, exp.Command)) and not isinstance(node, exp.Query):
            raise DefiniteError("a query cannot change data", where=query.where, hint="write a SELECT")
    if tree.find(exp.Into) is not None:
        raise DefiniteError("SELECT INTO is not a query", where=query.where, hint="write a SELECT")
    return tree


def _reference(query: QueryText, table: exp.Table) -> TableReference:
    first = query.tokens[query.identifier_span(table.parts[0])[0]]
    last = query.tokens[query.identifier_span(table.parts[-1])[1]]
    name = ".".join(part.name for part in table.parts)
    return TableReference(name, first.start, last.end + 1, table.alias or None)


def tables_in(tree: exp.Expr) -> list[exp.Table]:
    """The tables that a parsed query reads, in the order of the text; names of common table expressions are none."""
    found = list(_visit(tree, frozenset()))
    return sorted(found, key=lambda table: int(table.parts[0].meta["start"]))


def _is_hidden(table: exp.Table, hidden: frozenset[str]) -> bool:
    """Whether this is a common table expression or a function, not a table."""
    if not all(isinstance(part, exp.Identifier) for part in table.parts):
        return True
    return len(table.parts) == 1 and folded(table.name) in hidden


def _visit(node: exp.Expr, hidden: frozenset[str]) -> Iterator[exp.Table]:
    """Tables below a node; `hidden` are the common table expressions in sight."""
    clause = node.args.get("with_")
    if isinstance(clause, exp.With):
        for definition in clause.expressions:
            name = folded(definition.alias)
            inside = hidden | {name} if clause.args.get("recursive") else hidden
            yield from _visit(definition.this, inside)
            hidden = hidden | {name}
    if isinstance(node, exp.Table) and not _is_hidden(node, hidden):
        yield node
    for child in node.iter_expressions():
        if child is not clause:
            yield from _visit(child, hidden)
