"""Stores other results of flows where that takes less: when told to, and by itself for flows with `'advise' = 'auto'`.

A look takes what changed and how often a flow was read since the last look. What the query takes as written is measured before
the first choice; a result moves only when it was the better one several times in a row and its building pays (`advising/moving`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from headgate.advising.cuts import Choice
from headgate.advising.cuts import Cut as PricedCut
from headgate.advising.moving import Moving, MovingSettings, decide
from headgate.dataflow.flow import MaterializedView
from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import DefiniteError, HeadgateError
from headgate.runtime.engine import Engine
from headgate.runtime.flows.advice import FlowAdvice, advise_flow
from headgate.runtime.flows.flows import RunningFlow, why_whole
from headgate.runtime.flows.operator_costs import OperatorCosts
from headgate.runtime.tables.batch_views import BatchViews, KeptViews
from headgate.scheduling.subscription import Subscriptions
from headgate.sql.statements import ADVISE

_LOGGER = logging.getLogger(__name__)
_JOBS = 20
"""Of which the changes count where there were none since the last look."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """What there was at some moment, since the warehouse was opened."""

    job: JobId
    reads: int
    changed_rows: int


@dataclass(frozen=True, slots=True)
class FlowStanding:
    """Where a flow stood when it was last looked at."""

    rates: _Counts
    moving: Moving


class Advisor:
    """May be used from any thread; one move is made at a time."""

    def __init__(self, engine: Engine, subscriptions: Subscriptions) -> None:
        self._engine = engine
        self._subscriptions = subscriptions
        self._opened_at = engine.journal.chain.newest
        self._looks: dict[str, FlowStanding] = {}
        self.last: dict[str, str] = {}
        """By flow, what was decided at the last look and why."""
        self._due = time.monotonic() + engine.settings.current.advising.every.total_seconds()
        self._mover: threading.Thread | None = None
        self._is_closed = False

    # advice

    def advice(self, flow: str | None = None, *, space: float | None = None) -> tuple[FlowAdvice, ...]:
        """For one flow, or all that may be advised on; nothing is moved."""
        with self._engine.graph_lock:
            return tuple(self._advice(each, space) for each in self._flows(flow))

    def apply(self, flow: str | None = None, *, space: float | None = None) -> tuple[FlowAdvice, ...]:
        """Measures, and stores the best results; gives the advice that was followed."""
        if flow is not None:
            self._require_movable(flow)
        found = []
        for each in self._flows(flow):
            with self._engine.graph_lock:
                if self._fixed(each) is None:
                    self._measure(each)
                advice = self._advice(each, space)
                if advice.moves:
                    self._move(advice)
            found.append(advice)
        self._engine.upkeep.tidy()
        return tuple(found)

    def _flows(self, flow: str | None) -> list[RunningFlow]:
        flows: Iterable[RunningFlow] = self._engine.flows if flow is None else [self._engine.flows.get(flow)]
        found = [
            each
            for each in flows
            if isinstance(each.plan.flow, MaterializedView)
            and each.plan.uncut is not None
            and (flow is not None or each.plan.flow.properties.get(ADVISE) != "never")
        ]
        if flow is not None and not found:
            raise DefiniteError(
                f"{flow} is not kept incrementally: there is nothing to choose",
                hint=f"`headgate explain {flow}` says how it is kept",
            )
        return found

    def _require_movable(self, flow: str) -> None:
        found = self._flows(flow)[0]
        if (why := self._fixed(found)) is not None:
            raise DefiniteError(f"the whole result of {found.plan.name} stays stored: {why}")

    def _fixed(self, flow: RunningFlow) -> str | None:
        """Why the whole result has to be stored, if it has."""
        plan = flow.plan
        assert isinstance(plan.flow, MaterializedView)
        for stage in self._engine.flows.stages():
            if plan.name in stage.inputs:
                return f"{stage.name} takes its changes"
        if any(plan.name in other.plan.tables_read for other in self._engine.flows):
            return "another flow reads it"
        if self._subscriptions.has(plan.name):
            return "somebody has subscribed to it"
        return why_whole(plan.flow)

    def _advice(self, flow: RunningFlow, space: float | None) -> FlowAdvice:
        changed, reads, jobs = self._rates(flow)
        sigma = self._engine.settings.current.advising.space if space is None else space
        costs = self._costs(flow, changed)
        return advise_flow(costs, flow.plan.cut, max(1.0, reads / max(1, jobs)), sigma, self._fixed(flow))

    def _costs(self, flow: RunningFlow, changed: int) -> OperatorCosts:
        assert flow.plan.uncut is not None
        return OperatorCosts(flow.plan.name, flow.plan.uncut, self._engine.tables.get, self._engine.ways, changed)

    def _rates(self, flow: RunningFlow) -> tuple[int, int, int]:
        """Changed rows per read, reads and jobs since the last look."""
        look, now = self._looks.get(flow.plan.name), self._counted(flow)
        before = _Counts(self._opened_at, 0, 0) if look is None else look.rates
        changed, jobs = now.changed_rows - before.changed_rows, now.job - before.job
        reads = now.reads - before.reads
        if not jobs:
            changed, jobs = self._retained(flow)
        return -(-changed // max(1, min(reads, jobs) or jobs)), reads, jobs

    def _counted(self, flow: RunningFlow) -> _Counts:
        tables = [self._engine.tables.get(name) for name in flow.plan.tables_read]
        return _Counts(
            max((table.through for table in tables), default=NO_JOB),
            self._engine.reader.asked[flow.plan.name],
            sum(table.changed_rows for table in tables),
        )

    def _retained(self, flow: RunningFlow) -> tuple[int, int]:
        """Changed rows and jobs, of the latest jobs whose changes are still there."""
        before = max(NO_JOB, self._engine.journal.chain.newest - _JOBS)
        changed = jobs = 0
        for name in flow.plan.tables_read:
            table = self._engine.tables.get(name)
            after = JobId(max(before, table.main.retain_from))
            found = table.changes(after, table.through) if table.through > after else None
            changed += 0 if found is None else found.rows
            jobs = max(jobs, table.through - after)
        return changed, jobs

    def _measure(self, flow: RunningFlow) -> None:
        costs = self._costs(flow, 1)
        if costs.is_measured:
            return
        views = BatchViews(self._engine.sessions.bulk, KeptViews(), self._engine.batches.many_rows)
        try:
            costs.measure(views)
        finally:
            views.close()
        self._engine.ways.keep()

    def _move(self, advice: FlowAdvice) -> None:
        _LOGGER.info("flow %s: %s", advice.flow, advice.reason)
        self._engine.defining.move(advice.flow, advice.cut)

    # by itself

    def review_if_due(self) -> None:
        """Starts a look where one is due; it runs beside the caller."""
        if time.monotonic() < self._due or self._is_closed or (self._mover is not None and self._mover.is_alive()):
            return
        self._due = time.monotonic() + self._engine.settings.current.advising.every.total_seconds()
        if any(True for _ in self._automatic()):
            self._mover = threading.Thread(target=self._look, name="advisor", daemon=True)
            self._mover.start()

    def _look(self) -> None:
        try:
            self.look()
        except HeadgateError as error:
            _LOGGER.warning("results stay where they are: %s", error)
        except Exception:
            _LOGGER.exception("results stay where they are")

    def _automatic(self) -> Iterator[RunningFlow]:
        for flow in self._flows(None):
            assert isinstance(flow.plan.flow, MaterializedView)
            if flow.plan.flow.properties.get(ADVISE) == "auto":
                yield flow

    def look(self) -> dict[str, str]:
        """Looks at every flow with `'advise' = 'auto'` that was read since the last look, and moves what is worth it."""
        settings = self._engine.settings.current.advising
        moving = MovingSettings(settings.margin, settings.times, settings.reads)
        for flow in list(self._automatic()):
            with self._engine.graph_lock:
                if self._is_closed or self._engine.flows.find(flow.plan.name) is not flow:
                    continue
                self._look_at(flow, moving)
        return self.last

    def _look_at(self, flow: RunningFlow, settings: MovingSettings) -> None:
        name = flow.plan.name
        if self._rates(flow)[1] == 0:
            # Nobody reads it: whatever is stored costs nothing but the background's time.
            return
        self._measure(flow)
        advice = self._advice(flow, None)
        before = self._looks.get(name)
        state = Moving(advice.current) if before is None else replace(before.moving, current=advice.current)
        if advice.fixed is not None:
            after, why = Moving(advice.current), f"the whole result stays stored: {advice.fixed}"
        else:
            choice = Choice(PricedCut(advice.best, 0.0, 0.0), advice.gain / advice.shared, advice.reason)
            current_gain = advice.current_gain / advice.shared
            after, why = decide(state, settings, current_gain, choice, advice.as_written, advice.building)
        if after.current != advice.current:
            self._move(advice)
        self.last[name] = why
        self._looks[name] = FlowStanding(self._counted(flow), after)

    def close(self) -> None:
        self._is_closed = True
        if self._mover is not None:
            self._mover.join()
