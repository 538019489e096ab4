"""PostgreSQL's SQL in, Spark's out. sqlglot knows most differences; what it does not know, or gets wrong, is here.

What has no counterpart is refused: by a name that Spark's list of functions lacks, or here by its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from headgate.gateway.expression_types import typed
from headgate.gateway.naming import WRITTEN_NAME, name_columns
from headgate.gateway.parameters import literal
from headgate.gateway.problems import NOT_SUPPORTED, SYNTAX, WireProblem
from headgate.gateway.scoped_columns import ColumnType
from headgate.gateway.translating import translated
from headgate.gateway.translating_times import Zone

FLOWS_SCHEMA = "public"
"""The schema of the flows' tables, which Spark knows by one name."""

_CAST_OF_TIME = re.compile(
    r"\b((?:date|interval|timestamptz|timestamp(?:\s+with(?:out)?\s+time\s+zone)?)\s*'[^']*')\s*::", re.IGNORECASE
)
_NUMBERS_OF_THINGS = re.compile(r"::\s*(?:pg_catalog\.)?oid\[\]", re.IGNORECASE)
_NAMES_OF_THINGS = re.compile(r"::\s*(?:pg_catalog\.)?reg[a-z]+\[\]", re.IGNORECASE)
_REFUSED: Mapping[type[exp.Expr], str] = {
    exp.Into: "SELECT … INTO makes a table",
    exp.Lock: "rows cannot be locked",
    exp.TableSample: "TABLESAMPLE is not translated",
    exp.JSONBContains: "operators of jsonb are not translated",
}


_PLAIN_TEXT = re.compile(r"select\s[\w\s.,*=<>()]+", re.ASCII | re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"\b\d{1,18}\b", re.ASCII)
_PLAIN_CLAUSES = frozenset(("expressions", "from_", "where", "limit"))
_PLAIN_PARTS = frozenset(("this", "table", "db", "alias"))
_PLAIN_NODES = frozenset(
    (
        exp.Select,
        exp.From,
        exp.Where,
        exp.Limit,
        exp.Table,
        exp.TableAlias,
        exp.Column,
        exp.Identifier,
        exp.Star,
        exp.Literal,
        exp.Paren,
        exp.And,
        exp.EQ,
        exp.NEQ,
        exp.GT,
        exp.GTE,
        exp.LT,
        exp.LTE,
    )
)


class _Generator(Spark.Generator):  # type: ignore[misc, valid-type]
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Any]] = {
        **Spark.Generator.TRANSFORMS,
        # Spark has both, exactly.
        exp.WithinGroup: lambda self, node: (
            f"{self.sql(node, 'this')} WITHIN GROUP ({self.sql(node, 'expression').strip()})"
        ),
        exp.PercentileCont: lambda self, node: self.func("PERCENTILE_CONT", node.this),
        exp.PercentileDisc: lambda self, node: self.func("PERCENTILE_DISC", node.this),
        exp.RegexpILike: lambda self, node: (
            f"{self.sql(node, 'this')} RLIKE CONCAT('(?i)', {self.sql(node, 'expression')})"
        ),
    }


class _ToSpark(Spark):
    Generator = _Generator


_TO_SPARK = _ToSpark()
_FORMATTED = ("TO_CHAR", "TO_DATE", "TO_TIMESTAMP")


class _Parser(Postgres.Parser):  # type: ignore[misc, valid-type]
    # sqlglot would pass over what it does not know in a format.
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        name: build for name, build in Postgres.Parser.FUNCTIONS.items() if name not in _FORMATTED
    }


class _FromPostgres(Postgres):
    Parser = _Parser
    INDEX_OFFSET = 0  # indexes stay as they are written
    ORIGINAL_NAME_META_KEY = WRITTEN_NAME


def parse(text: str) -> exp.Expr:
    """A statement of PostgreSQL; a mistake has its place."""
    try:
        # sqlglot casts the text, and then makes a time of it.
        text = _CAST_OF_TIME.sub(r"(\1)::", text)
        # sqlglot does not read arrays of names of things, which are texts here, or of their numbers, which have no sign.
        read = _NUMBERS_OF_THINGS.sub("::uint[]", _NAMES_OF_THINGS.sub("::text[]", text))
        return parse_one(read, dialect=_FromPostgres)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = str(first.get("description") or error).split("\n")[0].partition(" but got <")[0].rstrip(". ")
        if "<class" in what:  # a part of the statement, by sqlglot's name of it
            what = "a part of the statement is missing"
        near = str(first.get("highlight") or "")
        raise WireProblem(
            SYNTAX,
            f"cannot read this SQL: {what}" + (f' at or near "{near}"' if near else ""),
            hint="the statement is read as PostgreSQL's; for Spark's own SQL: SET dialect = spark",
            at=_offset(text, first.get("line"), first.get("col"), near),
        ) from None
    except (SqlglotError, RecursionError) as error:
        raise WireProblem(SYNTAX, f"cannot read this SQL: {str(error).splitlines()[0]}") from None


def _offset(text: str, line: object, column: object, near: str) -> int | None:
    """sqlglot tells where a token ends."""
    if not (isinstance(line, int) and isinstance(column, int)):
        return None
    lines = text.split("\n")
    return min(len(text), max(0, sum(len(each) + 1 for each in lines[: line - 1]) + column - len(near)))


def plain_shape(text: str) -> str | None:
    """The text with 0 in place of whole numbers, if it has no quotes, comments or signs that mean something else to Spark; None
    otherwise."""
    return _WHOLE_NUMBER.sub("0", text) if _PLAIN_TEXT.fullmatch(text) else None


def is_same_in_spark(tree: exp.Expr) -> bool:
    """Whether a query that has a plain shape means the same as it is written: columns of tables picked by comparisons with whole
    numbers, without capital letters in names. So are most small queries, of whose time translating would take a tenth. All queries
    of one shape are alike in that."""
    if not isinstance(tree, exp.Select):
        return False
    if not all(isinstance(each, exp.Column | exp.Star) for each in tree.expressions):
        return False
    return {name for name, value in tree.args.items() if value} <= _PLAIN_CLAUSES and all(
        type(node) in _PLAIN_NODES and _is_plain(node) for node in tree.walk()
    )


def _is_plain(node: exp.Expr) -> bool:
    match node:
        case exp.Identifier():
            return node.this == node.this.lower()  # type: ignore[no-any-return]
        case exp.Literal():
            return _WHOLE_NUMBER.fullmatch(node.name) is not None
        case exp.Table() | exp.Column():
            has = {name for name, value in node.args.items() if value}
            return has <= _PLAIN_PARTS and node.db.lower() != FLOWS_SCHEMA
    return True


def spark_text(
    tree: exp.Expr,
    values: Sequence[object] = (),
    column_type: ColumnType = lambda table, column: None,
    zone: Zone = None,
) -> str:
    """A query of PostgreSQL in Spark's words, with its parameters' values."""
    for node in tree.find_all(*_REFUSED, exp.LimitOptions):
        if type(node) in _REFUSED:
            raise WireProblem(NOT_SUPPORTED, f"{_REFUSED[type(node)]}, which is not possible here")
        if node.args.get("with_ties"):
            raise WireProblem(
                NOT_SUPPORTED, "FETCH … WITH TIES is not translated", hint="filter by rank() OVER (ORDER BY …)"
            )
    tree = bound(tree, values)
    name_columns(tree)
    tree = rewritten(tree, _local)
    tree = rewritten(typed(tree, column_type, table_name, always=zone is not None), lambda node: translated(node, zone))
    try:
        return _TO_SPARK.generate(tree, copy=False)
    except (SqlglotError, ValueError) as error:
        raise WireProblem(NOT_SUPPORTED, f"this cannot be translated: {str(error).splitlines()[0]}") from None


def bound(tree: exp.Expr, values: Sequence[object]) -> exp.Expr:
    """The statement with values in place of $1, $2, …; the tree that was given is as it was."""
    tree = tree.copy()
    for node in list(tree.find_all(exp.Parameter)):
        number = _number(node)
        if number is None or not 0 < number <= len(values):
            raise WireProblem("42P02", f"there is no parameter ${node.name}")
        node.replace(literal(values[number - 1]))
    return tree


def rewritten(tree: exp.Expr, rewrite: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """The tree with every node rewritten, those below a node before it."""
    root = exp.Paren(this=tree)
    for node in reversed(list(tree.walk())):
        made = rewrite(node)
        if made is not node:
            node.replace(made)
    found = root.this
    found.pop()
    return found  # type: ignore[no-any-return]


def _number(node: exp.Expr) -> int | None:
    return int(node.name) if node.name.isascii() and node.name.isdigit() else None


def parameters_of(tree: exp.Expr) -> dict[int, list[exp.Parameter]]:
    """Where each parameter stands."""
    found: dict[int, list[exp.Parameter]] = {}
    for node in tree.find_all(exp.Parameter):
        number = _number(node)
        if number is not None:
            found.setdefault(number, []).append(node)
    return found


def table_name(table: exp.Table) -> str:
    """The warehouse's name of a table that a statement names."""
    schema = table.db.lower() if table.db else ""
    return table.name if schema in ("", FLOWS_SCHEMA) else f"{table.db}.{table.name}"


def local_name(parts: Sequence[str]) -> str:
    """The warehouse's name of a table of one, two or three parts."""
    schema = parts[-2] if len(parts) > 1 else FLOWS_SCHEMA
    return parts[-1] if schema == FLOWS_SCHEMA else f"{schema}.{parts[-1]}"


def quoted_name(name: str) -> str:
    """A name as PostgreSQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _local(node: exp.Expr) -> exp.Expr:
    """Names as the warehouse has them: no database, no schema of the flows."""
    if (isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)) or isinstance(node, exp.Column):
        node.set("catalog", None)
        if node.db.lower() == FLOWS_SCHEMA:
            node.set("db", None)
    elif isinstance(node, exp.Identifier) and not node.quoted:
        node.set("this", node.this.lower())
    return node
