"""Rows that tell of the warehouse itself: SHOW, DESCRIBE and EXPLAIN (`sql/showing`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headgate.config.durations import format_duration
from headgate.dataflow.flow import AutoCdc
from headgate.delta.changes import BEGINNING
from headgate.runtime.engine import Engine
from headgate.runtime.flows.descriptions import describe_tables
from headgate.runtime.flows.flows import FlowPlan
from headgate.scheduling.expectations import Violations
from headgate.scheduling.scheduler import Scheduler
from headgate.sql.showing import Describe, ExplainFlow, Show

Rows = list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What there is, as rows and their columns."""

    scheduler: Scheduler
    violations: Violations
    engine: Engine

    def rows(self, asked: Show | Describe | ExplainFlow) -> tuple[Rows, str]:
        match asked:
            case Show(what="tables"):
                return self._tables(), "table string, kind string, job bigint, data_timestamp timestamp, rows bigint"
            case Show():
                return self._flows(), "flow string, kind string, incremental boolean, reads string, failure string"
            case ExplainFlow(flow):
                return [(line,) for line in str(self.engine.explain(flow)).splitlines()], "explanation string"
            case Describe(table, is_extended):
                return self._described(table, is_extended), "col_name string, data_type string, comment string"

    def _tables(self) -> Rows:
        with self.scheduler.journal.lock:
            described = describe_tables(self.scheduler.catalog, self.scheduler.flows)
        return [
            (
                table.name,
                table.kind,
                self.scheduler.reader.through(table.name),
                self._as_of(table.name),
                self._count(table.name),
            )
            for table in described
        ]

    def _flows(self) -> Rows:
        failures = self.scheduler.executor.failures
        found: Rows = []
        for flow in self.scheduler.flows:
            failed = next((str(failures[stage.name]) for stage in flow.all_stages if stage.name in failures), None)
            plan = flow.plan
            found.append((plan.name, _kind(plan), plan.fragment is None, ", ".join(plan.tables_read), failed))
        return found

    def _described(self, table: str, is_extended: bool) -> Rows:
        scheduler = self.scheduler
        name = scheduler.reader.require_known(table)
        with scheduler.journal.lock:
            entry = scheduler.catalog.find(name)
            described = next(each for each in describe_tables(scheduler.catalog, scheduler.flows) if each.name == name)
        assert entry is not None
        key = described.key or ()
        rows: Rows = [(each.name, each.type, "key" if each.name in key else None) for each in described.columns]
        if not is_extended:
            return rows
        rows += [(field.name, field.dataType.simpleString(), "hidden: not in *") for field in entry.hidden.fields]
        plan = scheduler.flows.plan_of(name)
        as_of, lag = self._as_of(name), scheduler.flows.target_lag(name)
        count = self._count(name)
        told: list[tuple[str, str | None]] = [
            ("Name", name),
            ("Kind", described.kind if plan is None else _kind(plan)),
            ("Key", ", ".join(key) or None),
            ("Reads", ", ".join(described.reads) or None),
            ("Job", str(scheduler.reader.through(name))),
            ("Data timestamp", None if as_of is None else as_of.isoformat(sep=" ")),
            ("Target lag", None if lag is None else format_duration(lag)),
            ("Rows", None if count is None else f"{count:,}"),
            ("Location", None if entry.is_fragment else self.engine.location(name)),
            (
                "Incremental",
                None if plan is None else "yes" if plan.fragment is None else f"no: {plan.fragment.reasons[0]}",
            ),
            ("Query", None if plan is None or isinstance(plan.flow, AutoCdc) else plan.flow.text),
        ]
        told += [
            (
                f"Constraint {each.name}",
                f"EXPECT ({each.condition}) ON VIOLATION {each.action.upper()}"
                + ("" if each.violations is None else f": violated by {each.violations:,} rows at job {each.job}"),
            )
            for each in self.violations.status(name)
        ]
        return [*rows, ("", "", None), ("# Table", "", None), *((name, value, None) for name, value in told if value)]

    def _as_of(self, table: str) -> datetime | None:
        as_of = self.scheduler.backlog.as_of(table)
        return None if as_of == BEGINNING else as_of

    def _count(self, table: str) -> int | None:
        """How many rows a table has that is stored."""
        return self.scheduler.reader.count(table)


def _kind(plan: FlowPlan) -> str:
    if isinstance(plan.flow, AutoCdc):
        return f"dimension of type {plan.flow.scd_type}"
    return "materialized view"
