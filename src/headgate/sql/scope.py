"""Names a query can see: relations, their columns, and the queries around it.

Spark's rules: `a.b.c` is tried as database.table.column, then table.column.field, then column.field.field; a query's
own relations come before those of the query around it; a column joined by USING is one column when it is not qualified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from headgate.dataflow.graph import Node
from headgate.errors import FlowError, Location
from headgate.sql.names import did_you_mean, folded


class TableCatalog(Protocol):
    """What the lowering asks about tables; names are compared without case."""

    def columns(self, table: str) -> tuple[str, ...] | None:
        """The visible columns (what `*` means), None for no such table."""

    def hidden(self, table: str) -> tuple[str, ...]:
        """Columns that can be named but are not in `*`."""

    def key(self, table: str) -> tuple[str, ...] | None:
        """The key; of an SCD-2 table the key of its members, not of their versions."""

    def is_versioned(self, table: str) -> bool:
        """Whether the table keeps versions of its members (SCD type 2)."""

    def is_fragment(self, table: str) -> bool:
        """Whether the table is a flow that is not incremental itself."""

    def names(self) -> tuple[str, ...]:
        """All table names, for hints."""


def spelled(table: str, catalog: TableCatalog) -> str:
    """The table's name as its catalog spells it."""
    return next((name for name in catalog.names() if folded(name) == folded(table)), table)


class NotIncremental(Exception):
    """A part of the query cannot be kept incrementally; `context`: as it asks for the time, chance or the user."""

    def __init__(self, reason: str, *, context: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.context = context


@dataclass(frozen=True, slots=True)
class Field:
    """A column as the user names it and as the graph does."""

    name: str
    column: str


@dataclass(frozen=True, slots=True)
class ScopedRelation:
    """One thing of a FROM clause: its qualifiers (folded) and its columns."""

    qualifier: tuple[str, ...]
    fields: tuple[Field, ...]
    hidden: tuple[Field, ...] = ()
    merged: frozenset[str] = frozenset()
    """Columns (folded) that USING made part of a shared one: visible only when qualified."""

    def find(self, name: str) -> list[Field]:
        return [item for item in self.fields + self.hidden if folded(item.name) == name]


@dataclass(frozen=True, slots=True)
class Found:
    """A resolved reference: the column, how many parts of the name it took, how many queries further out it stands."""

    field: Field
    parts: int
    depth: int


@dataclass(frozen=True)
class Scope:
    """The relations of one query."""

    relations: tuple[ScopedRelation, ...] = ()
    shared: tuple[Field, ...] = ()
    """Columns that USING or NATURAL joined."""
    outer: Scope | None = None

    def find(self, parts: tuple[str, ...], where: Location) -> Found | None:
        """The column that a name means, None if there is none; more than one is an error."""
        names = tuple(folded(part) for part in parts)
        for length in (2, 1, 0):
            candidates = self._candidates(names, length)
            if len(candidates) > 1:
                places = ", ".join(
                    sorted(".".join(relation.qualifier) for relation in self.relations if relation.find(names[length]))
                )
                raise FlowError(
                    f"column '{'.'.join(parts)}' is ambiguous: it is in {places}",
                    where=where,
                    hint="put the table's name before it",
                )
            if candidates:
                return Found(candidates[0], length + 1, 0)
        if self.outer is not None:
            found = self.outer.find(parts, where)
            return None if found is None else replace(found, depth=found.depth + 1)
        return None

    def _candidates(self, names: tuple[str, ...], length: int) -> list[Field]:
        if len(names) <= length:
            return []
        name = names[length]
        if length == 0:
            shared = [item for item in self.shared if folded(item.name) == name]
            if shared:
                return shared
            return [item for relation in self.relations if name not in relation.merged for item in relation.find(name)]
        return [
            item
            for relation in self.relations
            if relation.qualifier[-length:] == names[:length]
            for item in relation.find(name)
        ]

    def unknown(self, parts: tuple[str, ...], where: Location) -> FlowError:
        """The error for a name that means nothing here."""
        qualifier = tuple(folded(part) for part in parts[:-1])
        if qualifier:
            known = [relation for relation in self.relations if relation.qualifier[-len(qualifier) :] == qualifier]
            if not known:
                tables = [".".join(relation.qualifier) for relation in self.relations]
                return FlowError(
                    f"unknown column '{'.'.join(parts)}': the query has no table or column '{parts[0]}'",
                    where=where,
                    hint=did_you_mean(parts[0], tables),
                )
        else:
            known = list(self.relations)
        names = [item.name for relation in known for item in relation.fields + relation.hidden]
        return FlowError(f"unknown column '{'.'.join(parts)}'", where=where, hint=did_you_mean(parts[-1], names))

    def star(self, qualifier: tuple[str, ...] = ()) -> tuple[Field, ...] | None:
        """What `*` or `qualifier.*` expands to; None for an unknown qualifier."""
        if not qualifier:
            own = tuple(
                item
                for relation in self.relations
                for item in relation.fields
                if folded(item.name) not in relation.merged
            )
            return self.shared + own
        wanted = tuple(folded(part) for part in qualifier)
        for relation in self.relations:
            if relation.qualifier[-len(wanted) :] == wanted:
                return relation.fields
        return None

    def renamed(self, columns: Mapping[str, str]) -> Scope:
        """The same names over other graph columns."""

        def change(items: tuple[Field, ...]) -> tuple[Field, ...]:
            return tuple(Field(item.name, columns.get(item.column, item.column)) for item in items)

        relations = tuple(
            replace(relation, fields=change(relation.fields), hidden=change(relation.hidden))
            for relation in self.relations
        )
        outer = None if self.outer is None else self.outer.renamed(columns)
        return Scope(relations, change(self.shared), outer)


@dataclass(frozen=True)
class Lowered:
    """A query as a graph: its output columns in order."""

    node: Node
    fields: tuple[Field, ...]
    carried: tuple[str, ...] = ()
    """More columns of the node, by which a correlated subquery is joined to the query around it."""


@dataclass
class OuterUse:
    """Columns of the queries around a subquery that it uses; `elsewhere`: not only in conditions of its WHERE."""

    columns: set[str] = field(default_factory=set)
    elsewhere: bool = False


@dataclass(frozen=True)
class Environment:
    """What surrounds a query: common table expressions, the outer scope, and who records the use of outer columns."""

    tables: Mapping[str, Lowered | NotIncremental] = field(default_factory=dict)
    """Common table expressions, or why one is not incremental."""
    outer: Scope | None = None
    domain: Lowered | None = None
    """Rows of outer columns that the subquery is joined with, where conditions alone cannot connect the two."""
    use: OuterUse = field(default_factory=OuterUse)
