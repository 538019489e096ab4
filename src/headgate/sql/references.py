"""The tables that a query's text names, and their replacement without touching anything else.

SELECT purchases.x FROM shop.purchases   ->   SELECT purchases.x FROM view_7 AS purchases
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from headgate.errors import DefiniteError, Location
from headgate.sql.functions import context_function, may_name_an_instant
from headgate.sql.hidden_columns import HiddenColumns, HiddenOf
from headgate.sql.names import folded, quoted
from headgate.sql.picks import Picks, picks_of
from headgate.sql.positions import QueryText

Replacement = tuple[int, int, str]
"""text[start:end] becomes another text."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table in a FROM clause: `name` as catalogs spell it, text[start:end] is what the user wrote."""

    name: str
    start: int
    end: int
    alias: str | None
    called: str
    """The last part of the name."""
    alias_at: int
    """Where an alias goes if the text has none."""
    hidden: tuple[str, ...] = ()
    """The hidden columns of the table that the query names here."""


@dataclass(frozen=True, slots=True)
class Qualifier:
    """`source.` before `table.column`: text[start:end]; `table` is the folded name of both parts."""

    table: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after replacements in the source, which are in order."""

    source: str
    text: str
    edits: tuple[Replacement, ...]

    def origin(self, place: int) -> int:
        """Where a place of the text stands in the source; inside a replacement, where that begins."""
        moved = 0
        for start, end, replacement in self.edits:
            begins = start + moved
            if place < begins:
                break
            if place < begins + len(replacement):
                return start
            moved += len(replacement) - (end - start)
        return place - moved


@dataclass(frozen=True, slots=True)
class TableText:
    """A query's text and where it names tables; names of common table expressions are none."""

    text: str
    references: tuple[TableReference, ...]
    qualifiers: tuple[Qualifier, ...] = ()
    stars: tuple[Replacement, ...] = ()
    """What keeps the hidden columns that the query names out of its stars."""
    is_repeatable: bool = False
    """Whether the query has the same rows whenever it is run over the same tables."""
    picks: Picks | None = None
    """What the query picks of its one table, if it does nothing else."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Each table once, in the order of the text."""
        return tuple(dict.fromkeys(reference.name for reference in self.references))

    def replaced(self, relation: Callable[[TableReference], str | None]) -> Edited:
        """The text over other relations; a table without one stays."""
        edits = list(self.stars)
        unaliased: set[str] = set()
        for reference in self.references:
            found = relation(reference)
            if found is None:
                continue
            edits.append((reference.start, reference.end, found))
            if reference.alias is None:
                edits.append((reference.alias_at, reference.alias_at, f" AS {quoted(reference.called)}"))
                unaliased.add(folded(reference.name))
        # The replaced table has an alias of one part, so `source.table.column` loses its first.
        edits += [(item.start, item.end, "") for item in self.qualifiers if item.table in unaliased]
        edits.sort(key=lambda edit: edit[:2])
        pieces, position = [], 0
        for start, end, replacement in edits:
            pieces += [self.text[position:start], replacement]
            position = end
        return Edited(self.text, "".join([*pieces, self.text[position:]]), tuple(edits))


def read_tables(text: str, where: Location, hidden: HiddenOf = lambda _: ()) -> TableText:
    """The query's tables; a DefiniteError with its place for a text that is not one query that the parser can read.

    `hidden` gives the hidden columns of a table.
    """
    return tables_of_query(QueryText(text, where), hidden)


def tables_of_query(query: QueryText, hidden: HiddenOf = lambda _: ()) -> TableText:
    """The tables of a query that may be parsed already."""
    text, tree = query.text, _parsed(query)
    tables = tables_in(tree)
    columns = HiddenColumns(query, tree, tables, hidden)
    stars = tuple(
        (query.tokens[edit.first].start, query.tokens[edit.last].end + 1, edit.text) for edit in columns.edits()
    )
    repeatable = not may_name_an_instant(text) and not any(
        isinstance(node, exp.TableSample) or context_function(node) is not None for node in tree.walk()
    )
    references = tuple(_reference(query, table, columns.of(table)) for table in tables)
    return TableText(text, references, tuple(_qualifiers(query, tree)), stars, repeatable, picks_of(tree, text))


def replace_tables(text: str, mapping: Mapping[str, str]) -> str:
    """The text with tables replaced; those that the mapping does not have stay. Names compare without case."""
    relations = {folded(name): relation for name, relation in mapping.items()}
    return read_tables(text, Location("query")).replaced(lambda table: relations.get(folded(table.name))).text


def _qualifiers(query: QueryText, tree: exp.Expr) -> Iterator[Qualifier]:
    for column in tree.walk(prune=lambda node: isinstance(node, exp.Hint)):
        parts = column.parts if isinstance(column, exp.Column) else ()
        if len(parts) >= 3:
            first = query.tokens[query.identifier_span(parts[0])[0]]
            second = query.tokens[query.identifier_span(parts[1])[0]]
            yield Qualifier(".".join(folded(part.name) for part in parts[:2]), first.start, second.start)


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


def _reference(query: QueryText, table: exp.Table, hidden: tuple[str, ...]) -> TableReference:
    first = query.tokens[query.identifier_span(table.parts[0])[0]]
    last = query.tokens[query.identifier_span(table.parts[-1])[1]]
    name = ".".join(part.name for part in table.parts)
    end = last.end + 1
    alias_at = query.tokens[query.span(table)[1]].end + 1 if table.args.get("sample") else end
    return TableReference(name, first.start, end, table.alias or None, table.name, alias_at, hidden)


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
    """Tables below a node; `hidden` are the common table expressions in sight. What a hint names is no table."""
    if isinstance(node, exp.Hint):
        return
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
