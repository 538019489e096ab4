"""A flow in a batch: what its evaluation knows, wherever the rows are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from headgate.dataflow.graph import Aggregate
from headgate.dataflow.typed_graph import TypedGraph
from headgate.delta.changes import JobId
from headgate.runtime.tables.stored import StoredTable


@dataclass(frozen=True)
class FlowBatch:
    """One flow and the jobs (after, upto]: the tables that it reads, by name, and those of its running states."""

    flow: str
    graph: TypedGraph
    tables: Mapping[str, StoredTable]
    states: Mapping[Aggregate, StoredTable]
    newest_commit_at: Callable[[JobId], datetime | None]
    after: JobId
    upto: JobId

    @property
    def jobs(self) -> int:
        return self.upto - self.after
