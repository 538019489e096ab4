"""SQL text with the position of every parsed part.

The text that a user wrote is never regenerated: an expression in the graph is the user's own text with column
references replaced. For that, each node of the syntax tree knows its span, the first and last token it was parsed from.

    SELECT p.store , sum ( l.qty )          tokens 0..9
           |-----|   |-----------|          spans of the two select items

Invariants: spans nest like the tree; text rebuilt from a span differs from the original in white space and comments
only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headgate.dataflow.expression import Expression
from headgate.errors import FlowError, Location
from headgate.sql.bounds import bounded_recursion, require_bounded_depth, require_bounded_tokens
from headgate.text import require_text

SPAN = "span"


class SyntaxProblem(FlowError):
    """A text that headgate's own parser cannot read; Spark's may."""


Span = tuple[int, int]

_RECORDED = (
    "_parse_expression",
    "_parse_assignment",
    "_parse_disjunction",
    "_parse_conjunction",
    "_parse_equality",
    "_parse_comparison",
    "_parse_range",
    "_parse_bitwise",
    "_parse_term",
    "_parse_factor",
    "_parse_exponent",
    "_parse_unary",
    "_parse_type",
    "_parse_column",
    "_parse_column_reference",
    "_parse_field",
    "_parse_function",
    "_parse_function_call",
    "_parse_primary",
    "_parse_atom",
    "_parse_lambda",
    "_parse_select",
    "_parse_select_or_expression",
    "_parse_ordered",
    "_parse_interval",
    "_parse_case",
    "_parse_join",
    "_parse_cte",
    "_parse_subquery",
    "_parse_where",
    "_parse_group",
    "_parse_having",
    "_parse_qualify",
    "_parse_order",
    "_parse_limit",
    "_parse_offset",
    "_parse_with",
    "_parse_from",
    "_parse_lateral",
    "_parse_set_operations",
    "_parse_query_modifiers",
    "_parse_table_alias",
    "_parse_grouping_sets",
    "_parse_grouping_set",
    "_parse_cube_or_rollup",
    "_parse_table_parts",
    "_parse_id_var",
)


def _recording(name: str) -> Callable[..., Any]:
    original = getattr(SparkParser, name)

    @functools.wraps(original)
    def parse(self: SpanParser, *arguments: Any, **options: Any) -> Any:
        start = self._index
        result = original(self, *arguments, **options)
        if isinstance(result, exp.Expr) and self._index > start:
            _widen(result, start, self._index - 1)
        return result

    return parse


def _widen(node: exp.Expr, first: int, last: int) -> None:
    known = node.meta.get(SPAN)
    node.meta[SPAN] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))


class SpanParser(SparkParser):
    """The Spark parser, keeping functions as they are written and recording spans."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.FUNCTION_PARSERS[name]
        for name in ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "SUBSTR", "TRIM", "LISTAGG")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parser for name, parser in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name != "ANY"
    }

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        start = self._index
        if isinstance(this, exp.Expr) and not alias and SPAN not in this.meta:
            _widen(this, self._first_token(this, start), start - 1)
        result = super()._parse_window(this, alias)
        if isinstance(result, exp.Expr):
            first = result.meta[SPAN][0] if SPAN in result.meta else start
            _widen(result, min(first, self._first_token(result, start)), self._index - 1)
        return result

    def _first_token(self, node: exp.Expr, default: int) -> int:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if not starts:
            return default
        offset = min(starts)
        index = default
        while index > 0 and self._tokens[index - 1].start >= offset:
            index -= 1
        return index

    def _parse_table(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        start = self._index
        table = super()._parse_table(*arguments, **options)
        if isinstance(table, exp.Table) and not table.args.get("version"):
            table.set("version", self._parse_version())
        if isinstance(table, exp.Expr) and self._index > start:
            _widen(table, start, self._index - 1)
        return table


for _name in _RECORDED:
    setattr(SpanParser, _name, _recording(_name))


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of the tokens first..last."""

    first: int
    last: int
    text: str


class QueryText:
    """One query's text, its tokens and its syntax tree."""

    def __init__(self, text: str, where: Location) -> None:
        self.text = text
        self.where = where
        self.tokens = tokenize(text, where)
        self._by_start = {token.start: index for index, token in reversed(list(enumerate(self.tokens)))}
        self._tree: exp.Expr | None = None

    def parse(self) -> exp.Expr:
        """The one statement of the text, parsed once; a FlowError with its line when it is not SQL that the parser knows."""
        if self._tree is None:
            self._tree = self._parsed()
        return self._tree

    def _parsed(self) -> exp.Expr:
        pipe = next((token for token in self.tokens if token.token_type == TokenType.PIPE_GT), None)
        if pipe is not None:
            # The parser would make another query of it, whose parts stand nowhere in the text.
            raise SyntaxProblem(
                "cannot read the pipe |> here", where=self.at(pipe.start), hint="write it as SELECT … FROM …"
            )
        try:
            with bounded_recursion(self.where):
                trees = SpanParser(dialect=Spark()).parse(list(self.tokens), self.text)
        except ParseError as error:
            detail = error.errors[0] if error.errors else {}
            what = str(detail.get("description") or error).split("\n")[0].rstrip(".")
            near = str(detail.get("highlight") or "").strip()
            raise SyntaxProblem(
                f"cannot read this SQL: {what}" + (f", near '{near}'" if near else ""),
                where=self._found(detail.get("line"), detail.get("col"), near),
                hint="write it as Spark SQL",
            ) from None
        if len(trees) != 1 or trees[0] is None:
            raise FlowError("expected one query", where=self.where, hint="write one SELECT")
        require_bounded_depth(trees[0], self.where)
        return trees[0]

    def _found(self, line: object, column: object, near: str) -> Location:
        """The place of a token that the parser tells by its line and the column of its last letter."""
        if not isinstance(line, int) or not isinstance(column, int):
            return self.where
        return self.where.within("\n" * (line - 1) + " " * column, line - 1 + max(column - len(near), 0))

    def at(self, offset: int) -> Location:
        """The place of a letter of the text."""
        return self.where.within(self.text, offset)

    def location(self, node: exp.Expr) -> Location:
        span = self.find_span(node)
        if span is None or span[0] >= len(self.tokens):
            return self.where
        return self.at(self.tokens[span[0]].start)

    def find_span(self, node: exp.Expr) -> Span | None:
        """The node's first and last token, None for a node that the parser made up."""
        if isinstance(node, exp.Column):
            parts = [part for part in node.parts if "start" in part.meta]
            if parts:
                return self.identifier_span(parts[0])[0], self.identifier_span(parts[-1])[1]
        spans = [node.meta[SPAN]] if SPAN in node.meta else []
        if isinstance(node, exp.Identifier) and "start" in node.meta and not spans:
            return self.identifier_span(node)
        for child in node.iter_expressions():
            # A hint is parsed by itself: its parts tell their places in the hint.
            found = None if isinstance(child, exp.Hint) else self.find_span(child)
            if found is not None:
                spans.append(found)
        if not spans:
            return None
        first, last = min(first for first, _ in spans), max(last for _, last in spans)
        return (self._select_token(first) if isinstance(node, exp.Select) else first), last

    def _select_token(self, first: int) -> int:
        """Where a SELECT begins: the parser hands the first one of a set operation on before it has recorded its keyword."""
        for index in range(first, -1, -1):
            word = self.tokens[index].text.upper()
            if word == "SELECT" or (index == first and word in ("WITH", "FROM")):
                return index
        return first

    def span(self, node: exp.Expr) -> Span:
        found = self.find_span(node)
        if found is None:
            raise self._lost(node)
        return found

    def identifier_span(self, identifier: exp.Expr) -> Span:
        index = self._by_start.get(identifier.meta.get("start", -1))
        if index is None:
            raise self._lost(identifier)
        return index, index

    def _lost(self, node: exp.Expr) -> SyntaxProblem:
        return SyntaxProblem(
            f"cannot find {node.sql('spark')} in the text", where=self.where, hint="write it in another way"
        )

    def slice(self, first: int, last: int, edits: list[Edit]) -> Expression:
        """Tokens first..last on one line, with the edits made."""
        by_first = {edit.first: edit for edit in edits}
        pieces: list[str] = []
        index = first
        position = self.tokens[first].start
        while index <= last:
            token = self.tokens[index]
            if token.start > position:
                pieces.append(" ")
            edit = by_first.get(index)
            if edit is not None:
                pieces.append(edit.text)
                index = edit.last + 1
                position = self.tokens[edit.last].end + 1
                continue
            if token.start >= position:
                pieces.append(self.text[token.start : token.end + 1])
                position = token.end + 1
            index += 1
        return Expression(*pieces)

    def written(self, node: exp.Expr) -> str:
        """The node's text as the user wrote it, on one line."""
        return self.slice(*self.span(node), [])


def tokenize(text: str, where: Location) -> list[Token]:
    """Tokens of Spark SQL; a FlowError for text that has none, such as an unclosed string, or too many."""
    require_text(text, "the SQL text", where=where, error=FlowError)
    try:
        return require_bounded_tokens(list(Spark().tokenize(text)), text, where)
    except TokenError as error:
        cause = error.__cause__ or error
        # The tokenizer tells the line and the place in the whole text.
        found = re.search(r" from \d+:(\d+)", str(cause))
        raise SyntaxProblem(
            f"cannot read this SQL: {str(cause).split(chr(10))[0].replace(found[0] if found else '', '')}",
            where=where.within(text, int(found[1]) if found else 0),
            hint="close every quote and comment",
        ) from None
