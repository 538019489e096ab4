"""What is known about Spark's functions: aggregates, generators, functions of context.

A function that is in none of these sets is taken for a deterministic scalar function. Adding one is one word here.
"""

from __future__ import annotations

import re

from sqlglot import exp


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES = _names(
    """count sum avg mean min max stddev std stddev_samp stddev_pop variance var_samp var_pop count_if bool_and bool_or
    every some any bit_and bit_or bit_xor corr covar_pop covar_samp skewness kurtosis regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy median percentile percentile_approx approx_percentile
    approx_count_distinct try_sum try_avg"""
)
"""Functions of the bag of their input rows alone."""

ORDER_DEPENDENT_AGGREGATES = _names(
    """first last first_value last_value any_value collect_list collect_set array_agg listagg string_agg mode max_by
    min_by histogram_numeric percentile_cont percentile_disc count_min_sketch hll_sketch_agg hll_union_agg
    approx_top_k"""
)
"""Their result can depend on the order in which rows arrive."""

ZERO_WHEN_EMPTY = frozenset(("count", "count_if", "approx_count_distinct", "regr_count"))
"""Aggregates that yield 0 for no rows; every other one yields NULL."""

GROUPING = frozenset(("grouping", "grouping_id"))

CONTEXT = _names(
    """now current_date current_timestamp curdate localtimestamp current_time current_timezone unix_timestamp_now
    rand random randn uuid shuffle monotonically_increasing_id spark_partition_id input_file_name
    input_file_block_start input_file_block_length current_user session_user user current_database current_schema
    current_catalog version randstr uniform"""
)
"""Their result depends on when, where or by whom they are called."""

CONTEXT_WITHOUT_ARGUMENTS = frozenset(("unix_timestamp",))

_WORDS, _TIME = r"(?:now|today|tomorrow|yesterday)\b", r"T?\d\d?:"
_INSTANT = re.compile(rf"\s*{_WORDS}", re.IGNORECASE)
"""Texts that Spark reads as another instant on each call when it makes a date or a timestamp of them."""
_CAST_INSTANT = re.compile(rf"\s*(?:{_WORDS}|{_TIME})", re.IGNORECASE)
"""These, and a time without a date, which is the time of that day."""
_QUOTED_INSTANT = re.compile(rf"['\"]\s*(?:{_WORDS}|{_TIME})|\\[uU0-7]", re.IGNORECASE)
_HOLD_TEXT = (exp.Alias, exp.Case, exp.If, exp.Select, exp.Tuple)
"""Where a text stands for itself; anywhere else its neighbours may make an instant of it."""

GENERATORS = {
    "explode": ("col",),
    "explode_outer": ("col",),
    "posexplode": ("pos", "col"),
    "posexplode_outer": ("pos", "col"),
    "inline": (),
    "inline_outer": (),
    "stack": (),
    "json_tuple": (),
}
"""Table-generating functions and the names of their columns when none are given."""

RANK_LIKE = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
ROW_ORDER = frozenset(("row_number", "ntile", "lag", "lead"))
VALUE_OF_FRAME = frozenset(("first", "first_value", "last", "last_value", "any_value", "nth_value"))

UNIT_FIRST = frozenset(("timestampdiff", "timestampadd", "dateadd", "date_add", "datediff", "date_diff"))
"""With three arguments their first is a unit such as MONTH, not a column."""

_NODES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentTime: "current_time",
    exp.CurrentDatetime: "current_timestamp",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.Localtimestamp: "localtimestamp",
}


def function_name(node: exp.Expr) -> str | None:
    """The lower-case name of a called function, None for any other node."""
    if isinstance(node, exp.Anonymous):
        this = node.this
        return (this.name if isinstance(this, exp.Expr) else str(this)).lower()
    for kind, name in _NODES.items():
        if isinstance(node, kind):
            return name
    if isinstance(node, exp.Func) and type(node).__name__ in ("GroupConcat", "ListAgg", "StringAgg"):
        return "listagg"
    return None


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node calls an aggregate function (its FILTER or WITHIN GROUP wrapper not counted)."""
    name = function_name(node)
    return name is not None and (name in AGGREGATES or name in ORDER_DEPENDENT_AGGREGATES)


def context_function(node: exp.Expr) -> str | None:
    """What of the context the node asks for: the function that it calls, or the word that Spark reads as an instant."""
    if isinstance(node, exp.Literal):
        instants = _CAST_INSTANT if isinstance(node.parent, exp.Cast) else _INSTANT
        special = node.is_string and instants.match(node.this) and not isinstance(node.parent, _HOLD_TEXT)
        return f"'{node.this}'" if special else None
    name = function_name(node)
    if name is None:
        return None
    if name in CONTEXT or (name in CONTEXT_WITHOUT_ARGUMENTS and not node.expressions):
        return f"{name}()"
    return None


def may_name_an_instant(text: str) -> bool:
    """Whether a text of SQL holds a literal that may be such a word, or is written in escapes, which hide what it is."""
    return _QUOTED_INSTANT.search(text) is not None


def is_unit(node: exp.Column) -> bool:
    """Whether a column reference is the unit argument of a date function."""
    call = node.parent
    if call is None or function_name(call) not in UNIT_FIRST or len(call.expressions) != 3:
        return False
    return call.expressions[0] is node and len(node.parts) == 1
