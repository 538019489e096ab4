"""Tables that programs declare and fill through a producer source."""

from __future__ import annotations

from collections.abc import Collection

from headgate.capture.source import SourceTable
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError
from headgate.runtime.engine import CAPTURE_WINDOW, Engine
from headgate.runtime.sources.sources import find_producer_source, find_source


class ProducerTables:
    """May be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, source: str, table: SourceTable) -> None:
        """Declares a table that producers write to; it is kept when the warehouse is opened again."""
        found = find_producer_source(self._engine.sources, source)
        with self._engine.changing_flows():
            if any(table.name.casefold() == name.casefold() for name in found.tables):
                raise DefiniteError(
                    f"there is a table {source}.{table.name} already", hint="CREATE TABLE IF NOT EXISTS"
                )
            self._engine.replicas.declare(found, table, self._engine.journal.chain.newest)

    def drop(self, source: str, table: str) -> None:
        """Archives a table that a producer declared: it is no longer answered."""
        found = find_producer_source(self._engine.sources, source)
        full = f"{source}.{table}"
        with self._engine.changing_flows():
            readers = [stage.name for stage in self._engine.flows.stages() if full in stage.inputs]
            if readers:
                raise DefiniteError(f"{', '.join(readers)} reads {full}", hint="drop what reads it first")
            self._engine.replicas.drop(found, table)

    def bring(self, source: str, tables: Collection[str]) -> JobId:
        """Brings tables of a source to a job that has all that it committed; gives the job."""
        found = find_source(self._engine.sources, source)
        sample = found.sample()
        found.capture(sample, CAPTURE_WINDOW)
        job, _ = self._engine.cut({source: sample})
        self._engine.executor.bring([f"{source}.{table}" for table in tables], job)
        return job

    def materialize(self, source: str, tables: Collection[str]) -> None:
        """Folds all that was committed to tables of a source into their Delta tables.

        What derives from them is brought along and materialized too: a table is never past one that reads it.
        """
        job = self.bring(source, tables)
        affected = {f"{source}.{table}" for table in tables}
        for stage in self._engine.flows.stages():
            if not affected.isdisjoint(stage.inputs):
                affected.add(stage.name)
        self._engine.executor.bring(affected, job)
        self._engine.upkeep.materialize_stages(affected)
