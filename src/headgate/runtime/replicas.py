"""The replicas of all source tables: opened as the ledger has them, and widened when a source's table has more columns.

A source that cannot be reached now delivers no tables; what the ledger knows of them is enough to read their snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType, _parse_datatype_string

from headgate.capture.memory import MemorySource
from headgate.capture.source import Source, SourceTable
from headgate.delta.changes import COMMIT_AT, JobId
from headgate.errors import ConfigError, FlowFailed
from headgate.runtime.catalog import TableEntry, WarehouseCatalog, source_hidden
from headgate.runtime.records import SOURCE_TABLE, Records
from headgate.runtime.replica_stage import ReplicaStage, widened
from headgate.runtime.stored import KeptViews
from headgate.runtime.tables import INTERNAL, Tables
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.store import Verify

_LOGGER = logging.getLogger(__name__)

Record = Callable[[Sequence[tuple[str, Mapping[str, Any]]]], None]


class Replicas:
    """One stage per source table, by its full name."""

    def __init__(
        self,
        tables: Tables,
        catalog: WarehouseCatalog,
        kept: KeptViews,
        records: Records,
        record: Record,
        verify: Verify,
    ) -> None:
        self.stages: dict[str, ReplicaStage] = {}
        self._tables = tables
        self._catalog = catalog
        self._kept = kept
        self._records = records
        self._record = record
        self._verify = verify

    def open(self, source: Source, names: Iterable[str], newest: JobId) -> None:
        """Opens the replicas of a source's tables; those that are new to the warehouse begin after job `newest`."""
        for name in names:
            found = source.tables.get(name)
            full = f"{source.name}.{name}"
            if full not in self._records.sources:
                if found is None:
                    assert source.unopened is not None
                    raise source.unopened
                self._remember(full, found, newest)
            known = self._known(full)
            if isinstance(source, MemorySource) and widened(known, source.tables[name]) is None:
                raise ConfigError(
                    f"the table {full} was declared as {known.schema.simpleString()} with key {', '.join(known.key)} before",
                    hint="declare it as it was, or under another name",
                )
            self._open(source, name, known)
        self.widen(source)

    def are_narrow(self, source: Source) -> bool:
        """Whether a table at the source has columns that its replica lacks."""
        return any(
            not set(table.schema.names) <= set(self.stages[f"{source.name}.{name}"].target.spec.columns)
            for name, table in source.tables.items()
        )

    def widen(self, source: Source) -> None:
        """Gives replicas the columns that their tables at the source have more."""
        for name, table in source.tables.items():
            full = f"{source.name}.{name}"
            known = self._known(full)
            wider = widened(known, table)
            # A table that changed in another way is stopped by its stage.
            if wider is None or wider == known:
                continue
            self._verify()
            self.stages[full].target.main.widen(_spec(full, wider))
            self._kept.forget(full)
            self._remember(full, wider, JobId(self._records.sources[full]["since"]))
            self._catalog.add(TableEntry(full, wider.schema, source_hidden(), wider.key))

    def warn_of_missed_versions(self, dimension: str, table: str) -> None:
        """Tells once, when a dimension with history is made over a source that does not see every version."""
        source = self.stages[table].source
        if not source.capabilities.intermediate_versions:
            _LOGGER.warning(
                "dimension has only the versions that polls saw: dimension=%s table=%s; capture by log or trigger sees all",
                dimension,
                table,
            )

    def stopped(self) -> list[FlowFailed]:
        """Tables that cannot be followed any further, whether a job has come to that point or not."""
        return [failure for stage in self.stages.values() if (failure := stage.stopped) is not None]

    def _open(self, source: Source, name: str, table: SourceTable) -> None:
        full = f"{source.name}.{name}"
        path = f"{INTERNAL}/replicas/{source.name}/{name}"
        since = JobId(self._records.sources[full]["since"])
        stored = self._tables.open(path, _spec(full, table), self._records.checkpoints.get(path), since)
        self._tables.add(stored)
        self.stages[full] = ReplicaStage(source, name, stored)
        self._catalog.add(TableEntry(full, table.schema, source_hidden(), table.key))

    def _known(self, full: str) -> SourceTable:
        record = self._records.sources[full]
        found = record.get("schema")
        schema = _parse_datatype_string(record["columns"]) if found is None else StructType.fromJson(found)
        assert isinstance(schema, StructType)
        return SourceTable(full.partition(".")[2], schema, tuple(record["key"]))

    def _remember(self, full: str, table: SourceTable, since: JobId) -> None:
        described = {"columns": table.schema.simpleString(), "schema": table.schema.jsonValue(), "key": list(table.key)}
        self._record([(SOURCE_TABLE, {"table": full, "since": since, **described})])


def _spec(name: str, table: SourceTable) -> TableSpec:
    return TableSpec(name, StructType([*table.schema.fields]).add(COMMIT_AT, "timestamp"), table.key)
