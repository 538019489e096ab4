"""Queries over placed tables as PostgreSQL's: a query translates if each of its parts means the same there as in Spark.

    SELECT, FROM with tables, subqueries and joins with ON, WHERE, GROUP BY, HAVING, DISTINCT, ORDER BY, LIMIT, UNION ALL, WITH

Every name is resolved and every type is known here, so nothing is left to the other side's own rules of conversion. NULLs are
ordered as Spark orders them, texts by their bytes. Whatever else a query says, Spark answers it; `NotTranslated` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import DataType, StructField, StructType
from sqlglot import exp

from headgate.serving.expressions import Expressions, NotTranslated, TypedSql, is_float, said
from headgate.serving.placed import PlacedTable
from headgate.sql.names import folded

_JOINS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
}
_SELECT = {
    *("expressions", "from_", "joins", "where", "group", "having"),
    *("distinct", "order", "limit", "offset", "with_", "kind", "operation_modifiers"),
}


@dataclass(frozen=True)
class Translated:
    """A query's text there, and the columns of its answer."""

    sql: str
    schema: StructType
    is_limited: bool
    """Whether it says itself how many rows it has at most."""
    is_ordered: bool


@dataclass(frozen=True)
class FromRelation:
    """Something in FROM: its columns by folded name, each as SQL with its type, in order; a name that is there twice is None."""

    columns: Sequence[tuple[str, TypedSql]]

    def find(self, name: str) -> TypedSql | None:
        found = [typed for known, typed in self.columns if folded(known) == folded(name)]
        if len(found) > 1:
            raise NotTranslated(f"{name} is ambiguous")
        return found[0] if found else None


@dataclass
class SelectScope:
    """The relations of one SELECT by their folded aliases, in order."""

    relations: dict[str, FromRelation] = field(default_factory=dict)

    def add(self, alias: str, relation: FromRelation) -> None:
        if folded(alias) in self.relations:
            raise NotTranslated(f"two relations are called {alias}")
        self.relations[folded(alias)] = relation

    def column(self, node: exp.Column) -> TypedSql:
        if node.args.get("db") or node.args.get("catalog") or not isinstance(node.this, exp.Identifier):
            raise NotTranslated(f"the name {node.sql('spark')}")
        found = self.find(node.name, node.table)
        if found is None:
            raise NotTranslated(f"the name {node.sql('spark')}")
        return found

    def find(self, name: str, qualifier: str = "") -> TypedSql | None:
        if qualifier:
            relation = self.relations.get(folded(qualifier))
            return None if relation is None else relation.find(name)
        found = [typed for relation in self.relations.values() if (typed := relation.find(name)) is not None]
        if len(found) > 1:
            raise NotTranslated(f"{name} is ambiguous")
        return found[0] if found else None


@dataclass
class _Subquery:
    """A translated query: its text, and the names and types of its columns."""

    sql: str
    columns: list[tuple[str, DataType]]
    is_limited: bool = False
    is_ordered: bool = False


def translate(
    tree: exp.Expr,
    tables: Mapping[str, PlacedTable],
    schema: str,
    literal: Callable[[exp.Literal], str] | None = None,
) -> Translated:
    """The query's text there; `tables` are those that it names, by folded names. `literal` writes a plain value."""
    made = _Translator(tables, schema, literal).query(tree, {})
    return Translated(
        made.sql, StructType([StructField(name, kind) for name, kind in made.columns]), made.is_limited, made.is_ordered
    )


class _Translator:
    def __init__(
        self, tables: Mapping[str, PlacedTable], schema: str, literal: Callable[[exp.Literal], str] | None
    ) -> None:
        self._tables = tables
        self._schema = schema
        self._literal = literal
        self._aliases = 0

    def query(self, node: exp.Expr, names: Mapping[str, _Subquery]) -> _Subquery:
        """`names` are the common table expressions in sight."""
        clause = node.args.get("with_")
        if clause is not None:
            if clause.args.get("recursive"):
                raise NotTranslated("WITH RECURSIVE")
            names = dict(names)
            for definition in clause.expressions:
                if definition.args.get("alias") is not None and definition.args["alias"].columns:
                    raise NotTranslated("WITH that renames columns")
                names[folded(definition.alias)] = self.query(definition.this, names)
        if isinstance(node, exp.Subquery) and said(node) <= {"this"}:
            return self.query(node.this, names)
        if isinstance(node, exp.Union) and not node.args.get("distinct"):
            return self._union(node, names)
        if isinstance(node, exp.Select):
            return self._select(node, names)
        raise NotTranslated(f"a query with {node.key.upper()}")

    def _union(self, node: exp.Union, names: Mapping[str, _Subquery]) -> _Subquery:
        if not said(node) <= {"this", "expression", "with_"}:
            raise NotTranslated("clauses behind UNION ALL")
        left, right = self.query(node.this, names), self.query(node.expression, names)
        if [kind for _, kind in left.columns] != [kind for _, kind in right.columns]:
            raise NotTranslated("UNION ALL of other types")
        return _Subquery(f"({left.sql}) UNION ALL ({right.sql})", left.columns)

    def _select(self, node: exp.Select, names: Mapping[str, _Subquery]) -> _Subquery:
        unknown = said(node) - _SELECT
        if unknown or node.args.get("kind") or node.args.get("operation_modifiers"):
            raise NotTranslated(f"{', '.join(sorted(unknown)).rstrip('_').upper() or 'SELECT AS'}")
        scope = SelectScope()
        sources = []
        if node.args.get("from_") is None:
            raise NotTranslated("a SELECT without FROM")
        sources.append(self._relation(node.args["from_"].this, scope, names))
        expressions = Expressions(scope.column, self._literal)
        for join in node.args.get("joins") or ():
            sources.append(self._join(join, scope, names, expressions))
        outputs = self._outputs(node, scope, expressions)
        text = ["SELECT"]
        if node.args.get("distinct") is not None:
            if node.args["distinct"].args.get("on") is not None:
                raise NotTranslated("DISTINCT ON")
            if any(is_float(typed.type) for _, typed in outputs):
                raise NotTranslated("DISTINCT of floating point numbers")
            text.append("DISTINCT")
        text.append(", ".join(typed.sql for _, typed in outputs))
        text.append("FROM " + " ".join(sources))
        if node.args.get("where") is not None:
            text.append("WHERE " + expressions.condition(node.args["where"].this))
        if node.args.get("group") is not None:
            text.append("GROUP BY " + ", ".join(self._groups(node.args["group"], scope, expressions, outputs)))
        aggregates = Expressions(scope.column, self._literal, is_aggregated=True)
        if node.args.get("having") is not None:
            text.append("HAVING " + aggregates.condition(node.args["having"].this))
        if node.args.get("order") is not None:
            text.append("ORDER BY " + ", ".join(self._order(node, scope, outputs)))
        for word in ("limit", "offset"):
            if node.args.get(word) is not None:
                text.append(f"{word.upper()} {_whole(node.args[word].expression, word)}")
        columns = [(name, typed.type) for name, typed in outputs]
        return _Subquery(
            " ".join(text), columns, node.args.get("limit") is not None, node.args.get("order") is not None
        )

    def _relation(self, node: exp.Expr, scope: SelectScope, names: Mapping[str, _Subquery]) -> str:
        if isinstance(node, exp.Table):
            if not said(node) <= {"this", "db", "alias"}:
                raise NotTranslated(f"{', '.join(sorted(said(node) - {'this', 'db', 'alias'})).upper()} of a table")
            name = ".".join(part.name for part in node.parts)
            alias = node.alias_or_name
            self._require_plain(node)
            common = names.get(folded(name)) if len(node.parts) == 1 else None
            if common is not None:
                return self._derived(common, alias, scope)
            table = self._tables.get(folded(name))
            if table is None:
                raise NotTranslated(f"{name}, which is not placed")
            label = self._label()
            columns = [
                (column, TypedSql(f"{label}.{_quoted(column)}", table.schema[column].dataType))
                for column in table.shown
            ]
            scope.add(alias, FromRelation(columns))
            return f"{_quoted(self._schema)}.{_quoted(table.name)} AS {label}"
        if isinstance(node, exp.Subquery) and said(node) <= {"this", "alias"} and node.alias:
            self._require_plain(node)
            return self._derived(self.query(node.this, names), node.alias, scope)
        raise NotTranslated(f"FROM with {node.key.upper()}")

    def _require_plain(self, node: exp.Expr) -> None:
        alias = node.args.get("alias")
        if alias is not None and said(alias) - {"this"}:
            raise NotTranslated("aliases of columns")

    def _derived(self, query: _Subquery, alias: str, scope: SelectScope) -> str:
        label = self._label()
        columns = [
            (name, TypedSql(f"{label}.c{number}", kind)) for number, (name, kind) in enumerate(query.columns, start=1)
        ]
        scope.add(alias, FromRelation(columns))
        listed = ", ".join(f"c{number}" for number in range(1, len(columns) + 1))
        return f"({query.sql}) AS {label}({listed})"

    def _label(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    def _join(
        self, node: exp.Join, scope: SelectScope, names: Mapping[str, _Subquery], expressions: Expressions
    ) -> str:
        kind = (node.args.get("side") or "").upper(), (node.args.get("kind") or "").upper()
        if not said(node) <= {"this", "on", "side", "kind"} or kind not in _JOINS:
            raise NotTranslated("this kind of join")
        relation = self._relation(node.this, scope, names)
        condition = node.args.get("on")
        if condition is None:
            if kind[0]:
                raise NotTranslated("an outer join without ON")
            return f"CROSS JOIN {relation}"
        if _JOINS[kind] == "CROSS JOIN":
            raise NotTranslated("CROSS JOIN with ON")
        return f"{_JOINS[kind]} {relation} ON {expressions.condition(condition)}"

    def _outputs(self, node: exp.Select, scope: SelectScope, expressions: Expressions) -> list[tuple[str, TypedSql]]:
        expressions = Expressions(scope.column, self._literal, is_aggregated=True)
        outputs: list[tuple[str, TypedSql]] = []
        for item in node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                if said(star):
                    raise NotTranslated("* EXCEPT")
                wanted = folded(item.table) if isinstance(item, exp.Column) else None
                if wanted is not None and wanted not in scope.relations:
                    raise NotTranslated(f"the name {item.sql('spark')}")
                for alias, relation in scope.relations.items():
                    if wanted is None or alias == wanted:
                        outputs += relation.columns
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            typed = expressions.value(inner)
            outputs.append((item.alias if isinstance(item, exp.Alias) else _name_of(inner), typed))
        return outputs

    def _groups(
        self, node: exp.Group, scope: SelectScope, expressions: Expressions, outputs: Sequence[tuple[str, TypedSql]]
    ) -> list[str]:
        if said(node) != {"expressions"}:
            raise NotTranslated("GROUP BY with sets of groups")
        found = []
        for item in node.expressions:
            if isinstance(item, exp.Literal):
                typed = _by_number(item, outputs)
            elif isinstance(item, exp.Column) and not item.table and scope.find(item.name) is None:
                typed = _by_name(item.name, outputs)
            else:
                typed = expressions.value(item)
            if is_float(typed.type):
                raise NotTranslated("groups of floating point numbers")
            found.append(typed.sql)
        return found

    def _order(self, node: exp.Select, scope: SelectScope, outputs: Sequence[tuple[str, TypedSql]]) -> list[str]:
        found = []
        plain = node.args.get("distinct") is None and node.args.get("group") is None
        for item in node.args["order"].expressions:
            if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
                raise NotTranslated("ORDER BY of this kind")
            descending = bool(item.args.get("desc"))
            first = item.args.get("nulls_first")
            first = (not descending) if first is None else bool(first)
            key = item.this
            names = [folded(name) for name, _ in outputs]
            if isinstance(key, exp.Literal):
                _by_number(key, outputs)
                text = key.this
            elif isinstance(key, exp.Column) and not key.table and folded(key.name) in names:
                if names.count(folded(key.name)) > 1:
                    raise NotTranslated(f"{key.name} is ambiguous")
                text = str(names.index(folded(key.name)) + 1)
            elif plain:
                text = Expressions(scope.column, self._literal).value(key).sql
            else:
                raise NotTranslated("ORDER BY of something that is not in the answer")
            found.append(f"{text} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}")
        return found


def _by_number(node: exp.Literal, outputs: Sequence[tuple[str, TypedSql]]) -> TypedSql:
    if node.is_string or not node.this.isdigit() or not 1 <= int(node.this) <= len(outputs):
        raise NotTranslated(f"the constant {node.this} as a key")
    return outputs[int(node.this) - 1][1]


def _by_name(name: str, outputs: Sequence[tuple[str, TypedSql]]) -> TypedSql:
    found = [typed for known, typed in outputs if folded(known) == folded(name)]
    if len(found) != 1:
        raise NotTranslated(f"the name {name}")
    return found[0]


def _whole(node: exp.Expr, word: str) -> str:
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        raise NotTranslated(f"{word.upper()} of something that is not a number")
    return str(node.this)


def _name_of(node: exp.Expr) -> str:
    """The name that Spark gives a column of the answer."""
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1:
        function, argument = str(node.this).lower(), node.expressions[0]
        if function == "count" and isinstance(argument, exp.Star):
            return "count(1)"
        if function in ("count", "sum", "min", "max") and isinstance(argument, exp.Column):
            return f"{function}({argument.name})"
    raise NotTranslated("a column without a name: write AS")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
