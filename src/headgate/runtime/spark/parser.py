"""Queries as Spark's own parser reads them: for texts that headgate's parser cannot read.

The parsed plan is judged as strictly as `headgate.sql.guard` judges a syntax tree: it may hold nothing but the kinds of
nodes listed here, functions that are allowed, and tables by their names. What is judged is what Spark then runs.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.errors import DefiniteError, FlowError, Location
from headgate.runtime.spark.problems import refusal
from headgate.sql.functions import CONTEXT, CONTEXT_WITHOUT_ARGUMENTS, may_name_an_instant
from headgate.sql.guard import (
    Problem,
    function_problem,
    name_problem,
    require_allowed_words,
    require_one_query,
    table_function_problem,
)
from headgate.sql.hidden_columns import HiddenOf
from headgate.sql.names import folded, is_mentioned
from headgate.sql.references import Edited, Qualifier, TableReference, TableText


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PLANS = _names(
    """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit LocalRelation
    Offset OneRowRelation PipeOperator Pivot Project Repartition RepartitionByExpression ResolvedInlineTable Sample Sort
    SubqueryAlias Union UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedQualify UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith Unpivot
    WithWindowDefinition
    """
)
"""Kinds of plan nodes that a query may have."""

_EXPRESSIONS = _names(
    """
    Add AggregateExpression Alias And AnyValue AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen
    Cast Coalesce Collate Concat CreateNamedStruct Cube CurrentDate CurrentRow CurrentTime CurrentTimestamp CurrentUser
    Divide EqualNullSafe EqualTo Exists First GreaterThan GreaterThanOrEqual GroupingSets ILike In InSubquery
    IntegralDivide IsNotNull IsNull LambdaFunction Last LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny
    ListQuery Literal LocalTimestamp MultiAlias Multiply NamePlaceholder NamedArgumentExpression Not NotLikeAll
    NotLikeAny Or Overlay PipeExpression RLike Remainder Rollup ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight
    ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight Substring
    Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing UnboundedPreceding UnresolvedAlias
    UnresolvedAttribute UnresolvedCollation UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
    UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedRegex UnresolvedStar UnresolvedStarExcept
    UnresolvedStarExceptOrReplace UnresolvedWindowExpression UnspecifiedFrame WindowExpression WindowSpecDefinition
    WindowSpecReference
    """
)
"""Kinds of expressions that the parser makes by itself; all else is a function by its name."""

_OF_CONTEXT = _names("CurrentDate CurrentTime CurrentTimestamp CurrentUser LocalTimestamp Sample")
_PACKAGE = "org.apache.spark.sql.catalyst."
_FORM = "this form of query cannot be run here"


class SparkParser:
    """The parser of a Spark session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def read(self, text: str, where: Location, hidden: HiddenOf = lambda _: ()) -> TableText:
        """The query's tables; a DefiniteError in the user's words when it is not SQL, or may not be run.

        `hidden` gives the hidden columns of a table.
        """
        require_one_query(text, where)
        require_allowed_words(text, where)
        try:
            plan = self._session._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except (PySparkException, Py4JJavaError) as error:
            words, place = refusal(error, Edited(text, text, ()), where)
            raise FlowError(f"cannot read this SQL: {words}", where=place, hint="write it as Spark SQL") from None
        found = _Plan(text, where, hidden)
        found.visit(plan, frozenset())
        return found.tables()


class _Plan:
    """What a parsed plan names; refuses what it may not hold."""

    def __init__(self, text: str, where: Location, hidden: HiddenOf) -> None:
        self._text = text
        self._where = where
        self._hidden_of = hidden
        self._stars: list[int] = []
        self._references: list[TableReference] = []
        self._qualifiers: list[Qualifier] = []
        # The parser has made dates of such words already.
        self._is_repeatable = not may_name_an_instant(text)

    def tables(self) -> TableText:
        references = tuple(sorted(self._references, key=lambda reference: reference.start))
        named = next((name for reference in references for name in reference.hidden), None)
        if named is not None and self._stars:
            raise DefiniteError(
                f"'*' cannot stand beside {named} in a query that only Spark's parser reads",
                where=self._where.within(self._text, self._stars[0]),
                hint="name the columns",
            )
        return TableText(self._text, references, tuple(self._qualifiers), (), self._is_repeatable)

    def visit(self, plan: Any, hidden: frozenset[str], aliased: bool = False, sample_end: int | None = None) -> None:
        """`hidden`: names of common table expressions in sight; `aliased`: the node above names this one's rows."""
        kind = self._kind(plan, _PLANS)
        if kind == "UnresolvedWith":
            for definition in _items(plan.cteRelations()):
                name = folded(str(definition._1()))
                self.visit(definition._2(), hidden | {name} if plan.allowRecursion() else hidden)
                hidden = hidden | {name}
        elif kind == "UnresolvedRelation":
            self._relation(plan, hidden, aliased, sample_end)
        elif kind == "UnresolvedTableValuedFunction":
            names = [str(part) for part in _items(plan.name())]
            self._require(table_function_problem(".".join(names)), plan)
        elif kind == "WithWindowDefinition":
            for window in _items(plan.windowDefinitions().values().toSeq()):
                self._expression(window, hidden)
        for expression in _items(plan.expressions()):
            self._expression(expression, hidden)
        start, end = _span(plan)
        is_sample = self._text[start:end].upper().startswith("TABLESAMPLE")
        names_rows = kind == "SubqueryAlias" or (aliased and (is_sample or kind == "UnresolvedSubqueryColumnAliases"))
        for child in _items(plan.children()):
            self.visit(child, hidden, names_rows, end if is_sample else None)

    def _relation(self, plan: Any, hidden: frozenset[str], aliased: bool, sample_end: int | None) -> None:
        names = [str(part) for part in _items(plan.multipartIdentifier())]
        start, end = _span(plan)
        if not plan.options().isEmpty() or plan.isStreaming():
            self._require(("a table has no options here", "write the table's name alone"), plan)
        if len(names) == 1 and folded(names[0]) in hidden:
            return
        written = self._text[start:end]
        if _parts(written) != names:
            self._require(("a name cannot be computed by IDENTIFIER", "write the name itself"), plan)
        self._require(name_problem(names, written.endswith("`")), plan)
        name, called = ".".join(names), names[-1]
        hidden_columns = tuple(column for column in self._hidden_of(name) if is_mentioned(column, self._text))
        self._references.append(
            TableReference(name, start, end, called if aliased else None, called, sample_end or end, hidden_columns)
        )

    def _expression(self, expression: Any, hidden: frozenset[str]) -> None:
        kind = self._kind(expression, _EXPRESSIONS)
        children = _items(expression.children())
        if kind == "UnresolvedFunction":
            self._function(
                expression, [str(part) for part in _items(expression.nameParts())], expression.arguments().size()
            )
        elif kind == "UnresolvedGenerator":
            self._function(expression, str(expression.name().unquotedString()).split("."), expression.children().size())
        elif kind == "UnresolvedAttribute":
            self._qualifier(expression)
        elif kind.startswith("UnresolvedStar"):
            self._stars.append(_span(expression)[0])
            if kind == "UnresolvedStarExceptOrReplace" and expression.replacements().isDefined():
                children += _items(expression.replacements().get())
        elif kind in ("Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"):
            self.visit(expression.plan(), hidden)
        for child in children:
            self._expression(child, hidden)

    def _function(self, expression: Any, names: list[str], arguments: int) -> None:
        if len(names) > 1:
            problem: Problem | None = (
                f"{names[-1]} is called by a name of several parts",
                "call functions by their name alone",
            )
        else:
            problem = function_problem(names[0], arguments)
            name = names[0].lower()
            if name in CONTEXT or (name in CONTEXT_WITHOUT_ARGUMENTS and not arguments):
                self._is_repeatable = False
        self._require(problem, expression)

    def _qualifier(self, attribute: Any) -> None:
        names = [str(part) for part in _items(attribute.nameParts())]
        if len(names) < 3:
            return
        start, end = _span(attribute)
        first = _PART.match(self._text[start:end])
        if first is not None:
            self._qualifiers.append(Qualifier(".".join(folded(name) for name in names[:2]), start, start + first.end()))

    def _kind(self, node: Any, allowed: frozenset[str]) -> str:
        package, _, name = str(node.getClass().getName()).removesuffix("$").rpartition(".")
        if not f"{package}.".startswith(_PACKAGE) or name not in allowed:
            self._require((f"{_FORM}: {_words(name)}", "write one SELECT over named tables"), node)
        if name in _OF_CONTEXT:
            self._is_repeatable = False
        return name

    def _require(self, problem: Problem | None, node: Any) -> None:
        if problem is not None:
            start = _span(node)[0]
            raise DefiniteError(problem[0], where=self._where.within(self._text, start), hint=problem[1])


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _span(node: Any) -> tuple[int, int]:
    """Where the node stands in the text: its first letter and the one after its last."""
    origin = node.origin()
    start, stop = origin.startIndex(), origin.stopIndex()
    return (int(start.get()) if start.isDefined() else 0), (int(stop.get()) + 1 if stop.isDefined() else 0)


_PART = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\s.`]+))\s*(?:\.|\Z)")


def _parts(name: str) -> list[str] | None:
    """The parts of a name as it is written, `a . b`; None for anything else."""
    found = list(_PART.finditer(name))
    if not found or "".join(part[0] for part in found) != name:
        return None
    return [part[2] if part[1] is None else part[1].replace("``", "`") for part in found]


def _words(name: str) -> str:
    """`ScriptTransformation` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
