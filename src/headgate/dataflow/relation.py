"""What rules compute with: relations (SQL text) and key sets (values the driver knows)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.delta.changes import JOB, WEIGHT

SIGNS = "LATERAL VIEW explode(array(1L, -1L)) __signs AS __sign"
"""Behind FROM: each row twice, with `__sign` 1 and -1. A join with two rows would be an exchange."""


def quoted(name: str) -> str:
    """The name as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def column_list(names: Iterable[str], qualifier: str | None = None) -> str:
    prefix = f"{qualifier}." if qualifier else ""
    return ", ".join(prefix + quoted(name) for name in names)


@dataclass(frozen=True, slots=True)
class Relation:
    """A set of rows as Spark SQL.

    `source` can stand behind FROM: a view's name, or a query in parentheses. A *delta* has `__job` and `__weight` besides
    `columns`; a *state* has neither. `rows` is known once the relation was settled (computed and kept).
    """

    source: str
    columns: tuple[str, ...]
    rows: int | None = None

    @property
    def settled(self) -> bool:
        return self.rows is not None


def select(text: str, columns: Sequence[str]) -> Relation:
    return Relation(f"({text})", tuple(columns))


def union_all(parts: Sequence[Relation | None], columns: Sequence[str], weighted: bool = True) -> Relation | None:
    """All rows of the parts that are there, columns by name."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    names = (*columns, JOB, WEIGHT) if weighted else tuple(columns)
    if len(present) == 1 and present[0].columns == tuple(columns):
        return present[0]
    texts = [f"SELECT {column_list(names)} FROM {part.source}" for part in present]
    return select(" UNION ALL ".join(texts), columns)


def netted(relation: Relation) -> Relation:
    """Equal rows of the same job summed up; what cancels is gone."""
    names = column_list((*relation.columns, JOB))
    return select(
        f"SELECT {names}, SUM({WEIGHT}) AS {WEIGHT} FROM {relation.source} GROUP BY {names} HAVING SUM({WEIGHT}) <> 0",
        relation.columns,
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """A restriction: only rows whose `columns` equal one of `values` (column by column, in order) are wanted.

    Always a superset of what is needed, so an operator may hand on fewer columns than it was given.
    """

    columns: tuple[str, ...]
    values: pa.Table

    def renamed(self, names: dict[str, str]) -> Keys | None:
        """The restriction on other names; columns without a new name are dropped."""
        kept = [index for index, column in enumerate(self.columns) if column in names]
        if not kept:
            return None
        return Keys(tuple(names[self.columns[index]] for index in kept), self.values.select(kept))

    def only(self, columns: Iterable[str]) -> Keys | None:
        return self.renamed({column: column for column in columns})
