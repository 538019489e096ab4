"""SQL text to plans: which statements a producer's connection understands, and what each comes down to.

Buffered or answered by the producer itself are scalar INSERTs, SELECT columns | MAX(column) of one table, UPDATE and DELETE,
where the conditions are `column = value`, `column IN (value, …)` or `column IS NULL`, joined by AND, and values are
parameters or constants. Every other query is the warehouse's. A name that is a table of the source means that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from headgate.capture.shape import Shape
from headgate.capture.source import SourceTable
from headgate.errors import Location
from headgate.producing import plans
from headgate.producing.arrangement import Arrangement, Constant, Value
from headgate.producing.clauses import compared_place, conditions_of, ordering_of, outputs_of
from headgate.producing.dbapi import NotSupportedError, ProgrammingError, errors_of_pep_249
from headgate.producing.definitions import defined_table
from headgate.producing.literals import NotAConstant, value_in
from headgate.producing.parameters import Template
from headgate.sql.bounds import bounded_recursion, require_bounded_depth
from headgate.sql.names import did_you_mean, folded, quoted
from headgate.sql.positions import tokenize

_POSSIBLE = (
    "a producer's connection takes INSERT, SELECT, UPDATE and DELETE with column = value [AND …], CREATE TABLE and DROP "
    "TABLE; connection.commit() and connection.rollback() end a transaction"
)
_VERBS = ("INSERT", "SELECT", "WITH", "VALUES", "FROM", "UPDATE", "DELETE", "CREATE", "DROP", "(")
_WHERE = Location("statement")


class Statements:
    """The statements of one source; `tables` are all of its tables."""

    def __init__(self, source: str, tables: Mapping[str, SourceTable]) -> None:
        self._source = source
        self._shapes = {folded(name): (name, Shape(source, table)) for name, table in tables.items()}
        self._full = {name: f"{quoted(source)}.{quoted(name)}" for name, _ in self._shapes.values()}

    def plan(self, template: Template) -> plans.Plan:
        """What the statement comes down to."""
        with errors_of_pep_249(otherwise=ProgrammingError):
            tokens = tokenize(template.text, _WHERE)
        if not tokens or tokens[0].text.upper() not in _VERBS:
            verb = tokens[0].text.upper() if tokens else "an empty statement"
            raise NotSupportedError(f"{verb} is not supported", hint=_POSSIBLE)
        trees = _parsed(template.text)
        if len(trees) != 1:
            raise NotSupportedError("several statements in one text", hint="execute them one by one")
        match trees[0]:
            case exp.Insert() as tree:
                return self._insert(tree, template)
            case exp.Update() as tree:
                return self._update(tree, template)
            case exp.Delete() as tree:
                table, shape = self._table(tree.this)
                return plans.Delete(table, self._required_conditions(tree, template, shape, "DELETE"))
            case exp.Create() as tree:
                return self._create(tree)
            case exp.Drop() as tree:
                return self._drop(tree)
            case exp.Query() | exp.Values() as tree:
                return self._select(tree, template)
        raise NotSupportedError(f"{tokens[0].text.upper()} is not supported in this form", hint=_POSSIBLE)

    def _insert(self, tree: exp.Insert, template: Template) -> plans.Plan:
        if any(tree.args.get(part) for part in ("overwrite", "partition", "by_name", "where", "with_")):
            raise NotSupportedError(
                "INSERT is not supported in this form", hint="write INSERT INTO t (columns) VALUES …"
            )
        schema = tree.this if isinstance(tree.this, exp.Schema) else None
        table, shape = self._table(schema.this if schema is not None else tree.this)
        columns = shape.columns
        if schema is not None:
            columns = tuple(shape.columns[_place(shape, column.name)] for column in schema.expressions)
            if len(set(columns)) < len(columns):
                raise ProgrammingError(f"the INSERT into {shape.name} names a column twice")
        if isinstance(tree.expression, exp.Values):
            try:
                rows = tuple(self._arranged(row, columns, shape, template) for row in tree.expression.expressions)
                return plans.InsertRows(table, rows)
            except NotAConstant:
                pass
        return plans.InsertQuery(table, columns, self._query_of_insert(schema is not None, template))

    def _arranged(self, row: exp.Expr, columns: Sequence[str], shape: Shape, template: Template) -> Arrangement:
        nodes = row.expressions if isinstance(row, exp.Tuple) else [row]
        if len(nodes) != len(columns):
            raise ProgrammingError(
                f"{len(nodes)} values are given for {len(columns)} columns of {shape.name}: {row.sql('spark')[:120]}"
            )
        given = dict(zip(columns, nodes, strict=True))
        values: list[Value] = []
        for field in shape.fields:
            node = given.get(field.name)
            values.append(Constant(None) if node is None else value_in(node, template.places, field))
        return Arrangement(tuple(values), template)

    def _query_of_insert(self, has_columns: bool, template: Template) -> plans.OwnRowsQuery:
        """What follows INSERT INTO [TABLE] name [(columns)]."""
        tokens = tokenize(template.text, _WHERE)
        place = 3 if tokens[2].token_type == TokenType.TABLE else 2
        while tokens[place + 1].token_type == TokenType.DOT:
            place += 2
        place += 1
        if has_columns:
            while tokens[place].token_type != TokenType.R_PAREN:
                place += 1
            place += 1
        text = template.text[tokens[place].start :].rstrip().rstrip(";")
        if tokens[place].token_type == TokenType.VALUES:
            text = f"SELECT * FROM {text}"
        return plans.OwnRowsQuery(text, template, self._full)

    def _update(self, tree: exp.Update, template: Template) -> plans.Update:
        table, shape = self._table(tree.this)
        assigned: list[tuple[int, Value]] = []
        for assignment in tree.expressions:
            if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
                raise NotSupportedError(f"UPDATE of {shape.name} is not supported in this form", hint=_POSSIBLE)
            place = _place(shape, assignment.this.name)
            try:
                assigned.append((place, value_in(assignment.expression, template.places, shape.fields[place])))
            except NotAConstant:
                raise NotSupportedError(
                    f"UPDATE cannot compute {assignment.sql('spark')}", hint="SET takes parameters and constants"
                ) from None
        return plans.Update(table, tuple(assigned), self._required_conditions(tree, template, shape, "UPDATE"))

    def _required_conditions(self, tree: exp.Expr, template: Template, shape: Shape, verb: str) -> plans.Conditions:
        names = {folded(tree.this.alias_or_name)}
        found = conditions_of(tree.args.get("where"), template, shape, names)
        if found is None:
            raise NotSupportedError(
                f"{verb} of {shape.name} cannot follow this condition: {tree.args['where'].this.sql('spark')[:120]}",
                hint="write column = value, column IN (value, …) or column IS NULL, joined by AND",
            )
        return found

    def _create(self, tree: exp.Create) -> plans.CreateTable:
        if tree.args.get("kind") != "TABLE" or not isinstance(tree.this, exp.Schema):
            raise NotSupportedError("only tables with their columns can be created", hint=_POSSIBLE)
        extra = [part for part in ("replace", "expression", "properties", "clone") if tree.args.get(part)]
        if extra:
            raise NotSupportedError("CREATE TABLE takes columns and a key, nothing else", hint=_POSSIBLE)
        node = tree.this.this
        self._require_source(node)
        name = self._shapes[folded(node.name)][0] if folded(node.name) in self._shapes else node.name
        return plans.CreateTable(defined_table(name, tree.this.expressions), bool(tree.args.get("exists")))

    def _drop(self, tree: exp.Drop) -> plans.DropTable:
        named = tree.args.get("tables") or [tree.this]
        if tree.args.get("kind") != "TABLE" or len(named) != 1:
            raise NotSupportedError("only tables can be dropped, one by one", hint=_POSSIBLE)
        if tree.args.get("exists") and folded(named[0].name) not in self._shapes:
            return plans.DropTable(None)
        return plans.DropTable(self._table(named[0])[0])

    def _select(self, tree: exp.Expr, template: Template) -> plans.Plan:
        query = plans.OwnRowsQuery(template.text.rstrip().rstrip(";"), template, self._full)
        own = self._own_table(tree)
        if own is None or not isinstance(tree, exp.Select):
            return query
        node, (table, shape) = own
        names = {folded(node.alias_or_name)}
        greatest = tree.selects[0].unalias() if len(tree.selects) == 1 else None
        if isinstance(greatest, exp.Max) and not tree.args.get("where") and not tree.args.get("order"):
            place = compared_place(greatest.this, shape, names)
            if place is not None and not greatest.expressions:
                name = tree.selects[0].alias or f"max({shape.columns[place]})"
                return plans.SelectGreatest(table, name, place, query)
        outputs = outputs_of(tree, shape, names)
        conditions = conditions_of(tree.args.get("where"), template, shape, names)
        order = ordering_of(tree, shape, names, outputs or [])
        if outputs is None or conditions is None or order is None:
            return query
        return plans.SelectRows(
            table, tuple(name for name, _ in outputs), tuple(place for _, place in outputs), conditions, order, query
        )

    def _own_table(self, tree: exp.Expr) -> tuple[exp.Table, tuple[str, Shape]] | None:
        """The one table of the source that a simple SELECT reads."""
        used = {part for part, content in tree.args.items() if content}
        if not isinstance(tree, exp.Select) or not used <= {"expressions", "from_", "where", "order"}:
            return None
        source = tree.args.get("from_")
        node = source.this if isinstance(source, exp.From) else None
        if not isinstance(node, exp.Table) or not {part for part, content in node.args.items() if content} <= {
            "this",
            "db",
            "alias",
        }:
            return None
        if not isinstance(node.this, exp.Identifier) or (node.db and folded(node.db) != folded(self._source)):
            return None
        found = self._shapes.get(folded(node.name))
        return None if found is None else (node, found)

    def _table(self, node: exp.Expr | None) -> tuple[str, Shape]:
        if not isinstance(node, exp.Table):
            raise NotSupportedError("the statement names no table", hint=_POSSIBLE)
        self._require_source(node)
        found = self._shapes.get(folded(node.name))
        if found is None:
            raise ProgrammingError(
                f"{self._source} has no table {node.name}",
                hint=did_you_mean(node.name, self._full) or "create it with CREATE TABLE",
            )
        return found

    def _require_source(self, node: exp.Table) -> None:
        if node.catalog or (node.db and folded(node.db) != folded(self._source)):
            raise NotSupportedError(
                f"{node.sql('spark')} is not a table of {self._source}",
                hint=f"this connection writes to tables of {self._source} only",
            )


def _parsed(text: str) -> list[exp.Expr]:
    with errors_of_pep_249(otherwise=ProgrammingError), bounded_recursion(_WHERE):
        try:
            trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
        except SqlglotError as error:
            raise ProgrammingError(f"the statement cannot be read: {_first_line(error)}") from error
        for tree in trees:
            require_bounded_depth(tree, _WHERE)
        return trees


def _place(shape: Shape, name: str) -> int:
    by_name = {folded(column): place for place, column in enumerate(shape.columns)}
    place = by_name.get(folded(name))
    if place is None:
        raise ProgrammingError(
            f"{shape.name} has no column {name}", hint=did_you_mean(name, shape.columns) or ", ".join(shape.columns)
        )
    return place


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
