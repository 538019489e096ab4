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
    shapes = (_plain, _grouped, _plain, _grouped, _overall, _window, _top, _set_operation, _with, _limited, _star)
    return choose.pick(shapes)(choose, relations)


def _named(outputs: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
    """A select list with names c0, c1, …"""
    text = ", ".join(f"{output.sql} AS c{index}" for index, output in enumerate(outputs))
    return text, tuple(Column(f"c{index}", output.kind) for index, output in enumerate(outputs))


def _plain(choose: Chooser, relations: Sequence[Relation]) -> Query:
    source = _from(choose, relations)
    outputs = [expression(choose, source.columns) for _ in range(choose.number(1, 3))]
    if choose.maybe(8):
        outputs = [Column("1", "int")]  # Rows count though none of their columns is read.
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
    by = "ALL" if shown is not calls and choose.maybe(20) else ", ".join(key.sql for key in keys)
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
    """Common table expressions: read once, twice or not at all, one over another."""
    inner = choose.pick((_plain, _grouped, _star))(choose, relations)
    named = Relation("w", inner.columns)
    tables, known = f"w AS ({inner.sql})", [named, named, choose.pick(relations)]
    if choose.maybe(30):
        second = choose.pick((_plain, _grouped, _overall))(choose, known)
        tables, known = f"{tables}, w2 AS ({second.sql})", [*known, Relation("w2", second.columns)]
    outer = choose.pick((_plain, _grouped, _overall))(choose, known)
    return Query(f"WITH {tables} {outer.sql}", outer.columns)


def _star(choose: Chooser, relations: Sequence[Relation]) -> Query:
    """`*` over one relation, plain or grouped."""
    found = derived(choose, relations)
    shape = choose.pick(("plain", "distinct", "grouped", "all"))
    named = Query(f"SELECT {_named(found.columns)[0]} FROM ({found.sql}) i", _named(found.columns)[1])
    if shape == "all":
        return Query(
            f"SELECT *, count(*) AS n FROM ({named.sql}) o GROUP BY ALL", (*named.columns, Column("n", "bigint"))
        )
    by = f" GROUP BY {', '.join(column.sql for column in named.columns)}" if shape == "grouped" else ""
    return Query(f"SELECT {'DISTINCT ' if shape == 'distinct' else ''}* FROM ({named.sql}) o{by}", named.columns)


def derived(choose: Chooser, relations: Sequence[Relation]) -> Query:
    """A query to stand in FROM: of its columns the query around may read all, some or none."""
    relation = choose.pick(relations)
    shape = choose.pick(("all", "filtered", "filtered", "computed", "union", "grouped", "nested"))
    columns = relation.columns
    where = f" WHERE {predicate(choose, relation.columns_of('i'))}"
    if shape == "all":
        return Query(f"SELECT * FROM {relation.name}", columns)
    if shape == "filtered":
        return Query(f"SELECT i.* FROM {relation.name} i{where}", columns)
    if shape == "nested":
        below = derived(choose, relations)
        return Query(f"SELECT * FROM ({below.sql}) i WHERE {predicate(choose, below.columns)}", below.columns)
    if shape == "grouped":
        key = choose.pick(relation.columns_of("i"))
        text, found = _named([key, aggregate(choose, relation.columns_of("i"))])
        return Query(f"SELECT {text} FROM {relation.name} i{where} GROUP BY {key.sql}", found)
    text, found = _named([expression(choose, relation.columns_of("i")) for _ in range(choose.number(1, 3))])
    if shape == "computed":
        return Query(f"SELECT {text} FROM {relation.name} i{where}", found)
    word = choose.pick(("UNION ALL", "UNION"))
    return Query(f"SELECT {text} FROM {relation.name} i {word} SELECT {text} FROM {relation.name} i{where}", found)


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
    first = _relation(choose, relations)
    source = Input(f"{first.name} a", first.columns_of("a"))
    arrays = [column for column in source.columns if column.kind == "array"]
    if arrays and choose.maybe(15):
        word = choose.pick(("LATERAL VIEW", "LATERAL VIEW OUTER"))
        text = f"{source.sql} {word} explode({choose.pick(arrays).sql}) x AS item"
        return Input(text, [*source.columns, Column("x.item", "int")])
    for alias in "bc"[: choose.pick((0, 1, 1, 2))]:
        source = _joined(choose, source, _relation(choose, relations), alias)
    return source


def _relation(choose: Chooser, relations: Sequence[Relation]) -> Relation:
    """A table, or a query in parentheses in place of one."""
    if choose.maybe(25):
        found = derived(choose, relations)
        return Relation(f"({found.sql})", found.columns)
    return choose.pick(relations)


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
        found = _subquery(choose, source, _relation(choose, relations))
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
        f"({predicate(choose, source.columns)} OR EXISTS (SELECT 1 FROM {relation.name} s WHERE {other} = {outer}))",
        f"NOT ({predicate(choose, source.columns)} OR {outer} IN (SELECT {other} FROM {relation.name} s{limit}))",
        f"EXISTS (SELECT 1 FROM {relation.name} s{limit})",
        f"NOT EXISTS (SELECT 1 FROM (SELECT * FROM {relation.name} s{limit}) e)",
        f"{outer} IN (SELECT {other} FROM {relation.name} s UNION SELECT {other} FROM {relation.name} s{limit})",
        f"coalesce((SELECT max({other}) FROM {relation.name} s WHERE {other} = {outer}), {outer}) IS NOT NULL",
    ]
    if match[0].kind not in (*_NO_ORDER, "boolean"):
        forms.append(f"{outer} >= (SELECT min({other}) FROM {relation.name} s{limit})")
    return choose.pick(forms)
