"""Queries of the catalogs: known by what they read, and written anew for DuckDB over the mirror."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from headgate.gateway.catalog.definitions import definitions
from headgate.gateway.catalog.functions import NAMES, SESSION
from headgate.gateway.catalog.mirror import OWN_SCHEMA
from headgate.gateway.dialect import bound, rewritten
from headgate.gateway.naming import name_columns
from headgate.gateway.parameters import array_of, literal
from headgate.gateway.problems import NOT_SUPPORTED, WireProblem

_SCHEMAS = {"pg_catalog": "mirror", "information_schema": "information_mirror", OWN_SCHEMA: ""}
FRESHNESS = "headgate_freshness"
"""What headgate.tables is called while a query reads it."""
_TEXTS = frozenset(
    (
        "name",
        "char",
        "regproc",
        "regprocedure",
        "regoper",
        "regrole",
        "aclitem",
        "sql_identifier",
        "character_data",
        "yes_or_no",
        "pg_node_tree",
        "cstring",
    )
)
_NUMBERS = {"oid": "UINTEGER", "xid": "UINTEGER", "cid": "UINTEGER", "cardinal_number": "INTEGER"}
_BUILT_IN = {
    exp.CurrentUser: "current_user",
    exp.CurrentSchema: "current_schema",
    exp.SessionUser: "session_user",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentDatabase: "current_database",
    exp.CurrentVersion: "version",
    exp.CurrentSchemas: "current_schemas",
}


class _Indexed(DuckDB):
    INDEX_OFFSET = 0  # indexes are as the query writes them, which is as DuckDB counts


@dataclass(frozen=True)
class Asking:
    """The connection that asks: its functions by name, each given the arguments."""

    functions: Mapping[str, Callable[[Sequence[str | None]], object]]


def schema_of(table: exp.Table) -> str | None:
    """The catalog's schema that a table belongs to; None for one of the warehouse."""
    if table.db:
        return table.db.lower() if table.db.lower() in _SCHEMAS else None
    return "pg_catalog" if ("pg_catalog", table.name.lower()) in definitions().relations else None


def reads_freshness(tree: exp.Expr) -> bool:
    return any(schema_of(table) == OWN_SCHEMA for table in tree.find_all(exp.Table))


def is_catalog(tree: exp.Expr) -> bool:
    """Whether a query is about the catalog: all its tables are the catalog's, or it has none and calls the catalog's functions."""
    expressions = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)}
    tables = [each for each in tree.find_all(exp.Table) if each.db or each.name.lower() not in expressions]
    tables = [each for each in tables if isinstance(each.this, exp.Identifier)]
    own = [schema_of(each) is not None for each in tables]
    if any(own) and not all(own):
        other = next(each for each, is_own in zip(tables, own, strict=True) if not is_own)
        raise WireProblem(
            NOT_SUPPORTED,
            f"a query reads either the catalog or tables, and {other.sql(dialect='postgres')} is a table",
            hint="ask two queries",
        )
    if tables:
        return all(own)
    return (
        any(_function_name(node) in NAMES | SESSION for node in tree.find_all(exp.Func, exp.Anonymous, *_BUILT_IN))
        or _names_user(tree)
        or any(_names_thing(node) for node in tree.find_all(exp.Cast))
    )


def _names_thing(node: exp.Cast) -> bool:
    """Whether a text is taken as the name of a thing of the catalog: 'items'::regclass."""
    return node.to.sql(dialect="postgres").lower().rpartition(".")[2].startswith("reg")


def _names_user(tree: exp.Expr) -> bool:
    return any(
        not column.table and column.name.lower() in SESSION and not column.this.quoted
        for column in tree.find_all(exp.Column)
    )


def _function_name(node: exp.Expr) -> str:
    built_in = next((name for kind, name in _BUILT_IN.items() if isinstance(node, kind)), None)
    if built_in is not None:
        return built_in
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def duckdb_text(tree: exp.Expr, values: Sequence[object], asking: Asking) -> str:
    """The query in DuckDB's words."""
    tree = bound(tree, values)
    name_columns(tree)
    tree = rewritten(tree, lambda node: _rewritten(node, asking))
    try:
        return _Indexed().generate(tree, copy=False)
    except (SqlglotError, ValueError) as error:
        raise WireProblem(
            NOT_SUPPORTED, f"this query of the catalog cannot be translated: {str(error).splitlines()[0]}"
        ) from None


def _rewritten(node: exp.Expr, asking: Asking) -> exp.Expr:
    match node:
        case exp.Table() if isinstance(node.this, exp.Identifier) and (schema := schema_of(node)) is not None:
            return _table(node, schema)
        case exp.Table() if not isinstance(node.this, exp.Identifier):
            node.set("db", None)
        case exp.Column() if node.db:
            node.set("db", None)
            node.set("catalog", None)
        case exp.Column() if (
            not node.table
            and node.name.lower() in ("current_user", "session_user", "user", "current_catalog")
            and not node.this.quoted
        ):
            return _of_session(node.name.lower(), (), asking)
        case exp.Dot() if node.this.name.lower() in _SCHEMAS and isinstance(
            node.expression, exp.Func | exp.Literal | exp.Array | exp.Null | exp.Neg | exp.Boolean
        ):
            found: exp.Expr = node.args["expression"]
            return found
        case exp.Collate():
            inner: exp.Expr = node.this
            return inner
        case exp.Operator():
            return _operator(node)
        case exp.Cast() | exp.TryCast():
            return _cast(node)
        case exp.EQ() | exp.NEQ():
            return _compared(node)
        case exp.Func() | exp.Anonymous() | exp.CurrentUser() | exp.CurrentSchema():
            name = _function_name(node)
            if name in ("json_build_object", "jsonb_build_object"):
                return exp.Anonymous(this="json_object", expressions=node.expressions)
            if name in SESSION:
                arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this] if node.this else []
                return _of_session(name, [_argument(each) for each in arguments], asking)
        case exp.Any() | exp.All():
            node.set(
                "this",
                exp.Paren(this=array_of(node.this.unnest()))
                if isinstance(node.this, exp.Paren)
                else array_of(node.this),
            )
        case exp.Lock():
            return exp.Null()
    return node


def _argument(node: exp.Expr) -> str | None:
    node = node.unnest()
    if isinstance(node, exp.Cast):
        return _argument(node.this)
    if isinstance(node, exp.Null):
        return None
    return ("true" if node.this else "false") if isinstance(node, exp.Boolean) else node.name


def _of_session(name: str, arguments: Sequence[str | None], asking: Asking) -> exp.Expr:
    found = asking.functions.get(name)
    if found is None:
        raise WireProblem("42883", f"the function {name} is not known here")
    return literal(found(arguments))


def _table(node: exp.Table, schema: str) -> exp.Table:
    name = node.name.lower()
    if schema != OWN_SCHEMA and (schema, name) not in definitions().relations:
        raise WireProblem("42P01", f'relation "{schema}.{name}" does not exist')
    if schema == OWN_SCHEMA and name != "tables":
        raise WireProblem("42P01", f'relation "{schema}.{name}" does not exist', hint="there is headgate.tables")
    made = exp.table_(FRESHNESS) if schema == OWN_SCHEMA else exp.table_(name, db=_SCHEMAS[schema])
    alias = node.args.get("alias")
    made.set("alias", alias if alias is not None else exp.TableAlias(this=exp.to_identifier(name)))
    for key in ("joins", "laterals"):
        if node.args.get(key):
            made.set(key, node.args[key])
    return made


def _operator(node: exp.Operator) -> exp.Expr:
    """a OPERATOR(pg_catalog.~) b."""
    symbol = node.args["operator"]
    written = (symbol if isinstance(symbol, str) else symbol.sql()).rpartition(".")[2].strip('" ')
    left, right = node.this, node.expression
    match written:
        case "~":
            return exp.RegexpLike(this=left, expression=right)
        case "!~":
            return exp.not_(exp.RegexpLike(this=left, expression=right))
        case "~~":
            return exp.Like(this=left, expression=right)
        case "=":
            return exp.EQ(this=left, expression=right)
        case "<>":
            return exp.NEQ(this=left, expression=right)
    raise WireProblem(NOT_SUPPORTED, f"the operator {written} is not known in queries of the catalog")


def _cast(node: exp.Cast) -> exp.Expr:
    kind = node.to.sql(dialect="postgres").lower().replace('"', "").rpartition(".")[2]
    inner = node.this.unnest()
    is_text = (isinstance(inner, exp.Literal) and inner.is_string) or (
        isinstance(inner, exp.Cast) and inner.to.this in exp.DataType.TEXT_TYPES
    )
    if kind == "regclass":
        return exp.Anonymous(this="pg_oid" if is_text else "pg_relation_name", expressions=[node.this])
    if kind == "regtype":
        if is_text:
            return exp.Anonymous(this="pg_type_oid", expressions=[node.this])
        return exp.Anonymous(this="format_type", expressions=[node.this, exp.Null()])
    if kind == "regnamespace":
        column, key = ("oid", "nspname") if is_text else ("nspname", "oid")
        return exp.Subquery(
            this=exp.select(f"v.{column}")
            .from_("mirror.pg_namespace AS v")
            .where(exp.EQ(this=exp.column(key, "v"), expression=node.this))
        )
    if kind in _TEXTS:
        return exp.cast(node.this, "text")
    if kind in ("name[]", "char[]", "aclitem[]", "regtype[]", "regproc[]"):
        return exp.cast(node.this, "text[]")
    if kind in _NUMBERS:
        return exp.cast(node.this, _NUMBERS[kind], dialect="duckdb")
    if kind in ("oid[]", "oidvector", "int2vector"):
        return exp.cast(node.this, "UINTEGER[]", dialect="duckdb")
    if node.to.sql(dialect="postgres").lower().startswith("pg_catalog."):
        return exp.cast(node.this, kind, dialect="postgres")
    return node


def _compared(node: exp.EQ | exp.NEQ) -> exp.Expr:
    """typreceive <> 0: columns that name a function are texts here, and none is '-'."""
    for place, other in (("this", "expression"), ("expression", "this")):
        column, number = node.args[place], node.args[other]
        if (
            isinstance(column, exp.Column)
            and column.name in definitions().procedure_columns
            and isinstance(number, exp.Literal)
            and not number.is_string
        ):
            node.set(other, exp.Literal.string("-" if number.name == "0" else number.name))
    return node
