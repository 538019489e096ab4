"""Flow definitions: what a project's SQL declares, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headgate.dataflow.graph import Fragment, Node
from headgate.errors import Location

Action = Literal["warn", "drop", "fail"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """`CONSTRAINT name EXPECT (condition) ON VIOLATION action`: what every row of a table should satisfy."""

    name: str
    condition: str
    """As it is written, without the brackets around it."""
    action: Action
    where: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """`CREATE MATERIALIZED VIEW name AS query`, lowered to a graph (or a fragment over graphs).

    `outputs` are the result's column names in order; the graph's own columns are named the same.
    """

    name: str
    text: str
    where: Location
    result: Node | Fragment
    outputs: tuple[str, ...]
    query_where: Location
    """Where the query begins."""
    properties: dict[str, str] = field(default_factory=dict, compare=False)
    expectations: tuple[Expectation, ...] = ()
    """What its rows should satisfy; those that are dropped are missing in `result` already."""
    comment: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AutoCdc:
    """`CREATE STREAMING TABLE target` with `CREATE FLOW … AS AUTO CDC INTO target FROM source`."""

    name: str
    """The target table."""
    flow: str
    where: Location
    source: str
    """A source table, `source.table`."""
    keys: tuple[str, ...]
    scd_type: int
    sequence_by: str | None = None
    track: tuple[str, ...] | None = None
    """Columns whose change makes a new version; None = all but the keys and the sequence column."""
    track_except: tuple[str, ...] = ()
    """Columns that are left out where `track` is None."""
    expectations: tuple[Expectation, ...] = ()
    comment: str | None = field(default=None, compare=False)


Flow = MaterializedView | AutoCdc
