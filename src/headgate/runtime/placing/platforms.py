"""The platforms of a warehouse besides Spark: what is placed there, and which queries can be answered from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headgate.config.live import LiveProject
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, FlowError, HeadgateError, UnknownTable
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.placing.placement import Placements, placements
from headgate.runtime.placing.shipper import Shipper, ShipperStatus
from headgate.runtime.reading.query_work import Interruption
from headgate.runtime.signal import Signal
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.tables.journal import Journal
from headgate.serving.expressions import NotTranslated
from headgate.serving.lookups import Lookups
from headgate.serving.reading import NotServed, PlatformReader, ServedRows
from headgate.serving.shapes import ServedQuery, Shapes
from headgate.serving.target import Target
from headgate.sql.names import did_you_mean, folded
from headgate.sql.positions import SyntaxProblem
from headgate.warehouse.store import Step

PATIENCE = timedelta(seconds=1)
"""How long a query whose tables are at its job waits for the platform to be there, too; then Spark answers."""


@dataclass(frozen=True)
class Platform:
    """One database beside Spark."""

    name: str
    shipper: Shipper
    reader: PlatformReader
    shapes: Shapes
    lookups: Lookups
    sources: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    """What tables that were asked for derive from."""


@dataclass(frozen=True)
class Serving:
    """A query that a platform can answer."""

    platform: Platform
    query: ServedQuery
    tables: tuple[str, ...]
    sources: frozenset[str]
    """That the tables derive from."""


class Platforms:
    """May be used from any thread; without platforms in the project it does nothing."""

    def __init__(
        self,
        settings: LiveProject,
        journal: Journal,
        flows: FlowSet,
        executor: Executor,
        sessions: SparkSessions,
        signal: Signal,
        warehouse: str,
        epoch: int,
        step: Step,
    ) -> None:
        self._settings = settings
        self._given = settings.current.platforms
        """Those that the warehouse was opened with."""
        self._journal = journal
        self._flows = flows
        self._executor = executor
        self._sessions = sessions
        self._signal = signal
        self._identity = (warehouse, epoch, step)
        self._seen = -1
        self._placements = Placements({})
        self._platforms: Mapping[str, Platform] = {}
        if self._given:
            flows.hold_shipped(self.held)

    def follow(self) -> None:
        """Takes the flows as they are now; called whenever they may have changed."""
        if not self._given or self._flows.unbuilt or self._flows.changes == self._seen:
            # A placed table that is still to be built must not be taken for one that is gone.
            return
        with self._journal.lock:
            self._seen = self._flows.changes
            found = self._placements = placements(self._flows, self._given)
            made = {}
            for name, settings in self._given.items():
                placed = found.at[name]
                known = self._platforms.get(name)
                if known is None:
                    warehouse, epoch, step = self._identity
                    target = Target(name, settings.dsn, settings.schema_, warehouse, epoch, step)
                    shipper = Shipper(
                        target, placed, self._settings, self._journal, self._flows, self._sessions, self._signal
                    )
                    reader, lookups = PlatformReader(name, settings.dsn, settings.schema_, epoch), Lookups()
                else:
                    shipper, reader, lookups = known.shipper, known.reader, known.lookups
                    shipper.place(placed)
                tables = {place: each.table for place, each in placed.items()}
                made[name] = Platform(name, shipper, reader, Shapes(tables, settings.schema_), lookups)
            self._platforms = made

    def held(self) -> dict[str, JobId]:
        """Tables whose changes a platform still lacks, with the job up to which it has them."""
        held: dict[str, JobId] = {}
        for platform in self._platforms.values():
            held |= platform.shipper.held()
        return held

    def close(self) -> None:
        for platform in self._platforms.values():
            platform.shipper.close()
            platform.reader.close()

    # queries

    def known(self, text: str) -> Serving | None:
        """The query as it was translated for another one that differs in values alone."""
        if self._flows.changes != self._seen:
            return None
        for platform in self._platforms.values():
            found = platform.shapes.find(text)
            if found is not None:
                return self._serving(platform, found)
        return None

    def _serving(self, platform: Platform, query: ServedQuery) -> Serving:
        tables = tuple(table.name for table in query.shape.tables)
        sources = platform.sources.get(tables)
        if sources is None:
            sources = platform.sources[tables] = self._flows.sources_of(tables)
        return Serving(platform, query, tables, sources)

    def translated(self, text: str, tables: Collection[str]) -> Serving | str | None:
        """The query as the platform of its tables takes it, or why Spark is to answer; None where none of them is placed."""
        self.follow()
        names = [folded(table) for table in tables]
        for platform in self._platforms.values():
            if any(name in platform.shapes.tables for name in names):
                try:
                    return self._serving(platform, platform.shapes.translate(text, names))
                except NotTranslated as reason:
                    return f"not translated: {reason}"
                except (SyntaxProblem, FlowError):
                    return "not translated: only Spark reads it"
        return None

    def answer(
        self, serving: Serving, accepts: Callable[[JobId], bool], interruption: Interruption, until: float | None
    ) -> ServedRows | str:
        """The rows, at a job that is accepted, or why the platform has not answered."""
        platform, lookup = serving.platform, serving.query.shape.lookup
        if lookup is not None and platform.lookups.note(*lookup):
            platform.shipper.want_index(*lookup)
        try:
            return platform.reader.read(serving.query, accepts, until, _on_cancel(interruption))
        except NotServed as reason:
            interruption.check()
            return str(reason)

    def bring(self, serving: Serving, job: JobId, interruption: Interruption, until: float | None) -> str | None:
        """Has everything that is placed there brought to the job, and shipped; gives why that was not done in time."""
        platform, shipper = serving.platform, serving.platform.shipper
        if shipper.shipped is not None and shipper.shipped >= job:
            return None
        self._executor.want([each.table.name for each in shipper.placed.values()], job)
        patience = time.monotonic() + PATIENCE.total_seconds()

        def there() -> bool:
            interruption.check()
            return shipper.trouble is not None or (shipper.shipped is not None and shipper.shipped >= job)

        self._signal.wait_until(there, patience if until is None else min(until, patience))
        if shipper.shipped is not None and shipper.shipped >= job:
            return None
        if shipper.trouble is not None:
            return f"{platform.name} does not follow: {shipper.trouble.what}"
        return f"{platform.name} was not brought to job {job} within {PATIENCE.total_seconds():g} s"

    # people

    def status(self) -> dict[str, ShipperStatus]:
        self.follow()
        return {name: platform.shipper.status() for name, platform in self._platforms.items()}

    @property
    def problems(self) -> Mapping[str, HeadgateError]:
        """Why tables are not placed although their flows say so."""
        self.follow()
        return self._placements.problems

    def repair(self, table: str | None, seconds: float = 600.0) -> dict[str, ShipperStatus]:
        """Has one table filled anew, or every one that others have changed; gives what is there then."""
        self.follow()
        if not self._platforms:
            raise DefiniteError(
                "the project has no platforms", hint="name one: platforms: {serving: {type: postgres, dsn: …}}"
            )
        until = time.monotonic() + seconds
        names = [each.table.name for platform in self._platforms.values() for each in platform.shipper.placed.values()]
        if table is not None and folded(table) not in map(folded, names):
            raise UnknownTable(f"{table} is not placed at any platform", hint=did_you_mean(table, names))
        for platform in self._platforms.values():
            # What others have done is looked at first.
            platform.shipper.ask()
            platform.shipper.wait_asked(until)
            wanted = frozenset(
                place
                for place, each in platform.shipper.placed.items()
                if (folded(table) == place if table is not None else self._is_changed(platform, each.table.name))
            )
            if wanted:
                platform.shipper.repair(wanted)
                platform.shipper.wait_asked(until)
            if platform.shipper.trouble is not None:
                raise platform.shipper.trouble
        return self.status()

    def _is_changed(self, platform: Platform, table: str) -> bool:
        return platform.shipper.status().tables.get(table) not in ("ok", None)


def _on_cancel(interruption: Interruption) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Has something done when the query is called off, unless it has ended by then."""

    def register(call: Callable[[], None]) -> Callable[[], None]:
        running = True

        def called_off(_: object) -> None:
            if running:
                call()

        def forget() -> None:
            nonlocal running
            running = False

        interruption.cancelled.add_done_callback(called_off)
        return forget

    return register
