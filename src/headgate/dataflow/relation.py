"""What rules compute with: relations (SQL text) and keys (values that only the run looks at)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.delta.changes import JOB, WEIGHT

UNTIL = "__until"
"""Of a span: the job of the batch at which the row goes, NULL if it stays."""

SIGNS = "LATERAL VIEW explode(array(1L, -1L)) __signs AS __sign"
"""Behind FROM: each row twice, with `__sign` 1 and -1. A join with two rows would be an exchange."""


def quoted(name: str) -> str:
    """The name as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def column_list(names: Iterable[str], qualifier: str | None = None) -> str:
    prefix = f"{qualifier}." if qualifier else ""
    return ", ".join(prefix + quoted(name) for name in names)


def hidden_number(value: int, nullable: str) -> str:
    """A number that is no part of generated code, as literals are: for the next job's number all of it would be compiled again.

    `nullable` is an expression that Spark cannot tell to be never NULL.
    """
    return f"get(array({value}L), 0 * CAST({nullable} IS NULL AS INT))"


def same_values(left: str, right: str, pairs: Sequence[tuple[str, str]], *, same_types: bool = True) -> str:
    """The condition of a join on columns where NULL equals NULL.

    Spark is given one long to join on, the hash, instead of two columns for each. Types must be the same for that, and none a
    text with a collation, which has equal values of different hashes.
    """
    columns = [(f"{left}.{quoted(one)}", f"{right}.{quoted(other)}") for one, other in pairs]
    if not same_types:
        return " AND ".join(f"{one} <=> {other}" for one, other in columns)
    hashes = (f"xxhash64({', '.join(side)})" for side in zip(*columns, strict=True))
    # Not `<=>`, nor its long form with OR: Spark would join on these.
    equal = "".join(f" AND COALESCE({one} = {other}, {one} IS NULL AND {other} IS NULL)" for one, other in columns)
    return f"{' = '.join(hashes)}{equal}"


@dataclass(frozen=True, slots=True)
class Relation:
    """A set of rows as Spark SQL.

    `source` can stand behind FROM: a view's name, or a query in parentheses. A *delta* has `__job` and `__weight` besides
    `columns`; a *state* has neither. `rows` is known once the relation was settled (computed and kept).

    A delta may be *spanned*: it then says of rows when they are there, as `__job` to before `__until`. `__job` is 0 for a row
    from before the batch; its change is that it goes. Rows that change in many jobs of a batch meet only those of their time.
    """

    source: str
    columns: tuple[str, ...]
    rows: int | None = None
    spanned: bool = False

    @property
    def settled(self) -> bool:
        return self.rows is not None

    @property
    def marks(self) -> tuple[str, ...]:
        """What a delta's rows have besides the columns."""
        return (JOB, WEIGHT, UNTIL) if self.spanned else (JOB, WEIGHT)


def select(text: str, columns: Sequence[str], *, spanned: bool = False) -> Relation:
    return Relation(f"({text})", tuple(columns), spanned=spanned)


def union_all(parts: Sequence[Relation | None], columns: Sequence[str], weighted: bool = True) -> Relation | None:
    """All rows of the parts that are there, columns by name."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    if len(present) == 1 and present[0].columns == tuple(columns):
        return present[0]
    spanned = any(part.spanned for part in present)
    present = [as_spans(part) if spanned else part for part in present]
    names = (*columns, *present[0].marks) if weighted else tuple(columns)
    texts = [f"SELECT {column_list(names)} FROM {part.source}" for part in present]
    return select(" UNION ALL ".join(texts), columns, spanned=spanned)


def as_spans(delta: Relation) -> Relation:
    """The delta in spanned form: a change is there from its job on, also one with a negative weight."""
    if delta.spanned:
        return delta
    names = column_list((*delta.columns, JOB, WEIGHT))
    return select(f"SELECT {names}, CAST(NULL AS BIGINT) AS {UNTIL} FROM {delta.source}", delta.columns, spanned=True)


def as_changes(delta: Relation) -> Relation:
    """The delta in plain form: of each span its beginning and its end, as far as they are in the batch."""
    if not delta.spanned:
        return delta
    return select(
        f"SELECT {column_list(delta.columns)}{', ' if delta.columns else ''}IF(__sign > 0, {JOB}, {UNTIL}) AS {JOB},"
        f" {WEIGHT} * __sign AS {WEIGHT} FROM {delta.source} {SIGNS}"
        f" WHERE IF(__sign > 0, {JOB} > 0, {UNTIL} IS NOT NULL)",
        delta.columns,
    )


def netted(relation: Relation) -> Relation:
    """Equal rows of the same job summed up; what cancels is gone."""
    names = column_list((*relation.columns, JOB))
    return select(
        f"SELECT {names}, SUM({WEIGHT}) AS {WEIGHT} FROM {relation.source} GROUP BY {names} HAVING SUM({WEIGHT}) <> 0",
        relation.columns,
    )


class KeyValues(Protocol):
    """Values of keys, one column for each; what they are, only the run knows that made them."""

    def select(self, places: list[int], /) -> KeyValues:
        """The columns at these places."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A restriction: only rows whose `columns` equal one of `values` (column by column, in order) are wanted.

    Always a superset of what is needed, so an operator may hand on fewer columns than it was given.
    """

    columns: tuple[str, ...]
    values: KeyValues

    def renamed(self, names: dict[str, str]) -> Keys | None:
        """The restriction on other names; columns without a new name are dropped."""
        kept = [index for index, column in enumerate(self.columns) if column in names]
        if not kept:
            return None
        return Keys(tuple(names[self.columns[index]] for index in kept), self.values.select(kept))

    def only(self, columns: Iterable[str]) -> Keys | None:
        return self.renamed({column: column for column in columns})
