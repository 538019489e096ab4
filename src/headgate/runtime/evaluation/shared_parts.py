"""A part that several flows have: its changes are computed by the first evaluation that asks, and entered into Spark once.

The flows run in threads of their own. Whoever asks while the changes are being computed waits for them; what fails, fails for all who
share it, as it would in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.dataflow.graph import Node
from headgate.dataflow.relation import Relation, quoted
from headgate.dataflow.sharing import PartUse, SharedPart
from headgate.delta.changes import JobId
from headgate.runtime.spark.views import Views
from headgate.runtime.tables.stored import StoredTable


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The changes of a part: their rows, and a view of them."""

    rows: pa.Table
    view: str
    spanned: bool

    def used(self, use: PartUse) -> tuple[Relation, pa.Table]:
        """The changes under the names of a flow."""
        outputs = [f"{quoted(name)} AS {quoted(own)}" for own, name in use.columns.items()]
        relation = Relation("", use.node.columns, spanned=self.spanned)
        source = f"(SELECT {', '.join([*outputs, *relation.marks])} FROM {self.view})"
        names = [*(use.columns[own] for own in use.node.columns), *relation.marks]
        rows = self.rows.select(names).rename_columns([*use.node.columns, *relation.marks])
        return Relation(source, use.node.columns, spanned=self.spanned), rows


_MOST_PARTS = 256

Compute = Callable[[Node], tuple[pa.Table, StructType, bool] | None]
"""Gives a part's changes, their types and whether they are spans; None without changes."""
Place = tuple[int, tuple[StoredTable, ...], JobId, JobId]
"""A session, the part's tables and the jobs."""


@dataclass(eq=False)
class _AskedPart:
    place: Place
    views: Views
    left: int
    """How many flows may still ask."""
    rows: Future[SharedRows | None] = field(default_factory=Future)


class SharedParts:
    """The changes of parts that flows are just asking for."""

    def __init__(self, retire: Callable[[Views], None]) -> None:
        """`retire` closes views when no batch can still name them."""
        self._retire = retire
        self._lock = Lock()
        self._asked: dict[SharedPart, _AskedPart] = {}
        self.computed = 0
        """How often a part was computed."""
        self.reused = 0
        """How often a flow found it there."""

    def ask(self, part: SharedPart, views: Views, place: Place, flows: int, compute: Compute) -> SharedRows | None:
        """The part's changes, which so many flows will ask for."""
        done: list[Views] = []
        with self._lock:
            asked = self._asked.get(part)
            is_first = asked is None or asked.place != place
            if asked is None or is_first:
                done += [asked.views] if asked is not None else []
                asked = self._asked[part] = _AskedPart(place, views.another(), flows)
                while len(self._asked) > _MOST_PARTS:
                    # Some flow did not ask after all.
                    done.append(self._asked.pop(next(iter(self._asked))).views)
            asked.left -= 1
            if asked.left == 0:
                del self._asked[part]
                done.append(asked.views)
            self.computed += is_first
            self.reused += not is_first
        if is_first:
            try:
                found = compute(part.root)
                if found is None:
                    asked.rows.set_result(None)
                else:
                    rows, schema, spanned = found
                    asked.rows.set_result(SharedRows(rows, asked.views.of_rows(rows, schema), spanned))
            except BaseException as error:
                asked.rows.set_exception(error)
                with self._lock:
                    # Whoever tries again computes it again.
                    if self._asked.get(part) is asked:
                        done.append(self._asked.pop(part).views)
        for views in done:
            self._retire(views)
        return asked.rows.result()
