"""Which ranges a view has: those of a table that it is aligned with, by a column of its own key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.dataflow.alignment import Restriction, restriction
from headgate.delta.changes import COPY, ROW_HASH
from headgate.ranges.range_map import kind_of
from headgate.runtime.stages.view_stage import ViewStage
from headgate.warehouse.divided import Division


@dataclass(frozen=True, slots=True)
class Inherited:
    """How a view is cut, and what a range of it is computed from."""

    division: Division
    restriction: Restriction


def inherited(stage: ViewStage, inputs: Mapping[str, Division | None], wanted: str | None = None) -> Inherited | str:
    """The ranges of a view whose inputs are cut so; a text says why it has one range only.

    `wanted` is the only column that counts, in lower case, where the view names one.
    """
    families: dict[str, dict[str, Division]] = {}
    for table, division in inputs.items():
        if division is not None:
            families.setdefault(division.family, {})[table] = division
    if not families:
        return "no table that it reads has ranges"
    spec, graph = stage.target.spec, stage.graph
    # A row's range must follow from its key: equal rows of a bag have equal values.
    names = spec.columns if ROW_HASH in spec.key else spec.key
    why = ""
    for tables in families.values():
        cut = next(iter(tables.values()))
        for column in names:
            if wanted is not None and column.casefold() != wanted:
                continue
            if column in (ROW_HASH, COPY) or kind_of(spec.schema[column].dataType.simpleString()) != cut.map.kind:
                continue
            columns = {table: division.column for table, division in tables.items()}
            found = restriction(graph.root, column, graph.type_of, graph.states, columns)
            if not isinstance(found, str):
                return Inherited(Division(cut.family, column, cut.map), found)
            why = why or found
    return why or "no column of its key has the type of a range column that it reads"
