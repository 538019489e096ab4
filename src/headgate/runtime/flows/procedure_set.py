"""The procedures of a warehouse: which there are, and the tables of those that are new.

A procedure's table is in the ledger with what it was declared as. One that is new, or declared in another way, is called with
all rows of its table first; one that is gone is archived.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.types import StructType

from headgate.delta.changes import NO_JOB, JobId
from headgate.errors import DefiniteError, FlowFailed
from headgate.runtime.flows.flows import table_path
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.procedures import Procedure, ProcedureStage, check_zones
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import PROCEDURE, PROCEDURE_ARCHIVED
from headgate.runtime.tables.tables import Tables
from headgate.warehouse.spec import TableSpec


@dataclass(eq=False)
class ProcedureSet:
    """One stage per procedure. They change only while no executor runs stages."""

    _tables: Tables
    _catalog: WarehouseCatalog
    _journal: Journal
    _batches: BatchFactory
    _materializer: Materializer
    _replicas: Replicas
    _stages: dict[str, ProcedureStage] = field(default_factory=dict, init=False)
    _late: list[Procedure] = field(default_factory=list, init=False)
    """Procedures over flows that are not open yet."""
    _unbuilt: dict[str, int] = field(default_factory=dict, init=False)
    """Procedures that have not been called yet, with the generation of their tables."""

    def __bool__(self) -> bool:
        return bool(self._stages or self._late)

    def __contains__(self, name: str) -> bool:
        return name in self._stages

    def over_replicas(self) -> list[ProcedureStage]:
        return [stage for stage in self._stages.values() if stage.procedure.on in self._replicas.stages]

    def over_flows(self) -> list[ProcedureStage]:
        return [stage for stage in self._stages.values() if stage.procedure.on not in self._replicas.stages]

    @property
    def unbuilt(self) -> list[str]:
        """Those that have not been called with the rows that their tables have."""
        return list(self._unbuilt)

    def read_by_unbuilt(self) -> set[str]:
        """The tables of these."""
        return {self._stages[name].procedure.on for name in self._unbuilt}

    def open(self, procedures: Sequence[Procedure]) -> None:
        """Opens those over source tables, and archives those that are no longer given."""
        check_zones(procedures)
        kept = {procedure.name for procedure in procedures}
        gone = [name for name in self._journal.records.procedures if name not in kept]
        if gone:
            self._journal.record([(PROCEDURE_ARCHIVED, {"name": name}) for name in gone])
        self._late = [each for each in procedures if each.on not in self._replicas.stages]
        for procedure in procedures:
            if procedure not in self._late:
                self._open(procedure)

    def open_late(self) -> None:
        """Opens those whose tables are there by now."""
        ready = [each for each in self._late if self._catalog.find(each.on) is not None]
        self._late = [each for each in self._late if each not in ready]
        for procedure in ready:
            self._open(procedure)

    def require_all(self) -> None:
        """Every procedure is open, but for those whose tables are damaged."""
        self._late = [each for each in self._late if self._tables.find_damaged(each.on) is None]
        if self._late:
            raise self._no_table_for(self._late[0])

    def begin_anew(self, names: Collection[str]) -> None:
        """Their tables were replaced: they are called with all rows again, for tables of their own."""
        for name in names:
            self._open(self._stages[name].procedure, anew=True)

    def _open(self, procedure: Procedure, *, anew: bool = False) -> None:
        """Opens a procedure's table as the ledger has it; one that is new, or declared in another way, is to be built."""
        records, spec = self._journal.records, procedure.spec()
        source = self._catalog.find(procedure.on)
        if source is None or source.is_fragment:
            raise self._no_table_for(procedure)
        if not anew and self._catalog.find(procedure.name) is not None:
            raise DefiniteError(f"there is a table {procedure.name} already", hint="give the procedure another name")
        record = records.procedures.get(procedure.name)
        is_new = (
            anew or record is None or any(record[name] != value for name, value in _described(source, spec).items())
        )
        before = records.archived_procedures.get(procedure.name, 0) if record is None else record["generation"]
        generation = before + is_new
        path = table_path(procedure.name, generation)
        through = JobId(max(self._journal.chain.newest - 1, NO_JOB))
        table = self._tables.open(path, spec, records.checkpoints.get(path), through)
        with self._journal.lock:
            self._tables.add(table)
            self._catalog.add(TableEntry(procedure.name, spec.schema, StructType(), spec.key))
            self._stages[procedure.name] = ProcedureStage(
                replace(procedure, on=source.name), table, self._tables.by_name
            )
        if is_new:
            self._unbuilt[procedure.name] = generation

    def build(self, job: JobId, failures: Sequence[BaseException]) -> None:
        """Calls new procedures with all that their tables have at the job, and makes what they gave durable."""
        for name, generation in list(self._unbuilt.items()):
            stage = self._stages[name]
            source = self._tables.get(stage.procedure.on)
            if source.through < job:
                raise FlowFailed(
                    f"procedure {name} cannot begin while {source.name} lags behind",
                    hint=str(next(iter(failures), "run its jobs first")),
                )
            if job > NO_JOB:
                with self._batches.open() as batch:
                    stage.build(job, batch)
            entry = self._catalog.find(source.name)
            assert entry is not None
            body = {"name": name, "generation": generation, **_described(entry, stage.target.spec)}
            tables = [(found, stage.target.through) for found in stage.target.physical()]
            self._materializer.checkpoint(tables, [(PROCEDURE, body)])
            del self._unbuilt[name]

    def _no_table_for(self, procedure: Procedure) -> DefiniteError:
        return DefiniteError(
            f"procedure {procedure.name} is on {procedure.on}, which is not a stored table",
            hint=f"there are {', '.join(self._catalog.names())}",
        )


def _described(source: TableEntry, spec: TableSpec) -> dict[str, object]:
    """What must stay the same for a procedure's table to go on."""
    return {"on": source.name, "schema": spec.schema.jsonValue(), "key": list(spec.key)}
