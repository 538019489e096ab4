"""Hidden columns in a query: those that it names are there, and no star stands for them.

    SELECT *, __sk FROM dim d    ->    SELECT * EXCEPT (`d`.`__sk`), __sk FROM view_7 AS d        view_7: dim's columns and __sk

A name belongs to the tables of the innermost SELECT that have such a column, as Spark resolves it. A table that a name does
not concern stays without the column, so that a NATURAL JOIN does not compare it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headgate.errors import DefiniteError
from headgate.sql.names import folded, quoted
from headgate.sql.positions import Edit, QueryText

HiddenOf = Callable[[str], Collection[str]]
"""A table's hidden columns by its name."""


@dataclass(eq=False)
class _FromTable:
    """A table in a FROM clause."""

    alias: str
    hidden: dict[str, str]
    """The columns that can be named here, by their folded names."""
    is_shown: bool
    """Whether an unqualified star stands for its columns as well."""
    named: set[str] = field(default_factory=set)

    def columns(self) -> list[str]:
        """The hidden columns that the query names, in the table's order."""
        return [column for name, column in self.hidden.items() if name in self.named]


class HiddenColumns:
    """The hidden columns that one query names."""

    def __init__(self, query: QueryText, tree: exp.Expr, tables: Sequence[exp.Table], hidden: HiddenOf) -> None:
        self._query = query
        self._tree = tree
        self._places: dict[int, _FromTable] = {}
        self._selects: dict[int, list[_FromTable]] = {}
        self._merged: dict[int, set[str]] = {}
        """Columns of USING by SELECT: an unqualified star has one for both sides."""
        for table in tables:
            name = ".".join(part.name for part in table.parts)
            place = _place(table, {} if _is_renamed(table) else {folded(column): column for column in hidden(name)})
            self._places[id(table)] = place
            self._selects.setdefault(id(table.find_ancestor(exp.Select)), []).append(place)
        if any(place.hidden for place in self._places.values()):
            self._resolve()

    def of(self, table: exp.Table) -> tuple[str, ...]:
        """The hidden columns that the query names of this table, in the table's order."""
        place = self._places.get(id(table))
        return () if place is None else tuple(place.columns())

    def edits(self) -> Iterator[Edit]:
        """What keeps these columns out of every star of the text."""
        if any(place.named for place in self._places.values()):
            for star in self._tree.find_all(exp.Star):
                yield from self.star_edits(star)

    def star_edits(self, star: exp.Star) -> Iterator[Edit]:
        """What keeps these columns out of one star: one edit, or none."""
        names = self._left_out(star)
        if names:
            first, listed = self._query.span(star)[0], ", ".join(names)
            if star.args.get("except_"):
                # * EXCEPT ( …
                yield Edit(first, first + 2, f"* EXCEPT ({listed}, ")
            else:
                yield Edit(first, first, f"* EXCEPT ({listed})")

    def _resolve(self) -> None:
        for column in self._tree.find_all(exp.Column):
            self._name(column, column.name, column.table)
        for join in self._tree.find_all(exp.Join):
            for identifier in join.args.get("using") or ():
                self._name(join, identifier.name, "")
                self._merged.setdefault(id(join.find_ancestor(exp.Select)), set()).add(folded(identifier.name))
            if join.args.get("method") == "NATURAL":
                self._refuse_compared(join)

    def _name(self, node: exp.Expr, name: str, qualifier: str) -> None:
        select = node.find_ancestor(exp.Select)
        while select is not None:
            found = [
                place
                for place in self._selects.get(id(select), ())
                if folded(name) in place.hidden and (not qualifier or folded(qualifier) == folded(place.alias))
            ]
            for place in found:
                place.named.add(folded(name))
            select = None if found else select.find_ancestor(exp.Select)

    def _refuse_compared(self, join: exp.Expr) -> None:
        places = self._selects.get(id(join.find_ancestor(exp.Select)), [])
        for name in {name for place in places for name in place.named}:
            if sum(name in place.named for place in places) > 1:
                raise DefiniteError(
                    f"a NATURAL JOIN would compare the hidden column {name}",
                    where=self._query.location(join),
                    hint="write JOIN … USING (…) with the columns that are to be equal",
                )

    def _left_out(self, star: exp.Star) -> list[str]:
        parent = star.parent
        if isinstance(parent, exp.Anonymous) and folded(parent.name) == "count" and len(parent.expressions) == 1:
            # COUNT(*) counts rows, whatever their columns.
            return []
        select = star.find_ancestor(exp.Select)
        places = self._selects.get(id(select), [])
        if isinstance(parent, exp.Column):
            places = [place for place in places if folded(place.alias) == folded(parent.table)]
            merged: set[str] = set()
        else:
            places = [place for place in places if place.is_shown]
            merged = self._merged.get(id(select), set())
        known = {folded(column.name) for column in star.args.get("except_") or ()}
        names = {
            quoted(name) if folded(name) in merged else f"{quoted(place.alias)}.{quoted(name)}": None
            for place in places
            for name in place.columns()
            if folded(name) not in known
        }
        return list(names)


def _place(table: exp.Table, hidden: dict[str, str]) -> _FromTable:
    alias, is_shown = table.alias_or_name, not table.args.get("pivots")
    node: exp.Expr | None = table.parent
    while node is not None and not isinstance(node, exp.Select):
        if isinstance(node, exp.Subquery) and node.alias:
            alias = node.alias
        if isinstance(node, exp.Join) and node.kind in ("SEMI", "ANTI"):
            is_shown = False
        node = node.parent
    return _FromTable(alias, hidden, is_shown)


def _is_renamed(table: exp.Table) -> bool:
    """`dim AS d(a, b)` gives every column another name."""
    alias = table.args.get("alias")
    return isinstance(alias, exp.TableAlias) and bool(alias.columns)
