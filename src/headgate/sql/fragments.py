"""What is not incremental: the user's text over the largest parts that are.

Of a SELECT, in this order:

    ORDER BY … LIMIT over rows that are incremental     SELECT a, b FROM input ORDER BY … LIMIT …
    FROM and WHERE are incremental, the rest is not     SELECT … FROM input GROUP BY … (column names replaced)
    otherwise                                           as written, each table, subquery and common table that can be an
                                                        input replaced by one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headgate.dataflow.expression import Column
from headgate.dataflow.graph import Fragment, Node, Output, Projection, Scan, kept
from headgate.errors import FlowError
from headgate.sql.context import Context
from headgate.sql.expressions import Renderer, conjuncts, has_aggregate, own_nodes, top_subqueries
from headgate.sql.functions import context_function
from headgate.sql.hidden_columns import HiddenColumns
from headgate.sql.names import folded, output_name, quoted, words
from headgate.sql.positions import Edit
from headgate.sql.prune import pruned
from headgate.sql.references import tables_in
from headgate.sql.relations import lower_from, table_name
from headgate.sql.scope import Environment, Lowered, NotIncremental, spelled
from headgate.sql.select import select_items

Tables = Mapping[str, Lowered | NotIncremental]
CommonTables = Callable[[exp.With, Tables], dict[str, Lowered | NotIncremental]]

_TAIL = ("group", "having", "windows", "qualify", "order", "limit", "offset")
_BELOW_ORDER = ("order", "limit", "offset", "sort", "distribute", "cluster")


@dataclass(frozen=True)
class _Text:
    """A query's text and the names of its columns; not `exact`: the text itself leaves some without that name."""

    sql: str
    names: tuple[str, ...]
    exact: bool = True


class FragmentBuilder:
    """Builds the fragment of one view."""

    def __init__(self, context: Context, common_tables: CommonTables) -> None:
        self._context = context
        self._query = context.query
        self._common_tables = common_tables
        self._inputs: dict[Node, str] = {}
        self._reasons: dict[str, None] = {}
        self._fragments: dict[str, tuple[str, ...]] = {}

    def build(self, tree: exp.Expr, failure: NotIncremental) -> tuple[Fragment, tuple[str, ...]]:
        """The fragment and the names of its columns."""
        self._reasons[failure.reason] = None
        self._hidden = HiddenColumns(self._query, tree, tables_in(tree), self._context.catalog.hidden)
        text = self._text(tree, {})
        sql = text.sql
        if not text.exact:
            sql = f"SELECT * FROM ({sql}) AS result ({', '.join(quoted(name) for name in text.names)})"
        context = any(context_function(node) is not None for node in tree.walk())
        inputs = tuple((name, node) for node, name in self._inputs.items() if name in words(sql))
        return Fragment(sql, inputs, tuple(self._reasons), context), text.names

    def _input(self, node: Node) -> str:
        return self._inputs.setdefault(node, f"__input_{len(self._inputs) + 1}")

    def _text(self, query: exp.Expr, tables: Tables) -> _Text:
        clause = query.args.get("with_")
        if clause is None:
            return self._core(query, tables)
        known = self._common_tables(clause, tables)
        definitions: list[str] = []
        for table in clause.expressions:
            failure = known[folded(table.alias)]
            if not isinstance(failure, NotIncremental):
                continue
            self._reasons[failure.reason] = None
            names = [item.name for item in table.args["alias"].args.get("columns") or ()]
            as_text = self._as_written if clause.args.get("recursive") else self._text
            inner = as_text(table.this, known)
            columns = tuple(names) or inner.names
            definitions.append(
                f"{quoted(table.alias)} ({', '.join(quoted(name) for name in columns)}) AS ({inner.sql})"
            )
            self._fragments[folded(table.alias)] = columns
        core = self._core(query, known)
        recursive = "RECURSIVE " if clause.args.get("recursive") else ""
        head = f"WITH {recursive}{', '.join(definitions)} " if definitions else ""
        return _Text(head + core.sql, core.names, core.exact)

    def _core(self, query: exp.Expr, tables: Tables) -> _Text:
        whole = self._whole(query, tables)
        if whole is not None:
            return whole
        if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
            inner = self._text(query.this, tables)
            return _Text(f"({inner.sql}){self._modifiers(query)}", inner.names, inner.exact)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, tables)
        if isinstance(query, exp.Select):
            for attempt in (self._ordered, self._over_body):
                try:
                    found = attempt(query, tables)
                except NotIncremental as failure:
                    self._reasons[failure.reason] = None
                    continue
                if found is not None:
                    return found
        return self._as_written(query, tables)

    def _whole(self, query: exp.Expr, tables: Tables) -> _Text | None:
        clause = query.args.get("with_")
        try:
            if clause is not None:
                query.set("with_", None)
            lowered = self._context.lower(query, Environment(tables))
        except NotIncremental as failure:
            self._reasons[failure.reason] = None
            return None
        finally:
            if clause is not None:
                query.set("with_", clause)
        names = tuple(item.name for item in lowered.fields)
        if len({folded(name) for name in names}) != len(names):
            return None
        return _Text(f"SELECT {_list(names)} FROM {self._result(lowered)}", names)

    def _result(self, lowered: Lowered) -> str:
        outputs = tuple(Output(item.name, Column(item.column)) for item in lowered.fields)
        return self._input(pruned(Projection(lowered.node, outputs)))

    def _modifiers(self, query: exp.Expr) -> str:
        parts = [query.args.get(option) for option in ("order", "limit", "offset")]
        return "".join(f" {self._query.written(part)}" for part in parts if isinstance(part, exp.Expr))

    def _set_operation(self, query: exp.SetOperation, tables: Tables) -> _Text:
        left, right = self._text(query.this, tables), self._text(query.expression, tables)
        between = self._query.span(query.this)[1] + 1, self._query.span(query.expression)[0] - 1
        operator = self._query.slice(*between, []).strip("() ")
        sql = f"({left.sql}) {operator} ({right.sql}){self._modifiers(query)}"
        return _Text(sql, left.names, left.exact)

    def _ordered(self, select: exp.Select, tables: Tables) -> _Text | None:
        """ORDER BY and LIMIT over the query without them."""
        if not select.args.get("limit") and not select.args.get("offset"):
            return None
        order = select.args.get("order")
        removed = {option: select.args.get(option) for option in _BELOW_ORDER}
        visible = list(select.expressions)
        try:
            for option in _BELOW_ORDER:
                select.set(option, None)
            source = lower_from(select, self._context, Environment(tables))
            items = select_items(select, Renderer(self._query, source.scope, Environment(tables)))
            names = tuple(item.name for item in items)
            hidden: list[exp.Expr] = []
            texts = [self._order_item(item, names, hidden) for item in (order.expressions if order else ())]
            if hidden and select.args.get("distinct"):
                return None
            parents = [(node, node.parent) for node in hidden]
            aliased = [exp.Alias(this=node, alias=exp.to_identifier(f"order_{n}")) for n, node in enumerate(hidden, 1)]
            select.set("expressions", [*visible, *aliased])
            try:
                lowered = self._context.lower(select, Environment(tables))
            finally:
                for node, parent in parents:
                    node.parent = parent
        finally:
            select.set("expressions", visible)
            for option, value in removed.items():
                select.set(option, value)
        if len({folded(item.name) for item in lowered.fields}) != len(lowered.fields):
            return None
        clause = f" ORDER BY {', '.join(texts)}" if texts else ""
        tail = "".join(
            f" {self._query.written(part)}"
            for part in (select.args.get("limit"), select.args.get("offset"))
            if isinstance(part, exp.Expr)
        )
        return _Text(f"SELECT {_list(names)} FROM {self._result(lowered)}{clause}{tail}", names)

    def _order_item(self, item: exp.Expr, names: Sequence[str], hidden: list[exp.Expr]) -> str:
        inner = item.this if isinstance(item, exp.Ordered) else item
        known = {folded(name): name for name in names}
        (_, end), (_, last) = self._query.span(inner), self._query.span(item)
        direction = f" {self._query.slice(end + 1, last, [])}" if last > end else ""
        columns = list(inner.find_all(exp.Column))
        if isinstance(inner, exp.Literal) or (
            columns
            and all(len(part.parts) == 1 and folded(part.name) in known for part in columns)
            and not has_aggregate(inner)
        ):
            return self._query.written(inner) + direction
        hidden.append(inner)
        return f"order_{len(hidden)}{direction}"

    def _over_body(self, select: exp.Select, tables: Tables) -> _Text | None:
        """The select list and what follows, as written, over FROM and WHERE."""
        environment = Environment(tables)
        where = select.args.get("where")
        parts = conjuncts(where.this if where is not None else None)
        below = [part for part in parts if not _asks_context(part)]
        rest = [part for part in parts if _asks_context(part)]
        removed = {option: select.args.get(option) for option in ("where", "limit", "offset", "sample")}
        if removed["sample"]:
            return None
        parents = [(part, part.parent) for part in below]
        try:
            for option in removed:
                select.set(option, None)
            if below:
                joined = below[0]
                for part in below[1:]:
                    joined = exp.And(this=joined, expression=part)
                select.set("where", exp.Where(this=joined))
            body = self._context.steps.body(select, self._context, environment)
        finally:
            for option, value in removed.items():
                select.set(option, value)
            for part, parent in parents:
                part.parent = parent
        renderer = Renderer(self._query, body.renderer.scope, environment, body.renderer.replacements, free=True)
        items = select_items(select, renderer)
        clauses = [clause for option in _TAIL for clause in _as_list(select.args.get(option))]
        expressions = [item.expression for item in items if item.expression is not None]
        if top_subqueries([*expressions, *rest, *clauses]):
            return None
        names = tuple(item.name for item in items)
        texts: list[str] = []
        columns: set[str] = set()
        for item in items:
            rendered = renderer.render(item.expression) if item.expression is not None else None
            texts.append(f"{rendered or item.column} AS {quoted(item.name)}")
            columns |= rendered.columns if rendered else {item.column or ""}
        tail: list[str] = []
        if rest:
            conditions = [renderer.render(part) for part in rest]
            tail.append("WHERE " + " AND ".join(f"({item})" for item in conditions))
            columns.update(*(item.columns for item in conditions))
        for option in _TAIL:
            found = _as_list(select.args.get(option))
            if not found:
                continue
            over_outputs = renderer if option in ("group", "windows") else self._preferring(renderer, names)
            rendered_parts = [over_outputs.render(clause) for clause in found]
            columns.update(*(item.columns for item in rendered_parts))
            head = "WINDOW " if option == "windows" else ""
            tail.append(head + ", ".join(rendered_parts))
        used = tuple(name for name in body.node.columns if name in columns) or body.node.columns[:1]
        table = self._input(pruned(Projection(body.node, kept(used))))
        distinct = "DISTINCT " if select.args.get("distinct") else ""
        return _Text(f"SELECT {distinct}{', '.join(texts)} FROM {table} {' '.join(tail)}".rstrip(), names)

    def _preferring(self, renderer: Renderer, names: Sequence[str]) -> Renderer:
        """A renderer for clauses in which the names of the select list come first."""
        known = {folded(name) for name in names}

        class _Preferring(Renderer):
            def _visit_column(self, node: exp.Column, edits: list[Edit]) -> None:
                if not (len(node.parts) == 1 and folded(node.name) in known):
                    super()._visit_column(node, edits)

        return _Preferring(
            renderer.query, renderer.scope, renderer.environment, renderer.replacements, renderer.aliases, free=True
        )

    def _as_written(self, query: exp.Expr, tables: Tables) -> _Text:
        """The text with every relation that is incremental replaced."""
        first, last = self._query.span(query)
        if query.args.get("with_") is not None:
            first = self._query.span(query.args["with_"])[1] + 1
        columns: dict[str, tuple[str, ...] | None] = {}
        edits = [edit for child in self._children(query) for edit in self._edits(child, tables, columns)]
        if isinstance(query, exp.Select):
            names, exact = self._written_names(query, columns)
        elif isinstance(query, exp.Values):
            width = len(query.expressions[0].expressions) if query.expressions else 0
            names, exact = tuple(f"col{number}" for number in range(1, width + 1)), True
        elif isinstance(query.this, exp.Query):
            leading = self._as_written(query.this, tables)
            names, exact = leading.names, leading.exact
        else:
            names, exact = (), True
        return _Text(self._query.slice(first, last, edits), names, exact)

    def _children(self, query: exp.Expr) -> list[exp.Expr]:
        clause = query.args.get("with_")
        return [child for child in query.iter_expressions() if child is not clause]

    def _edits(self, node: exp.Expr, tables: Tables, columns: dict[str, tuple[str, ...] | None]) -> Iterator[Edit]:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            yield self._table_edit(node, tables, columns)
            return
        if isinstance(node, exp.Star):
            yield from self._hidden.star_edits(node)
            return
        if isinstance(node, exp.Query):
            inner = node
            while isinstance(inner, exp.Subquery):
                if isinstance(inner.this, exp.Table):
                    break
                inner = inner.this
            if isinstance(inner, exp.Query) and not isinstance(inner, exp.Subquery):
                text = self._nested(inner, tables)
                if node.alias:
                    columns[folded(node.alias)] = text.names
                yield Edit(*self._query.span(inner), text.sql)
                return
        for child in node.iter_expressions():
            yield from self._edits(child, tables, columns)

    def _nested(self, query: exp.Expr, tables: Tables) -> _Text:
        """A query inside the text; one that needs the query around it stays as written."""
        try:
            return self._text(query, tables)
        except FlowError:
            return self._as_written(query, tables)

    def _table_edit(self, node: exp.Table, tables: Tables, columns: dict[str, tuple[str, ...] | None]) -> Edit:
        if node.args.get("version"):
            raise FlowError(
                "a lookup AS OF cannot stand in a part of the query that is not incremental",
                where=self._query.location(node),
                hint="put the lookup into a view of its own and read that",
            )
        name = table_name(node)
        first, last = (self._query.identifier_span(node.parts[index])[0] for index in (0, -1))
        alias = node.alias or node.name
        if len(node.parts) == 1 and name in tables:
            known = tables[name]
            if isinstance(known, NotIncremental):
                columns[folded(alias)] = self._fragments.get(name)
                return Edit(first, last, self._query.slice(first, last, []))
            relation, names = self._result(known), tuple(item.name for item in known.fields)
        else:
            relation, names = self._scan(node, name)
        columns[folded(alias)] = names
        if node.alias:
            return Edit(first, last, relation)
        end = self._query.span(node)[1] if node.args.get("sample") else last
        sample = f" {self._query.slice(last + 1, end, [])}" if end > last else ""
        return Edit(first, end, f"{relation}{sample} AS {quoted(node.name)}")

    def _scan(self, node: exp.Table, name: str) -> tuple[str, tuple[str, ...]]:
        catalog = self._context.catalog
        visible = catalog.columns(name)
        if visible is None:
            lower_from(exp.Select(from_=exp.From(this=node.copy())), self._context, Environment())
            raise FlowError(f"unknown table '{name}'", where=self._query.location(node))
        if catalog.is_fragment(name):
            self._reasons[f"it reads {name}, which is not incremental"] = None
        return self._input(Scan(spelled(name, catalog), kept(visible + self._hidden.of(node)))), visible

    def _written_names(
        self, select: exp.Select, columns: Mapping[str, tuple[str, ...] | None]
    ) -> tuple[tuple[str, ...], bool]:
        names: list[str] = []
        exact = True
        for item in select.expressions:
            if isinstance(item, exp.Alias):
                names.append(item.alias)
            elif isinstance(item, exp.Aliases):
                names.extend(part.name for part in item.expressions)
            elif _is_wide_star(item):
                names.extend(self._star_names(item, columns))
            elif isinstance(item, exp.Column):
                names.append(item.name)
            else:
                names.append(output_name(self._query.written(item)))
                exact = False
        return tuple(names), exact

    def _star_names(self, item: exp.Expr, columns: Mapping[str, tuple[str, ...] | None]) -> list[str]:
        wanted = [folded(item.parts[-2].name)] if isinstance(item, exp.Column) else list(columns)
        star = item.this if isinstance(item, exp.Column) else item
        excluded = {folded(part.name) for part in star.args.get("except_") or ()}
        names: list[str] = []
        for alias in wanted:
            known = columns.get(alias)
            if known is None:
                raise FlowError(
                    "the columns of '*' are not known here", where=self._query.location(item), hint="name the columns"
                )
            names.extend(name for name in known if folded(name) not in excluded)
        return names


def _list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _as_list(value: object) -> list[exp.Expr]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, exp.Expr) else []


def _asks_context(node: exp.Expr) -> bool:
    return any(context_function(part) is not None for part in own_nodes(node))


def _is_wide_star(node: exp.Expr) -> bool:
    """`*` or `t.*` as a select item, not `count(*)`."""
    if isinstance(node, exp.Column):
        return isinstance(node.this, exp.Star)
    return isinstance(node, exp.Star) and isinstance(node.parent, exp.Select)
