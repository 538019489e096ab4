"""Data expectations: what every row of a table should satisfy, and what happens to one that does not.

    CREATE MATERIALIZED VIEW orders (
        CONSTRAINT positive EXPECT (qty > 0) ON VIOLATION DROP ROW,
        CONSTRAINT known EXPECT (customer IS NOT NULL)
    ) AS query

A row satisfies a condition only if that is true: a condition that is NULL is violated, as WHERE has it.

    DROP     the view is `SELECT * FROM (query) WHERE (condition)`
    FAIL     the job that brings such a row fails, as one whose query fails does
    WARN     (or no ON VIOLATION) the row stays, and is counted

Violations are counted by a view of its own, `orders__expectations`: one row with a column per constraint, kept like any other view.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headgate.dataflow.flow import Expectation
from headgate.dataflow.relation import quoted
from headgate.errors import FlowError, Location
from headgate.sql.positions import QueryText

COUNTED = "__expectations"
"""What the name of the view that counts a table's violations ends with."""

_NOT_OF_A_ROW = (exp.Query, exp.Window)


def check_expectation(found: Expectation) -> None:
    """Raises when the condition is not one that a row by itself satisfies or not."""
    tree = QueryText(f"SELECT {found.condition}", found.where).parse()
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or tree.find(exp.From) is not None:
        raise FlowError(f"constraint {found.name}: expected one condition", where=found.where)
    condition = tree.expressions[0]
    if isinstance(condition, exp.Alias) or any(condition.find(kind) is not None for kind in _NOT_OF_A_ROW):
        raise FlowError(
            f"constraint {found.name} is not a condition on a row: ({found.condition})",
            where=found.where,
            hint="compare columns of the row; queries and windows go into the view's own query",
        )


def kept_query(query: str, query_where: Location, expectations: Sequence[Expectation]) -> tuple[str, Location]:
    """The query without the rows that are dropped, and where it begins."""
    dropped = [each.condition for each in expectations if each.action == "drop"]
    if not dropped:
        return query, query_where
    before = "SELECT * FROM ("
    text = f"{before}{query}\n) WHERE {' AND '.join(f'({condition})' for condition in dropped)}"
    # Places in the query are those in the file.
    column = (query_where.column or 1) - len(before)
    return text, Location(query_where.file, query_where.line, column)


def counting_query(table: str, query: str | None, expectations: Sequence[Expectation]) -> str:
    """How many rows violate each constraint: of the table, or of a query that also has the rows that are dropped."""
    counts = ", ".join(
        f"COUNT(CASE WHEN ({each.condition}) THEN NULL ELSE 1 END) AS {quoted(each.name)}" for each in expectations
    )
    rows = quoted(table) if query is None else f"({query}\n)"
    return f"SELECT {counts} FROM {rows}"
