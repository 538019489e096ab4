"""FROM clauses: tables, derived tables and joins become a join tree and a scope.

FROM a, b JOIN c ON … , d   is   a × (b ⋈ c) × d : a comma binds less than JOIN, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from headgate.dataflow.expression import Column, Expression, joined
from headgate.dataflow.graph import Output, Projection, Scan
from headgate.delta.changes import END_AT, START_AT, SURROGATE_KEY
from headgate.errors import FlowError, UnknownTable
from headgate.sql.context import Context
from headgate.sql.expressions import Renderer, outer_columns, top_subqueries
from headgate.sql.functions import GENERATORS, function_name
from headgate.sql.joins import AsOfLookup, Computed, Inner, Lateral, Leaf, Outer, Tree, tree_columns
from headgate.sql.names import did_you_mean, folded
from headgate.sql.predicates import Predicate, predicates
from headgate.sql.scope import Environment, Field, Lowered, NotIncremental, Scope, ScopedRelation, spelled

_UNSUPPORTED = {"pivots": "PIVOT", "sample": "TABLESAMPLE", "hints": "a table hint"}


@dataclass(frozen=True)
class FromItem:
    """A FROM clause, or a part of it."""

    tree: Tree
    scope: Scope


class UnknownTableInFlow(FlowError, UnknownTable):
    """A flow reads a table that does not exist."""


def lower_from(select: exp.Select, context: Context, environment: Environment) -> FromItem:
    """The rows of a SELECT's FROM clause with its lateral views."""
    return _FromClause(context, environment).lower(select)


def table_name(table: exp.Table) -> str:
    """The name by which catalogs know a table: `source.table`, folded."""
    return ".".join(folded(part.name) for part in table.parts)


class _FromClause:
    def __init__(self, context: Context, environment: Environment) -> None:
        self._context = context
        self._environment = environment
        self._query = context.query

    def lower(self, select: exp.Select) -> FromItem:
        start = select.args.get("from_")
        if start is None:
            raise NotIncremental("a SELECT without FROM reads no table")
        source = self._relation(start.this)
        for join in select.args.get("joins") or ():
            source = self._joined(source, join)
        for lateral in select.args.get("laterals") or ():
            source = self._lateral(source, lateral)
        self._check_qualifiers(source, select)
        return FromItem(source.tree, replace(source.scope, outer=self._environment.outer))

    def _check_qualifiers(self, source: FromItem, select: exp.Select) -> None:
        seen: set[tuple[str, ...]] = set()
        for relation in source.scope.relations:
            if relation.qualifier and relation.qualifier in seen:
                raise FlowError(
                    f"two tables of the query are called '{'.'.join(relation.qualifier)}'",
                    where=self._query.location(select),
                    hint="give one of them an alias",
                )
            seen.add(relation.qualifier)

    def _relation(self, node: exp.Expr) -> FromItem:
        for option, what in _UNSUPPORTED.items():
            if node.args.get(option):
                raise NotIncremental(f"{what} is not incremental")
        if isinstance(node, exp.Table):
            source = self._table(node)
        elif isinstance(node, exp.Subquery):
            source = self._derived(node)
        elif isinstance(node, exp.Lateral):
            raise NotIncremental("a LATERAL subquery is not incremental")
        elif isinstance(node, exp.Values):
            raise NotIncremental("VALUES is not incremental")
        else:
            raise NotIncremental("a table function is not incremental")
        for join in node.args.get("joins") or ():
            source = self._joined(source, join)
        for lateral in node.args.get("laterals") or ():
            source = self._lateral(source, lateral)
        return source

    def _table(self, node: exp.Table) -> FromItem:
        if not isinstance(node.this, exp.Identifier):
            raise NotIncremental("a table function is not incremental")
        name = table_name(node)
        if len(node.parts) == 1 and name in self._environment.tables:
            known = self._environment.tables[name]
            if isinstance(known, NotIncremental):
                raise NotIncremental(known.reason, context=known.context)
            return self._renamed(known, node)
        relation, scan = self._scan(node, name)
        return FromItem(Leaf(scan), Scope((relation,)))

    def _scan(self, node: exp.Table, name: str) -> tuple[ScopedRelation, Scan]:
        catalog = self._context.catalog
        columns = catalog.columns(name)
        if columns is None:
            raise UnknownTableInFlow(
                f"unknown table '{'.'.join(part.name for part in node.parts)}'",
                where=self._query.location(node),
                hint=did_you_mean(name, catalog.names()),
            )
        if catalog.is_fragment(name):
            raise NotIncremental(f"it reads {name}, which is not incremental")
        alias = node.alias or node.name
        visible = tuple(Field(item, self._context.names.fresh(alias, item)) for item in columns)
        hidden = tuple(Field(item, self._context.names.fresh(alias, item)) for item in catalog.hidden(name))
        scan = Scan(spelled(name, catalog), tuple(Output(item.column, Column(item.name)) for item in visible + hidden))
        relation = ScopedRelation(self._qualifier(node), self._aliased(node, visible), hidden)
        return relation, scan

    def _qualifier(self, node: exp.Expr) -> tuple[str, ...]:
        if node.alias:
            return (folded(node.alias),)
        if isinstance(node, exp.Table):
            return tuple(folded(part.name) for part in node.parts)
        return ()

    def _aliased(self, node: exp.Expr, fields: tuple[Field, ...]) -> tuple[Field, ...]:
        """The fields under the names of `AS t (a, b)`."""
        alias = node.args.get("alias")
        names = [item.name for item in alias.args.get("columns") or ()] if alias is not None else []
        if not names:
            return fields
        if len(names) != len(fields):
            raise FlowError(
                f"'{node.alias}' names {len(names)} columns, but there are {len(fields)}",
                where=self._query.location(node),
            )
        return tuple(Field(name, item.column) for name, item in zip(names, fields, strict=True))

    def _renamed(self, lowered: Lowered, node: exp.Expr) -> FromItem:
        """A query's result under its alias, its columns renamed so that it can stand beside itself."""
        alias = node.alias_or_name or "query"
        fields = tuple(Field(item.name, self._context.names.fresh(alias, item.name)) for item in lowered.fields)
        outputs = tuple(
            Output(item.column, Column(old.column)) for item, old in zip(fields, lowered.fields, strict=True)
        )
        relation = ScopedRelation(self._qualifier(node), self._aliased(node, fields))
        return FromItem(Leaf(Projection(lowered.node, outputs)), Scope((relation,)))

    def _derived(self, node: exp.Subquery) -> FromItem:
        inner = node.this
        if isinstance(inner, (exp.Table, exp.Subquery)) and not isinstance(inner, exp.Select):
            source = self._relation(inner)
            return source if not node.alias else self._regrouped(source, node)
        if isinstance(inner, exp.Values):
            raise NotIncremental("VALUES is not incremental")
        return self._renamed(self._context.lower(inner, Environment(self._environment.tables)), node)

    def _regrouped(self, source: FromItem, node: exp.Subquery) -> FromItem:
        fields = source.scope.star() or ()
        return FromItem(source.tree, Scope((ScopedRelation(self._qualifier(node), self._aliased(node, fields)),)))

    def _joined(self, left: FromItem, join: exp.Join) -> FromItem:
        for option in ("hint", "match_condition", "pivots"):
            if join.args.get(option):
                raise NotIncremental("this form of JOIN is not incremental")
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if isinstance(join.this, exp.Table) and join.this.args.get("version"):
            return self._looked_up(left, join, side, kind)
        right = self._relation(join.this)
        if join.args.get("using") or (join.args.get("method") or "").upper() == "NATURAL":
            return self._using(left, right, join, side, kind)
        conditions = self._on(join, left, right)
        if side or kind in ("SEMI", "ANTI"):
            known = tree_columns(left.tree) | tree_columns(right.tree)
            if not all(item.columns <= known for item in conditions):
                raise NotIncremental("a column of the query around in the ON of an outer join is not incremental")
        return _both(left, right, _join_tree(left.tree, right.tree, side, kind, conditions), kind)

    def _on(self, join: exp.Join, left: FromItem, right: FromItem) -> tuple[Predicate, ...]:
        on = join.args.get("on")
        if on is None:
            return ()
        if top_subqueries([on]):
            raise NotIncremental("a subquery in a JOIN's ON is not incremental")
        scope = Scope(left.scope.relations + right.scope.relations, left.scope.shared + right.scope.shared)
        renderer = Renderer(self._query, replace(scope, outer=self._environment.outer), self._environment)
        return tuple(predicates(on, renderer.local))

    def _using(self, left: FromItem, right: FromItem, join: exp.Join, side: str, kind: str) -> FromItem:
        where = self._query.location(join)
        names = [item.name for item in join.args.get("using") or ()]
        if not names:
            known = {folded(item.name) for item in right.scope.star() or ()}
            names = [item.name for item in left.scope.star() or () if folded(item.name) in known]
        pairs: list[tuple[str, Column, Column]] = []
        for name in names:
            sides = []
            for scope in (left.scope, right.scope):
                found = scope.find((name,), where)
                if found is None:
                    raise scope.unknown((name,), where)
                sides.append(Column(found.field.column))
            pairs.append((name, sides[0], sides[1]))
        conditions = tuple(Predicate(Expression(one, " = ", other), (one, other)) for _, one, other in pairs)
        tree = _join_tree(left.tree, right.tree, side, kind, conditions)
        if kind in ("SEMI", "ANTI"):
            return FromItem(tree, left.scope)
        merged = frozenset(folded(name) for name in names)
        shared: list[Field] = []
        outputs: list[Output] = []
        for name, one, other in pairs:
            if side == "FULL":
                value = Expression("coalesce(", one, ", ", other, ")")
                outputs.append(Output(self._context.names.fresh("using", name), value))
                shared.append(Field(name, outputs[-1].name))
            else:
                shared.append(Field(name, other if side == "RIGHT" else one))
        kept = tuple(item for item in left.scope.shared + right.scope.shared if folded(item.name) not in merged)
        relations = tuple(
            replace(relation, merged=relation.merged | merged)
            for relation in left.scope.relations + right.scope.relations
        )
        return FromItem(Computed(tree, tuple(outputs)) if outputs else tree, Scope(relations, tuple(shared) + kept))

    def _looked_up(self, left: FromItem, join: exp.Join, side: str, kind: str) -> FromItem:
        """`JOIN dimension FOR SYSTEM_TIME AS OF …`: the version that was valid then."""
        table, where = join.this, self._query.location(join)
        version = table.args["version"]
        if str(version.this).upper() != "TIMESTAMP" or str(version.args.get("kind")).upper() != "AS OF":
            raise FlowError("only FOR SYSTEM_TIME AS OF is known", where=where)
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("on") is None:
            raise FlowError(
                "a lookup AS OF is an inner or a left join with ON",
                where=where,
                hint="write [LEFT] JOIN dimension FOR SYSTEM_TIME AS OF time alias ON alias.key = …",
            )
        name, catalog = table_name(table), self._context.catalog
        if (len(table.parts) == 1 and name in self._environment.tables) or (
            catalog.columns(name) is not None and not catalog.is_versioned(name)
        ):
            raise FlowError(
                f"'{table.name}' keeps no versions, so it cannot be read AS OF a time",
                where=where,
                hint="make it an AUTO CDC table STORED AS SCD TYPE 2",
            )
        relation, scan = self._scan(table, name)
        right = FromItem(Leaf(scan), Scope((relation,)))
        conditions = self._on(join, left, right)
        hidden = {folded(item.name): item.column for item in relation.hidden + relation.fields}
        self._check_lookup_keys(conditions, relation, scan, name, join)
        at = Renderer(self._query, replace(left.scope, outer=self._environment.outer), self._environment).local(
            version.expression
        )
        tree = AsOfLookup(
            left.tree,
            scan,
            conditions,
            at,
            hidden[START_AT],
            hidden[END_AT],
            "null" if side == "LEFT" else self._context.lookup_miss,
            hidden.get(SURROGATE_KEY),
        )
        return _both(left, right, tree)

    def _check_lookup_keys(
        self,
        conditions: tuple[Predicate, ...],
        relation: ScopedRelation,
        scan: Scan,
        name: str,
        join: exp.Join,
    ) -> None:
        own = frozenset(scan.columns)
        keys: set[str] = set()
        for item in conditions:
            sides = item.equality or ()
            mine = [side for side in sides if isinstance(side, Column) and side in own]
            others = [side for side in sides if side.columns and not side.columns & own]
            if len(mine) != 1 or len(others) != 1:
                raise FlowError(
                    f"a lookup AS OF takes only equalities on the key of '{name}', "
                    f"not '{self._query.written(join.args['on'])}'",
                    where=self._query.location(join),
                    hint="put further conditions into WHERE",
                )
            keys.add(mine[0])
        wanted = self._context.catalog.key(name) or ()
        columns = {folded(item.name): item.column for item in relation.fields}
        if keys != {columns[folded(item)] for item in wanted if folded(item) in columns}:
            raise FlowError(
                f"a lookup AS OF must compare the whole key of '{name}': {', '.join(wanted)}",
                where=self._query.location(join),
            )

    def _lateral(self, source: FromItem, node: exp.Lateral) -> FromItem:
        call = node.this
        name = function_name(call) if isinstance(call, exp.Expr) else None
        if not node.args.get("view") or name not in GENERATORS:
            raise NotIncremental("this LATERAL form is not incremental")
        alias = node.args["alias"]
        names = [item.name for item in alias.args.get("columns") or ()] or list(GENERATORS[name])
        if not names:
            raise NotIncremental(f"LATERAL VIEW {name} without column names")
        qualifier = alias.name or "view"
        fields = tuple(Field(item, self._context.names.fresh(qualifier, item)) for item in names)
        renderer = Renderer(self._query, source.scope, self._environment)
        rendered = [renderer.local(item) for item in call.expressions]
        if any(outer_columns(item) for item in rendered):
            raise NotIncremental("a column of the query around in a LATERAL VIEW is not incremental")
        call_text = Expression(name or "", "(", joined(", ", rendered), ")")
        tree = Lateral(source.tree, call_text, tuple(item.column for item in fields), bool(node.args.get("outer")))
        relation = ScopedRelation((folded(qualifier),), fields)
        return FromItem(tree, Scope((*source.scope.relations, relation), source.scope.shared))


def _both(left: FromItem, right: FromItem, tree: Tree, kind: str = "") -> FromItem:
    if kind in ("SEMI", "ANTI"):
        return FromItem(tree, left.scope)
    scope = Scope(left.scope.relations + right.scope.relations, left.scope.shared + right.scope.shared)
    return FromItem(tree, scope)


def _join_tree(left: Tree, right: Tree, side: str, kind: str, conditions: tuple[Predicate, ...]) -> Tree:
    if kind in ("SEMI", "ANTI"):
        return Outer(kind.lower(), left, right, conditions)
    if side == "LEFT":
        return Outer("left", left, right, conditions)
    if side == "RIGHT":
        return Outer("left", right, left, conditions)
    if side == "FULL":
        return Outer("full", left, right, conditions)
    return Inner((left, right), conditions)
