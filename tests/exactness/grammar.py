"""Random flows: every construct that headgate keeps incrementally, and a few that it does not.

Each query is valid Spark SQL whose result has no free choice: row numbers and limits order by the whole row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.exactness.choosing import Chooser
from tests.exactness.expressions import Column, aggregate, expression, pair, predicate
from tests.exactness.world import View

JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_NO_ORDER = ("array", "struct")


@dataclass(frozen=True)
class Relation:
    """A table or flow that a query can read: its name and columns."""

    name: str
    columns: tuple[Column, ...]

    def columns_of(self, alias: str) -> list[Column]:
        return [Column(f"{alias}.{column.sql}", column.kind) for column in self.columns]


@dataclass(frozen=True)
class Input:
    """A FROM clause and the columns that it offers."""

    sql: str
    columns: list[Column]


@dataclass(frozen=True)
class Query:
    sql: str
    columns: tuple[Column, ...]


def view(choose: Chooser, name: str, relations: Sequence[Relation]) -> tuple[View, Relation]:
    """A flow over the relations, and itself as one that later flows can read."""
    query = _query(choose, relations)
    return View(name, query.sql), Relation(name, query.columns)


def _query(choose: Chooser, relations: Sequence[Relation]) -> Query:
    shape = choose.pick((_plain, _grouped, _plain, _grouped, _overall, _window, _top, _set_operation, _with, _limited))
    return shape(choose, relations)


def _named(outputs: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
    """A select list with names c0, c1, …"""
    text = ", ".join(f"{output.sql} AS c{index}" for index, output in enumerate(outputs))
    return text, tuple(Column(f"c{index}", output.kind) for index, output in enumerate(outputs))


def _plain(choose: Chooser, relations: Sequence[Relation]) -> Query:
    source = _from(choose, relations)
    outputs = [expression(choose, source.columns) for _ in range(choose.number(1, 3))]
    if choose.maybe(10):
        found = choose.pick(source.columns)
        inner = choose.pick(relations)
        match = pair(choose, [found], inner.columns_of("q"))
        if match is not None:
            outputs.append(_scalar(choose, match, inner))
    text, columns = _named(outputs)
    distinct = "DISTINCT " if choose.maybe(20) else ""
    return Query(f"SELECT {distinct}{text} FROM {source.sql}{_where(choose, source, relations)}", columns)


def _scalar(choose: Chooser, match: tuple[Column, Column], inner: Relation) -> Column:
    """A scalar subquery that is one value for every outer row."""
    value = aggregate(choose, inner.columns_of("q"))
    while " FILTER " in value.sql or "DISTINCT" in value.sql:
        value = Column("count(*)", "bigint")
    return Column(f"(SELECT {value.sql} FROM {inner.name} q WHERE {match[1].sql} = {match[0].sql})", value.kind)


def _grouped(choose: Chooser, relations: Sequence[Relation]) -> Query:
    source = _from(choose, relations)
    keys = [expression(choose, source.columns) for _ in range(choose.number(1, 2))]
    calls = [aggregate(choose, source.columns) for _ in range(choose.number(1, 3))]
    shown = calls if choose.maybe(15) else [*keys, *calls]
    text, columns = _named(shown)
    having = f" HAVING {_having(choose, calls)}" if choose.maybe(25) else ""
    by = ", ".join(key.sql for key in keys)
    return Query(f"SELECT {text} FROM {source.sql}{_where(choose, source, relations)} GROUP BY {by}{having}", columns)


def _having(choose: Chooser, calls: Sequence[Column]) -> str:
    return choose.pick(("count(*) > 1", "count(*) < 3", f"{calls[0].sql} IS NOT NULL"))


def _overall(choose: Chooser, relations: Sequence[Relation]) -> Query:
    source = _from(choose, relations)
    text, columns = _named([aggregate(choose, source.columns) for _ in range(choose.number(1, 3))])
    having = " HAVING count(*) > 1" if choose.maybe(10) else ""
    return Query(f"SELECT {text} FROM {source.sql}{_where(choose, source, relations)}{having}", columns)


def _total_order(columns: Sequence[Column]) -> str:
    return ", ".join(column.sql for column in columns)


def _window(choose: Chooser, relations: Sequence[Relation]) -> Query:
    source = _from(choose, relations)
    partition = expression(choose, source.columns).sql
    first = choose.pick(source.columns)
    order = f"{first.sql}{choose.pick(('', ' DESC', ' NULLS LAST'))}"
    total = f"{order}, {_total_order(source.columns)}"
    call = aggregate(choose, list(source.columns))
    summed = call.sql if "DISTINCT" not in call.sql else "count(*)"
    functions = (
        Column(f"row_number() OVER (PARTITION BY {partition} ORDER BY {total})", "int"),
        Column(f"rank() OVER (PARTITION BY {partition} ORDER BY {order})", "int"),
        Column(f"dense_rank() OVER (PARTITION BY {partition} ORDER BY {order})", "int"),
        Column(f"{summed} OVER (PARTITION BY {partition})", call.kind if summed == call.sql else "bigint"),
        Column(f"lag({first.sql}) OVER (PARTITION BY {partition} ORDER BY {total})", first.kind),
        Column(f"count(*) OVER (PARTITION BY {partition} ORDER BY {order})", "bigint"),
    )
    outputs = [expression(choose, source.columns), *choose.some(functions, 1, 2)]
    text, columns = _named(outputs)
    return Query(f"SELECT {text} FROM {source.sql}{_where(choose, source, relations)}", columns)


def _top(choose: Chooser, relations: Sequence[Relation]) -> Query:
    source = _from(choose, relations)
    text, columns = _named(choose.some(source.columns, 1, 3))
    order = _total_order([choose.pick(source.columns), *source.columns])
    number = f"row_number() OVER (PARTITION BY {expression(choose, source.columns).sql} ORDER BY {order})"
    most = choose.number(1, 2)
    if choose.maybe(50):
        return Query(f"SELECT {text} FROM {source.sql} QUALIFY {number} <= {most}", columns)
    names = ", ".join(column.sql for column in columns)
    return Query(f"SELECT {names} FROM (SELECT {text}, {number} AS rn FROM {source.sql}) WHERE rn <= {most}", columns)


def _set_operation(choose: Chooser, relations: Sequence[Relation]) -> Query:
    left, right = choose.pick(relations), choose.pick(relations)
    match = pair(choose, left.columns_of("x"), right.columns_of("y"))
    if match is None:
        return _plain(choose, relations)
    word = choose.pick(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
    kind = match[0].kind if match[0].kind == match[1].kind else "decimal"
    limit = f" WHERE {predicate(choose, right.columns_of('y'))}" if choose.maybe(40) else ""
    return Query(
        f"SELECT {match[0].sql} AS c0 FROM {left.name} x {word} SELECT {match[1].sql} FROM {right.name} y{limit}",
        (Column("c0", kind),),
    )


def _with(choose: Chooser, relations: Sequence[Relation]) -> Query:
    """A common table expression, read once or twice."""
    inner = choose.pick((_plain, _grouped))(choose, relations)
    named = Relation("w", inner.columns)
    outer = choose.pick((_plain, _grouped, _overall))(choose, [named, named, choose.pick(relations)])
    return Query(f"WITH w AS ({inner.sql}) {outer.sql}", outer.columns)


def _limited(choose: Chooser, relations: Sequence[Relation]) -> Query:
    """What is not incremental."""
    relation = choose.pick(relations)
    text, columns = _named(relation.columns_of("a"))
    if choose.maybe(50):
        order = _total_order(columns)
        return Query(f"SELECT {text} FROM {relation.name} a ORDER BY {order} LIMIT {choose.number(1, 3)}", columns)
    order = _total_order(relation.columns_of("a"))
    return Query(
        f"SELECT {text}, row_number() OVER (ORDER BY {order}) AS n FROM {relation.name} a",
        (*columns, Column("n", "int")),
    )


def _from(choose: Chooser, relations: Sequence[Relation]) -> Input:
    """One relation, or two or three joined."""
    first = choose.pick(relations)
    source = Input(f"{first.name} a", first.columns_of("a"))
    if choose.maybe(10):
        columns = tuple(Column(f"d{index}", column.kind) for index, column in enumerate(first.columns))
        names = ", ".join(f"{old.sql} AS {new.sql}" for old, new in zip(first.columns, columns, strict=True))
        source = Input(f"(SELECT {names} FROM {first.name}) a", Relation("", columns).columns_of("a"))
    arrays = [column for column in source.columns if column.kind == "array"]
    if arrays and choose.maybe(15):
        word = choose.pick(("LATERAL VIEW", "LATERAL VIEW OUTER"))
        text = f"{source.sql} {word} explode({choose.pick(arrays).sql}) x AS item"
        return Input(text, [*source.columns, Column("x.item", "int")])
    for alias in "bc"[: choose.pick((0, 1, 1, 2))]:
        source = _joined(choose, source, choose.pick(relations), alias)
    return source


def _joined(choose: Chooser, source: Input, relation: Relation, alias: str) -> Input:
    right = relation.columns_of(alias)
    match = pair(choose, source.columns, right)
    if match is None or choose.maybe(4):
        return Input(f"{source.sql} CROSS JOIN {relation.name} {alias}", [*source.columns, *right])
    kind = choose.pick(JOINS)
    equality = "<=>" if choose.maybe(8) else "="
    condition = f"{match[0].sql} {equality} {match[1].sql}"
    if choose.maybe(30):
        condition += f" AND {_residual(choose, source.columns, right)}"
    columns = source.columns if "SEMI" in kind or "ANTI" in kind else [*source.columns, *right]
    return Input(f"{source.sql} {kind} {relation.name} {alias} ON {condition}", columns)


def _residual(choose: Chooser, left: Sequence[Column], right: Sequence[Column]) -> str:
    match = pair(choose, left, right)
    if match is not None and match[0].kind not in _NO_ORDER and choose.maybe(60):
        return f"{match[0].sql} {choose.pick(('<', '<>', '>='))} {match[1].sql}"
    return predicate(choose, [*left, *right])


def _where(choose: Chooser, source: Input, relations: Sequence[Relation]) -> str:
    conditions = []
    if choose.maybe(35):
        conditions.append(predicate(choose, source.columns))
    if choose.maybe(25):
        found = _subquery(choose, source, choose.pick(relations))
        conditions += [found] if found is not None else []
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _subquery(choose: Chooser, source: Input, relation: Relation) -> str | None:
    inner = relation.columns_of("s")
    match = pair(choose, source.columns, inner)
    if match is None:
        return None
    outer, other = match[0].sql, match[1].sql
    limit = f" WHERE {predicate(choose, inner)}" if choose.maybe(40) else ""
    further = f" AND {predicate(choose, inner)}" if choose.maybe(40) else ""
    forms = [
        f"{outer} IN (SELECT {other} FROM {relation.name} s{limit})",
        f"{outer} NOT IN (SELECT {other} FROM {relation.name} s)",
        f"{outer} NOT IN (SELECT {other} FROM {relation.name} s{limit})",
        f"EXISTS (SELECT 1 FROM {relation.name} s WHERE {other} = {outer}{further})",
        f"NOT EXISTS (SELECT 1 FROM {relation.name} s WHERE {other} = {outer}{further})",
        f"(SELECT count(*) FROM {relation.name} s WHERE {other} = {outer}{further}) < 2",
    ]
    if match[0].kind not in (*_NO_ORDER, "boolean"):
        forms.append(f"{outer} >= (SELECT min({other}) FROM {relation.name} s{limit})")
    return choose.pick(forms)
