"""Random queries over placed tables, most of which translate."""

from __future__ import annotations

from random import Random

from tests.serving.numbers import TEXTS

_LITERALS = {
    "int": ["0", "2", "-1", "3", "99999", "2147483648"],
    "decimal": ["1.5", "-0.25", "2.125", "3"],
    "string": ["'" + text.replace("'", "''") + "'" for text in TEXTS],
    "date": ["DATE '2024-02-29'", "DATE '0001-01-01'", "'2024-02-29'"],
    "timestamp": ["TIMESTAMP '2024-02-29 23:00:00.5'", "TIMESTAMP '2024-02-29'"],
    "boolean": ["TRUE", "FALSE"],
    "double": ["ratio"],
}
_COLUMNS = {
    "int": ["id", "a", "small", "tiny"],
    "decimal": ["amount", "price"],
    "string": ["text", "other"],
    "date": ["day"],
    "timestamp": ["at"],
    "boolean": ["yes"],
    "double": ["ratio"],
}


def expression(random: Random, kind: str, depth: int = 2) -> str:
    """An expression of a kind over the table's columns."""
    plain = random.choice([random.choice(_COLUMNS[kind]), random.choice(_LITERALS[kind])])
    if depth == 0 or random.random() < 0.3:
        return plain

    def of(kind: str) -> str:
        return expression(random, kind, depth - 1)

    choices = [random.choice(_COLUMNS[kind])]
    match kind:
        case "int":
            choices += [f"({of('int')} + {of('int')})", f"(a - {of('int')})", f"(a * {random.randint(0, 9)})"]
            choices += [
                f"length({of('string')})",
                "year(day)",
                "month(day)",
                "-a",
                f"coalesce(a, {random.randint(0, 5)})",
            ]
        case "decimal":
            choices += [
                "(amount + price)",
                "(price * 3)",
                "(amount - 1.5)",
                "(price * price)",
                "-amount",
                "(amount + a)",
            ]
            choices += ["(price * -2)", "coalesce(amount, amount)"]
        case "string":
            choices += [f"({of('string')} || {of('string')})", f"concat(text, {of('string')}, other)"]
            choices += [f"coalesce(text, {of('string')})", "nullif(text, other)"]
        case _:
            pass
    choices.append(f"CASE WHEN {condition(random, depth - 1)} THEN {random.choice(_COLUMNS[kind])} END")
    return random.choice(choices)


def condition(random: Random, depth: int = 2) -> str:
    kind = random.choice(list(_COLUMNS))
    left, right = expression(random, kind, max(depth, 0)), expression(random, kind, max(depth, 0))
    column = random.choice(_COLUMNS[kind])
    choices = [
        f"{left} {random.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {right}",
        f"{column} IN ({', '.join(random.sample(_LITERALS[kind], min(2, len(_LITERALS[kind]))))})",
        f"{column} NOT IN ({random.choice(_LITERALS[kind])})",
        f"{column} BETWEEN {left} AND {right}",
        f"{column} IS {random.choice(['', 'NOT '])}NULL",
        f"text {random.choice(['', 'NOT '])}LIKE '{random.choice(['%', '_', 'x%', '%ü%', '__', 'a_b%', 'Ü%'])}'",
        "yes",
    ]
    if depth > 0:
        choices += [
            f"({condition(random, depth - 1)} AND {condition(random, depth - 1)})",
            f"({condition(random, depth - 1)} OR {condition(random, depth - 1)})",
            f"NOT ({condition(random, depth - 1)})",
        ]
    return random.choice(choices)


def random_query(random: Random) -> tuple[str, bool]:
    """A query, and whether its rows come in a certain order."""
    where = f" WHERE {condition(random)}" if random.random() < 0.8 else ""
    kinds = [random.choice(list(_COLUMNS)) for _ in range(random.randint(1, 3))]
    listed = ", ".join(f"{expression(random, kind)} AS c{number}" for number, kind in enumerate(kinds))
    order = random.choice(["", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST"])
    match random.randint(0, 8):
        case 0:
            return (
                f"SELECT * FROM facts{where} ORDER BY {random.choice(['text', 'amount', 'at', 'yes'])}{order}, id",
                True,
            )
        case 1:
            limit = f" LIMIT {random.randint(0, 9)}"
            return f"SELECT {listed}, id FROM facts{where} ORDER BY 1{order}, id{order}{limit}", True
        case 2:
            keys = random.sample(["a", "text", "day", "yes", "small"], 2)
            aggregates = "COUNT(*), COUNT(DISTINCT text) AS d, SUM(amount) AS s, SUM(a), MIN(other) AS l, MAX(at) AS h, sum(tiny) AS t"
            having = random.choice(["", " HAVING COUNT(*) > 1", " HAVING MAX(a) >= 0"])
            return f"SELECT {', '.join(keys)}, {aggregates} FROM facts{where} GROUP BY {', '.join(keys)}{having}", False
        case 3:
            return f"SELECT COUNT(*) AS n, MIN(text) AS l, MAX(price) AS h, SUM(price) AS s FROM facts{where}", False
        case 4:
            join = random.choice(["JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN"])
            return (
                f"SELECT f.id, s.n, s.total, f.Amount FROM facts f {join} sums AS s ON f.a = s.a AND f.text <=> s.text",
                False,
            )
        case 5:
            inner = f"SELECT a AS k, amount FROM facts{where}"
            return f"WITH w AS ({inner}) SELECT k, SUM(amount) AS s FROM w GROUP BY 1", False
        case 6:
            return f"SELECT DISTINCT text, yes FROM facts{where} UNION ALL SELECT text, yes FROM bag", False
        case 7:
            return f"SELECT x.c, y.n FROM (SELECT a + 1 AS c FROM facts{where}) x, sums y WHERE x.c = y.a", False
        case _:
            return f"SELECT {listed} FROM facts AS t{where}", False
