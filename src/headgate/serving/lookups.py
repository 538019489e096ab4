"""Which indexes queries would use: columns that they compare with values, counted until an index is worth making."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from sqlglot import exp

from headgate.serving.placed import PlacedTable
from headgate.sql.expressions import conjuncts
from headgate.sql.names import folded

WORTH_AN_INDEX = 100
"""Queries by the same columns, after which there is one."""
MOST_COLUMNS = 3
MOST_INDEXES = 4
"""Of a table, besides those that its flow declares: each makes shipping slower."""
_RANGES = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)


def looked_up(tree: exp.Expr, tables: Mapping[str, PlacedTable]) -> tuple[str, tuple[str, ...]] | None:
    """The table of a query of one table, by its folded name, and the columns by which an index would find its rows.

    Those that equal values come first, in the table's order, then at most one that is bounded.
    """
    if not isinstance(tree, exp.Select) or tree.args.get("joins") or len(tables) != 1:
        return None
    source = tree.args["from_"].this if tree.args.get("from_") is not None else None
    if not isinstance(source, exp.Table):
        return None
    ((name, table),) = tables.items()
    columns = {folded(column): column for column in table.columns}
    where = tree.args.get("where")
    equal: set[str] = set()
    bounded: list[str] = []
    for part in conjuncts(where.this if where is not None else None):
        column = columns.get(folded(part.this.name)) if isinstance(part.this, exp.Column) else None
        if column is None or any(other is not part.this for other in part.find_all(exp.Column)):
            continue
        if isinstance(part, exp.EQ) or (isinstance(part, exp.In) and part.args.get("query") is None):
            equal.add(column)
        elif isinstance(part, _RANGES):
            bounded.append(column)
    found = [column for column in table.columns if column in equal][:MOST_COLUMNS]
    if len(found) < MOST_COLUMNS:
        found += [column for column in bounded if column not in equal][:1]
    return (name, tuple(found)) if found else None


class Lookups:
    """Counts what queries look up; may be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._told: set[tuple[str, tuple[str, ...]]] = set()

    def note(self, name: str, columns: tuple[str, ...]) -> bool:
        """Counts a query; gives, once, that an index on the columns is worth making."""
        with self._lock:
            place = (name, columns)
            self._seen[place] += 1
            if self._seen[place] < WORTH_AN_INDEX or place in self._told:
                return False
            self._told.add(place)
            return True


def with_wanted(
    table: PlacedTable, known: tuple[tuple[str, ...], ...], wanted: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """The indexes of a table: those that it has and declares, and of the wanted ones those that no other begins with."""
    found = list(dict.fromkeys((*known, *table.indexes)))
    room = MOST_INDEXES + len(table.indexes) - len(found)
    for columns in wanted:
        serves = any(columns == each[: len(columns)] for each in (*found, table.key))
        if not serves and room > 0:
            found.append(columns)
            room -= 1
    return tuple(found)
