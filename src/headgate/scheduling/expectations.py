"""What violates the constraints of tables, by job: read from the views that count it (`sql/expectations`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.dataflow.flow import Action, Expectation
from headgate.delta.changes import JobId
from headgate.errors import HeadgateError
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.tables.tables import Tables
from headgate.sql.expectations import COUNTED

_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class ExpectationStatus:
    """A constraint of a table, and how many rows violate it."""

    name: str
    condition: str
    action: Action
    violations: int | None
    """Rows of the table's query, those that are dropped included, at `job`; None while that is not known."""
    job: JobId | None


class Violations:
    """May be asked from any thread."""

    def __init__(self, flows: FlowSet, tables: Tables) -> None:
        self._flows = flows
        self._tables = tables
        self._known: dict[tuple[int, JobId], Mapping[str, int]] = {}

    def status(self, table: str) -> tuple[ExpectationStatus, ...]:
        """The table's constraints now."""
        expectations = self._expectations(table)
        if not expectations:
            return ()
        counted = self._tables.by_name.get(f"{table}{COUNTED}")
        job = None if counted is None else counted.through
        found = {} if job is None else self.at(table, job) or {}
        return tuple(
            ExpectationStatus(each.name, each.condition, each.action, found.get(each.name), job)
            for each in expectations
        )

    def of_job(self, job: JobId) -> dict[str, Mapping[str, int]]:
        """By table how many rows violated each constraint at a job, where that is still known."""
        found = {}
        for flow in self._flows:
            name = flow.plan.name
            counts = self.at(name, job) if flow.plan.flow.expectations else None
            if counts is not None:
                found[name] = counts
        return found

    def at(self, table: str, job: JobId) -> Mapping[str, int] | None:
        """By constraint how many rows violated it at a job; None when that is not known, or no longer."""
        counted = self._tables.by_name.get(f"{table}{COUNTED}")
        if counted is None or not counted.readable_from() <= job <= counted.through:
            return None
        place = (id(counted), job)
        if place not in self._known:
            try:
                rows = counted.main.collected(job).to_pylist()
            except HeadgateError:
                return None
            names = [each.name for each in self._expectations(table)]
            if len(self._known) >= _KEPT:
                self._known = {}
            self._known[place] = {name: int(rows[0][name]) for name in names if rows and name in rows[0]}
        return self._known[place]

    def _expectations(self, table: str) -> tuple[Expectation, ...]:
        plan = self._flows.plan_of(table)
        return () if plan is None else plan.flow.expectations
