"""Which text may be run as a query: one SELECT over named tables, and nothing that leaves them.

The text can come from anyone who may send SQL. Refused are other statements and scripts, files and catalogs in place of
tables, programs (TRANSFORM … USING), functions that are not on the list, names that are computed (IDENTIFIER), parameters, and
Spark's `${…}`, which puts settings and environment variables into the text before it is parsed, inside strings too.
What a query costs is not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headgate.errors import DefiniteError, Location
from headgate.sql.allowed_functions import ALLOWED, MOST_ARGUMENTS, REFUSED, TABLE_FUNCTIONS
from headgate.sql.lexing import require_one_reading
from headgate.sql.names import did_you_mean
from headgate.sql.positions import QueryText, SyntaxProblem
from headgate.text import require_text

FORMATS = frozenset(
    (
        "parquet",
        "delta",
        "csv",
        "json",
        "orc",
        "text",
        "avro",
        "xml",
        "binaryfile",
        "image",
        "libsvm",
        "iceberg",
        "hudi",
    )
)
"""Data sources that Spark reads a path with: format.`path`."""

_FIRST_WORDS = ("SELECT", "WITH", "VALUES", "FROM")
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\r\n]*|/\*.*?\*/)*([^\s(;]*)", re.DOTALL)
_PATH = re.compile(r"[/\\:]")
_ONE_SELECT = "write one SELECT, WITH … SELECT or VALUES"


def require_select(text: str, where: Location | None = None) -> QueryText:
    """The text, parsed. Raises a DefiniteError with the line and what to do when it may not be run.

    It is `SyntaxProblem` if nothing but the parser stands against the text: Spark's own may read it, whose plan is then judged.
    """
    start = where or Location("query")
    require_one_query(text, start)
    query = QueryText(text, start)
    require_one_reading(text, query.tokens, start)
    _check_tokens(query)
    _check_tree(query, query.parse())
    return query


def require_one_query(text: str, start: Location) -> None:
    """What can be told without a parser: there are no settings to put into the text, and it begins like a query."""
    require_text(text, "the query", where=start)
    _require_no_substitution(text, start)
    _require_first_word(text, start)


def require_allowed_words(text: str, start: Location) -> None:
    """What can be told by the words of a text: no program, no parameter, no name that is computed, no refused function."""
    try:
        query = QueryText(text, start)
    except SyntaxProblem:
        return
    _check_tokens(query)


def _require_no_substitution(text: str, where: Location) -> None:
    if "${" in text:
        raise DefiniteError(
            "a query cannot hold ${",
            where=where.within(text, text.index("${")),
            hint="for the two characters write '$' || '{'",
        )


def _require_first_word(text: str, where: Location) -> None:
    match = _FIRST_WORD.match(text)
    word = match[1].upper() if match is not None else ""
    if not word:
        raise DefiniteError("there is no query", where=where, hint=_ONE_SELECT)
    if word not in _FIRST_WORDS:
        raise DefiniteError(f"only a query can be run here, not {word[:30]}", where=where, hint=_ONE_SELECT)


Problem = tuple[str, str]
"""What is refused, and the hint."""


def _check_tokens(query: QueryText) -> None:
    tokens = query.tokens
    last = len(tokens)
    while last and tokens[last - 1].token_type == TokenType.SEMICOLON:
        last -= 1
    for index in range(last):
        for rule in _TOKEN_RULES:
            problem = rule(tokens, index)
            if problem is not None:
                raise _refused(query, tokens[index], *problem)


def _one_statement(tokens: list[Token], index: int) -> Problem | None:
    if tokens[index].token_type != TokenType.SEMICOLON:
        return None
    return "only one statement can be run", "send each query by itself"


def _no_program(tokens: list[Token], index: int) -> Problem | None:
    if not _is_word(tokens[index], "USING") or not _is_type(tokens, index + 1, TokenType.STRING):
        return None
    return "a query cannot run a program", "leave out TRANSFORM, MAP and REDUCE … USING"


def _no_computed_name(tokens: list[Token], index: int) -> Problem | None:
    if not _is_word(tokens[index], "IDENTIFIER") or not _is_type(tokens, index + 1, TokenType.L_PAREN):
        return None
    return "a name cannot be computed by IDENTIFIER", "write the name itself"


def _no_parameter(tokens: list[Token], index: int) -> Problem | None:
    written = tokens[index].text
    if tokens[index].token_type == TokenType.PLACEHOLDER or (_is_bare(tokens[index]) and written[:1] in ("@", "$")):
        return "a query has no parameters", "write the value itself"
    return None


def _no_table_statement(tokens: list[Token], index: int) -> Problem | None:
    if not _is_word(tokens[index], "TABLE") or _is_type(tokens, index - 1, TokenType.DOT):
        return None
    return "TABLE cannot be used here", "write SELECT * FROM name; a name that is TABLE goes into backquotes"


def _no_refused_function(tokens: list[Token], index: int) -> Problem | None:
    name = tokens[index].text.lower()
    if not _is_type(tokens, index + 1, TokenType.L_PAREN) or tokens[index].token_type == TokenType.STRING:
        return None
    if name in REFUSED:
        return f"the function {name} cannot be called: {REFUSED[name]}", "leave it out"
    if _is_type(tokens, index - 1, TokenType.DOT):
        return f"{tokens[index].text} is called by a name of several parts", "call functions by their name alone"
    return None


def _no_path(tokens: list[Token], index: int) -> Problem | None:
    """Wherever a table may stand, also where the parser sees a column."""
    name, quoted = tokens[index].text.lower(), tokens[index + 2] if index + 2 < len(tokens) else None
    if quoted is None or not _is_type(tokens, index + 1, TokenType.DOT) or quoted.token_type != TokenType.IDENTIFIER:
        return None
    if (name in FORMATS or "." in name) and _PATH.search(quoted.text):
        return _PATH_PROBLEM
    return None


_PATH_PROBLEM = ("a query cannot read files", "name a table of the warehouse")
_TOKEN_RULES: tuple[Callable[[list[Token], int], Problem | None], ...] = (
    _one_statement,
    _no_program,
    _no_computed_name,
    _no_parameter,
    _no_table_statement,
    _no_refused_function,
    _no_path,
)


def _check_tree(query: QueryText, tree: exp.Expr) -> None:
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise DefiniteError("only a query can be run here", where=query.where, hint=_ONE_SELECT)
    for node in _outside_hints(tree):
        if isinstance(node, (exp.DML, exp.DDL, exp.Command, exp.Into)) and not isinstance(node, exp.Query):
            raise DefiniteError("a query cannot change data", where=query.location(node), hint=_ONE_SELECT)
        if isinstance(node, (exp.Placeholder, exp.Parameter, exp.SessionParameter)):
            raise DefiniteError("a query has no parameters", where=query.location(node), hint="write the value itself")
        problem = _table_problem(node) if isinstance(node, exp.Table) else _function_problem(node)
        if problem is not None:
            raise DefiniteError(problem[0], where=query.location(node), hint=problem[1])


def _outside_hints(node: exp.Expr) -> Iterator[exp.Expr]:
    yield from node.walk(prune=lambda found: isinstance(found, exp.Hint))


def _table_problem(table: exp.Table) -> Problem | None:
    if isinstance(table.this, exp.Func):
        return table_function_problem(table.this.name)
    parts = table.parts
    if not all(isinstance(part, exp.Identifier) for part in parts):
        return "a table must be named here", "write table or source.table"
    return name_problem([part.name for part in parts], bool(parts[-1].args.get("quoted")))


def table_function_problem(name: str) -> Problem | None:
    """Why a function cannot stand in a FROM clause."""
    if name.lower() in TABLE_FUNCTIONS:
        return None
    if name.lower() in REFUSED:
        return f"the function {name} cannot be called: {REFUSED[name.lower()]}", "leave it out"
    return f"the function {name} cannot stand for a table", f"there are {', '.join(sorted(TABLE_FUNCTIONS))}"


def name_problem(names: Sequence[str], is_quoted: bool) -> Problem | None:
    """Why a name of these parts is not a table's; `is_quoted`: the last part is in backquotes."""
    is_format = names[0].lower() in FORMATS and is_quoted
    if any(_PATH.search(name) for name in names) or (len(names) == 2 and (is_format or "." in names[0])):
        return _PATH_PROBLEM
    if len(names) > 2:
        return f"there are no catalogs here: {'.'.join(names)}", "write table or source.table"
    return None


def _function_problem(node: exp.Expr) -> Problem | None:
    if isinstance(node, exp.QueryTransform):
        return "a query cannot run a program", "leave out TRANSFORM … USING"
    return function_problem(node.name, len(node.expressions)) if isinstance(node, exp.Anonymous) else None


def function_problem(called: str, arguments: int) -> Problem | None:
    """Why a function cannot be called, with so many arguments."""
    name = called.lower()
    if name in REFUSED:
        return f"the function {name} cannot be called: {REFUSED[name]}", "leave it out"
    if name not in ALLOWED:
        near = did_you_mean(name, ALLOWED) or ""
        return f"there is no function {name} to call", near if near.startswith(
            "did you"
        ) else "use Spark's own functions"
    if arguments > MOST_ARGUMENTS.get(name, arguments):
        return f"{name} cannot have options: they can name a file", "leave the last argument out"
    return None


def _is_type(tokens: list[Token], index: int, kind: TokenType) -> bool:
    return 0 <= index < len(tokens) and tokens[index].token_type == kind


def _is_bare(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING, TokenType.HEX_STRING)


def _is_word(token: Token, word: str) -> bool:
    return _is_bare(token) and token.text.upper() == word


def _refused(query: QueryText, token: Token, what: str, hint: str) -> DefiniteError:
    return DefiniteError(what, where=query.at(token.start), hint=hint)
