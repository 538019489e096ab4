"""What taking the flows as they are defined now would do: which are built, from how many rows, and which of their rows change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.errors import PySparkException

from headgate.dataflow.reference import plain_sql
from headgate.dataflow.relation import column_list
from headgate.delta.changes import WEIGHT, JobId
from headgate.runtime.defining.building import Definitions
from headgate.runtime.defining.defining import Defining
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.flows import FlowPlan
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.tables.batch_views import BatchViews
from headgate.runtime.tables.records import Records
from headgate.runtime.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class FlowChange:
    """A flow that is not as it was."""

    name: str
    kind: Literal["new", "changed", "removed"]
    where: str | None = None
    because_of: tuple[str, ...] = ()
    """Flows that it reads and that change too."""
    rows_read: int = 0
    """Rows of the tables from which it is built, as far as these are there."""
    bytes_read: int = 0
    rows_added: int | None = None
    """With `rows_removed`, how its content would differ from now; None where that was not asked for, or cannot be counted."""
    rows_removed: int | None = None


def flow_changes(
    records: Records, tables: Tables, defining: Defining, definitions: Definitions
) -> tuple[FlowChange, ...]:
    """The flows that would be built or archived, each after those that it reads."""
    stale = [plan for plan in definitions.plans if defining.is_stale(plan)]
    names = {plan.name for plan in stale}
    found = []
    for plan in stale:
        record = records.flows.get(plan.name)
        read = [tables.by_name[name].versioned for name in plan.tables_read if name in tables.by_name]
        found.append(
            FlowChange(
                plan.name,
                "new" if record is None or record.is_archived else "changed",
                None if plan.flow.where is None else str(plan.flow.where),
                tuple(name for name in plan.tables_read if name in names),
                sum(table.count(table.through) for table in read),
                sum(table.bytes for table in read),
            )
        )
    return (*found, *(FlowChange(name, "removed") for name in defining.gone({plan.name for plan in definitions.plans})))


def with_differences(
    changes: Sequence[FlowChange],
    tables: Tables,
    flows: FlowSet,
    definitions: Definitions,
    batches: BatchFactory,
    defining: Defining,
) -> tuple[FlowChange, ...]:
    """The changes with the rows that each flow would get or lose, which takes about as long as building them all."""
    counter = _Counter(tables, flows, definitions, {change.name for change in changes})
    job = batches.chain.newest
    defining.bring(counter.tables(), job)
    with batches.open() as batch:
        return tuple(counter.counted(change, job, batch.bulk_views) for change in changes)


class _Counter:
    def __init__(self, tables: Tables, flows: FlowSet, definitions: Definitions, stale: set[str]) -> None:
        self._tables = tables
        self._flows = flows
        self._plans = {plan.name: plan for plan in definitions.plans if plan.name in stale}

    def tables(self) -> list[str]:
        """The stored tables that are compared or read."""
        stored = self._tables.by_name
        read = [name for plan in self._plans.values() for name in (plan.name, *plan.tables_read) if name in stored]
        return list(dict.fromkeys(read))

    def counted(self, change: FlowChange, job: JobId, views: BatchViews) -> FlowChange:
        plan = self._plans.get(change.name)
        if plan is None or not _is_stored_view(plan):
            return change
        columns = column_list(plan.entry.schema.names)
        sides = [f"SELECT {columns}, 1L AS {WEIGHT} FROM ({self._text(plan, job, views)})"]
        old = self._flows.plan_of(plan.name)
        try:
            if old is not None and old.entry.schema.simpleString() == plan.entry.schema.simpleString():
                table = views.whole(self._tables.get(plan.name), job)
                sides.append(f"SELECT {columns}, -1L AS {WEIGHT} FROM {table}")
                removed = 0
            else:
                removed = 0 if old is None or old.fragment else self._tables.get(plan.name).count(job)
            net = f"SELECT SUM({WEIGHT}) AS net FROM ({' UNION ALL '.join(sides)}) GROUP BY {columns}"
            row = views.sql(
                f"SELECT COALESCE(SUM(GREATEST(net, 0)), 0) AS added, COALESCE(SUM(GREATEST(-net, 0)), 0) AS removed FROM ({net})"
            ).first()
        except PySparkException:
            # It fails on its data, or has a column by which rows cannot be compared.
            return change
        assert row is not None
        return replace(change, rows_added=int(row.added), rows_removed=int(row.removed) + removed)

    def _text(self, plan: FlowPlan, job: JobId, views: BatchViews) -> str:
        """The flow's query over the tables at the job, and over the new queries of flows that change."""

        def named(table: str) -> str:
            below = self._plans.get(table)
            if below is not None and _is_stored_view(below):
                return f"({self._text(below, job, views)})"
            return views.whole(self._tables.get(table), job)

        graph = plan.views[0].graph
        return plain_sql(graph.root, named, graph.sensitive)


def _is_stored_view(plan: FlowPlan) -> bool:
    return len(plan.views) == 1 and plan.fragment is None
