"""What the columns of a query refer to: each column's type, by the tables, subqueries and expressions that its place can see.

WITH c AS (SELECT qty AS q FROM sales) SELECT q / 2 FROM c       q ─▶ c ─▶ qty ─▶ the warehouse's column, an int
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, ScopeType

TYPES = exp.DataType.Type
ColumnType = Callable[[str, str], str | None]
"""The Spark type of a table's column."""
Annotate = Callable[[exp.Expr], exp.Expr]


class ScopedColumns:
    """Finds the types of columns; the subqueries that a scope reads must have their types already."""

    def __init__(self, column_type: ColumnType, table_name: Callable[[exp.Table], str], annotate: Annotate) -> None:
        self._column_type = column_type
        self._table_name = table_name
        self._annotate = annotate

    def find(self, scope: Scope, column: exp.Column) -> exp.DataType | None:
        """The type of a column in a scope, or in one around it that it may refer to; None if it cannot be told."""
        around: Scope | None = scope
        while around is not None:
            kinds = list(self._kinds(around, column))
            if kinds:
                return kinds[0] if all(kind == kinds[0] for kind in kinds) else None
            sees_outside = around.scope_type in (ScopeType.SUBQUERY, ScopeType.SET_OPERATION, ScopeType.UDTF)
            around = around.parent if sees_outside or _is_lateral(around) else None
        return None

    def is_absent(self, scope: Scope) -> bool:
        """Whether a column that was not found is none: a scope reads nothing but the warehouse's tables."""
        return all(
            isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not source.alias_column_names
            for source in scope.sources.values()
        )

    def _kinds(self, scope: Scope, column: exp.Column) -> Iterator[exp.DataType]:
        wanted = column.table
        for name, source in {**scope.lateral_sources, **scope.sources}.items():
            if wanted and wanted != name:
                continue
            if not wanted and name not in scope.selected_sources and name not in scope.lateral_sources:
                continue
            kind = self._of_source(source, column.name)
            if kind is not None:
                yield kind

    def _of_source(self, source: exp.Expr | Scope, name: str) -> exp.DataType | None:
        if isinstance(source, Scope):
            return self._of_scope(source, name)
        if not isinstance(source, exp.Table):
            return None
        if isinstance(source.this, exp.GenerateSeries):
            listed = source.alias_column_names or [source.alias_or_name or "generate_series"]
            return _known(self._annotate(source.this).type) if name == listed[0] else None
        if source.alias_column_names or not isinstance(source.this, exp.Identifier):
            return None
        found = self._column_type(self._table_name(source), name)
        return None if found is None else exp.DataType.build(found, dialect="spark")

    def _of_scope(self, scope: Scope, name: str) -> exp.DataType | None:
        """The type of a column of a subquery, a common table expression, VALUES or unnest."""
        query = scope.expression
        if isinstance(query, exp.Lateral):
            inner = next((each for each in scope.subquery_scopes if each.expression is query.this.unnest()), None)
            return None if inner is None else self._of_scope(inner, name)
        if isinstance(query, exp.Values):
            return _of_values(query, scope.outer_columns, name)
        if isinstance(query, exp.Unnest):
            listed = query.alias_column_names or [query.alias or "unnest"]
            kind = query.expressions[0].type if len(query.expressions) == 1 and name in listed else None
            return None if kind is None else _element(kind)
        return self._of_query(scope, scope.outer_columns or _outer_names(query), name)

    def _of_query(self, scope: Scope, outer: list[str], name: str) -> exp.DataType | None:
        query = scope.expression
        if isinstance(query, exp.SetOperation):
            sides = scope.set_operation_scopes
            if len(sides) != 2:
                return None
            names = [*outer, *_names(query)[len(outer) :]]
            left = self._of_query(sides[0], names, name)
            if left is None or not _is_typed(sides[1].expression):
                return left  # the recursive side of a common table expression has the type of the other
            right = self._of_query(sides[1], names, name)
            return None if right is None else _common(left, right)
        if not isinstance(query, exp.Select):
            return None
        has_star = any(each.is_star for each in query.selects)
        if outer or not has_star:
            # A list may name the first columns only.
            names = [*outer, *_names(query)[len(outer) :]]
            place = names.index(name) if name in names and not (outer and has_star) else -1
            return _known(query.selects[place].type) if 0 <= place < len(query.selects) else None
        named = [each for each in query.selects if not each.is_star and each.alias_or_name == name]
        return _known(named[0].type) if named else self.find(scope, exp.column(name))


def _is_lateral(scope: Scope) -> bool:
    return isinstance(scope.expression.find_ancestor(exp.Lateral, exp.Select), exp.Lateral)


def _outer_names(query: exp.Expr) -> list[str]:
    """The columns that a recursive common table expression names: of its first side, which the other reads."""
    around = query.parent
    while isinstance(around, exp.SetOperation | exp.Subquery | exp.Paren):
        around = around.parent
    return list(around.alias_column_names) if isinstance(around, exp.CTE) else []


def _is_typed(query: exp.Expr) -> bool:
    first = query.find(exp.Select)
    return first is not None and all(each.type is not None for each in first.selects)


def _names(query: exp.Expr) -> list[str]:
    return [str(each) for each in getattr(query, "named_selects", ())]


def _of_values(values: exp.Values, outer: list[str], name: str) -> exp.DataType | None:
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
    names = values.alias_column_names or outer or [f"column{place + 1}" for place in range(len(rows[0]))]
    if name not in names:
        return None
    kinds = [row[names.index(name)].type for row in rows if len(row) > names.index(name)]
    found: exp.DataType | None = None
    for kind in kinds:
        if kind is None or kind.this == TYPES.UNKNOWN:
            return None
        if kind.this != TYPES.NULL:
            found = kind if found is None else _common(found, kind)
            if found is None:
                return None
    return found


def _element(kind: exp.DataType) -> exp.DataType | None:
    return _known(kind.expressions[0]) if kind.this == TYPES.ARRAY and kind.expressions else None


def _known(kind: exp.DataType | None) -> exp.DataType | None:
    return None if kind is None or kind.this in (TYPES.UNKNOWN, TYPES.NULL) else kind


_NUMBERS = (TYPES.TINYINT, TYPES.SMALLINT, TYPES.INT, TYPES.BIGINT, TYPES.DECIMAL, TYPES.FLOAT, TYPES.DOUBLE)


def _common(left: exp.DataType, right: exp.DataType) -> exp.DataType | None:
    """The type of values of both; of numbers the wider."""
    if left.this == right.this:
        return left
    if left.this in exp.DataType.TEXT_TYPES and right.this in exp.DataType.TEXT_TYPES:
        return left
    if left.this in _NUMBERS and right.this in _NUMBERS:
        return max(left, right, key=lambda kind: _NUMBERS.index(kind.this))
    return None
