"""Refreshing: every table brought up to what its sources have, after reading or building again what is to be renewed."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.capture.memory import MemorySource
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, HeadgateError, UnknownTable, raise_all
from headgate.runtime.engine import Engine
from headgate.runtime.recovery.damage import fillable, to_build_over
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.tables.records import RESNAPSHOT
from headgate.sql.names import did_you_mean


@dataclass(frozen=True)
class Refreshing:
    """Renews tables of one warehouse, when somebody says so."""

    _engine: Engine

    def refresh(self, table: str | None, full: bool) -> JobId:
        """Closes the open job and brings every table up to it, after reading or building again what is to be renewed."""
        self._engine.require_open()
        if full and table is not None:
            raise DefiniteError("`full` and `table` exclude each other", hint="give one of them")
        problems: list[BaseException] = []
        if table is not None:
            self._renew(table)
        elif full:
            for source in self._engine.sources.values():
                problems += self._engine.cuts.read_whole(source)
        self._engine.loads.start()
        try:
            self._engine.loads.finish()
        except HeadgateError as error:
            problems.append(error)
        captured = self._engine.capture()
        job, _ = self._engine.cut(captured.samples)
        self._catch_up(job)
        raise_all([*problems, *captured.missing.values(), *self._failures_of(table)])
        return job

    def _renew(self, table: str) -> None:
        """Reads a table of a source whole again, or builds a flow again from its inputs."""
        entry = self._engine.catalog.find(table)
        replica = None if entry is None else self._engine.replicas.stages.get(entry.name)
        if replica is not None and (damage := replica.target.versioned.find_damage()) is not None:
            with self._engine.changing_flows():
                self._engine.replicas.set_aside(replica.name, damage)
                self._engine.defining.read_again()
            entry = None
        if entry is None and self._engine.tables.find_damaged(table) is not None:
            self._fill_again(table)
            return
        if entry is None:
            raise UnknownTable(f"there is no table {table}", hint=did_you_mean(table, self._engine.catalog.names()))
        if replica is None:
            with self._engine.defining_flows():
                self._engine.defining.build_again(entry.name)
        elif isinstance(replica.source, MemorySource) and replica.source.log.loss is None:
            raise DefiniteError(
                f"{entry.name} cannot be read again: programs write it, and all that they committed is here",
                hint="name a table of a database, or a flow",
            )
        elif not replica.unread or replica.stopped is not None:
            # One that is being loaded range by range is read anyway.
            raise_all(self._engine.cuts.read_whole(replica.source, replica.table))

    def _fill_again(self, table: str) -> None:
        """Reads a damaged replica whole from its source, and builds again what reads it."""
        records = self._engine.journal.records
        full, damage = next(
            (name, each) for name, each in self._engine.tables.damaged.items() if name.casefold() == table.casefold()
        )
        above = self._engine.flows.aside
        source = fillable(full, damage, self._engine.sources, records, above)
        with self._engine.changing_flows():
            reading = (RESNAPSHOT, {"source": source.name, "tables": [full.partition(".")[2]]})
            more = [reading, *to_build_over(full, above, records)]
            self._engine.replicas.begin_anew(full, source, self._engine.journal.chain.newest, more)
        raise_all(self._engine.cuts.read_whole(source, full.partition(".")[2]))
        self._catch_up(self._engine.cut({})[0])
        self._engine.replicas.filled(full)
        self._engine.resume()

    def _catch_up(self, job: JobId) -> None:
        """Brings every table to the job, as far as that is possible, and tidies up."""
        self._engine.executor.resume()
        self._engine.executor.settle([stage.name for stage in self._engine.flows.stages()], job)
        self._engine.upkeep.tidy()

    def _failures_of(self, table: str | None) -> list[BaseException]:
        """What keeps a table from going on, or any table."""
        if table is None:
            return list(self._engine.failures)
        stages = self._engine.flows.needed([table])
        failed = self._engine.executor.failures
        found = [failed[stage.name] for stage in stages if stage.name in failed]
        stopped = [stage.stopped for stage in stages if isinstance(stage, ReplicaStage) and stage.name not in failed]
        return [*found, *(each for each in stopped if each is not None)]
