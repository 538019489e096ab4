"""The replicas of all source tables: opened as the ledger has them, and widened when a source's table has more columns.

A source that cannot be reached now delivers no tables; what the ledger knows of them is enough to read their snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructType, _parse_datatype_string

from headgate.capture.memory import MemorySource
from headgate.capture.producer import ProducerSource
from headgate.capture.source import RangedSource, Source, SourceTable
from headgate.dataflow.relation import quoted
from headgate.delta.changes import ROW_NUMBER, JobId
from headgate.errors import ConfigError, CorruptWarehouse, DefiniteError, FlowFailed
from headgate.ranges.range_map import RangeMap, kind_of
from headgate.runtime.flows.range_maps import RANGE_COLUMN, RangeMaps
from headgate.runtime.stages.batch import BatchFactory
from headgate.runtime.stages.materialization import Materializer
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog, hidden_of, source_entry
from headgate.runtime.tables.gaps import Gap, Gaps
from headgate.runtime.tables.journal import Entries, Journal
from headgate.runtime.tables.records import ARRANGEMENT, SOURCE_TABLE
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import INTERNAL, Tables
from headgate.runtime.tables.wider import outgrown, widened
from headgate.warehouse.divided import Division
from headgate.warehouse.spec import TableSpec

_LOGGER = logging.getLogger(__name__)
OPENING_THREADS = 4
"""Tables that are opened at the same time: most of that is waiting for the storage."""
_UNLOADED = "its first rows are being loaded, and these are not read yet"
_RANGE_BYTES = 16 << 20
"""Of a table that is loaded range by range, about what a range has at the source."""
_FEWEST_RANGES, _MOST_RANGES = 4, 128
_KEPT = ("declared", "by_range", RANGE_COLUMN)
"""What a source table's record says beside its columns, which stays when those change."""


@dataclass(eq=False)
class Replicas:
    """One stage per source table, by its full name."""

    _tables: Tables
    _catalog: WarehouseCatalog
    _journal: Journal
    _batches: BatchFactory
    _materializer: Materializer
    range_maps: RangeMaps
    stages: dict[str, ReplicaStage] = field(default_factory=dict, init=False)

    def open(self, source: Source, names: Iterable[str], newest: JobId) -> None:
        """Opens the replicas of a source's tables; those that are new to the warehouse begin after job `newest`."""
        opening: list[tuple[str, SourceTable]] = []
        for name in names:
            found = source.tables.get(name)
            full = f"{source.name}.{name}"
            if not self._is_known(full):
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
            opening.append((name, known))
        with ThreadPoolExecutor(OPENING_THREADS, "opening") as pool:
            stored = list(pool.map(lambda each: self._stored(source, *each), opening))
        for (name, known), table in zip(opening, stored, strict=True):
            self._add(source, name, known, table)
        self.widen(source)

    def open_declared(self, source: ProducerSource, newest: JobId) -> None:
        """Opens the replicas of the tables that programs declared."""
        begins = f"{source.name}."
        names = [
            full.removeprefix(begins)
            for full, record in self._journal.records.sources.items()
            if full.startswith(begins) and record.get("declared") and self._is_known(full)
        ]
        for name in names:
            source.declare(self._known(begins + name))
        self.open(source, names, newest)

    def declare(self, source: ProducerSource, table: SourceTable, newest: JobId) -> None:
        """A new table, from job `newest` on."""
        full = f"{source.name}.{table.name}"
        described = self._described(full, table, newest, self._generation(full))
        self._journal.record([(SOURCE_TABLE, {**described, "declared": True})])
        source.declare(table)
        self.open(source, [table.name], newest)

    def drop(self, source: ProducerSource, name: str) -> None:
        """Archives a table that a program declared: its files stay until one of that name is declared again."""
        full = f"{source.name}.{name}"
        record = self._journal.records.sources[full]
        if not record.get("declared"):
            raise DefiniteError(f"the project file declares {full}", hint="remove it there")
        self._journal.record([(SOURCE_TABLE, {**record, "dropped": True})])
        source.forget(name)
        del self.stages[full]
        self._tables.remove(full)
        self._catalog.remove(full)

    def are_narrow(self, source: Source) -> bool:
        """Whether a table at the source has columns that its replica lacks, or wider types."""
        return bool(self.outgrown(source)) or any(
            not set(table.schema.names) <= set(self.stages[full].target.spec.columns)
            for name, table in source.tables.items()
            if (full := f"{source.name}.{name}") in self.stages
        )

    @property
    def damaged(self) -> list[TableEntry]:
        """Those that could not be opened, as flows see them."""
        return [
            source_entry(full, self._known(full))
            for full in self._journal.records.sources
            if full in self._tables.damaged
        ]

    def set_aside(self, full: str, damage: CorruptWarehouse) -> None:
        """Takes a damaged replica out of use."""
        _LOGGER.warning("a table is damaged: table=%s: %s", full, damage)
        self._tables.damaged[full] = damage
        if self.stages.pop(full, None) is not None:
            self._tables.remove(full)
            self._catalog.remove(full)

    def begin_anew(self, full: str, source: Source, newest: JobId, more: Entries) -> None:
        """Goes on with an empty replica in place of a damaged one, which its source fills again; `more` goes with that."""
        known = self._known(full)
        described = self._described(full, known, newest, self._generation(full) + 1)
        self._journal.record([(SOURCE_TABLE, {**described, "unfilled": True}), *more])
        self._add(source, known.name, known, self._stored(source, known.name, known, filling=True))

    def filled(self, full: str) -> None:
        """The source has filled a replica that began anew."""
        self._journal.record([(SOURCE_TABLE, {**self._journal.records.sources[full], "unfilled": False})])

    def widen(self, source: Source) -> None:
        """Gives replicas the columns that their tables at the source have more."""
        for name, table in source.tables.items():
            full = f"{source.name}.{name}"
            if full not in self.stages:
                continue
            known = self._known(full)
            wider = widened(known, table)
            # A table that changed in another way is stopped by its stage.
            if wider is None or wider == known:
                continue
            self._journal.verify()
            target = self.stages[full].target
            target.versioned.widen(_spec(full, wider))
            self._tables.add(target)
            self._remember(full, wider, JobId(self._journal.records.sources[full]["since"]))
            self._catalog.add(source_entry(full, wider))

    def outgrown(self, source: Source) -> list[tuple[str, SourceTable]]:
        """Replicas by name that are too narrow for what was read of their tables, and what they should look like."""
        found = [
            (f"{source.name}.{name}", outgrown(self._known(f"{source.name}.{name}"), table))
            for name, table in source.tables.items()
            if name not in source.problems
            and f"{source.name}.{name}" in self.stages
            and not self.stages[f"{source.name}.{name}"].target.has_unknown_rows
        ]
        return [(full, wider) for full, wider in found if wider is not None]

    def replace(self, full: str, wider: SourceTable, more: Entries) -> None:
        """Goes on with a copy of a replica that has wider types; `more` is written to the ledger together with that."""
        old = self.stages[full]
        job, generation = old.target.through, self._generation(full) + 1
        path, spec = _path(full, generation), _spec(full, wider)
        self._tables.folder(path).delete_folder()
        fresh = self._tables.open(path, spec, None, JobId(job - 1))
        with self._batches.open() as batch:
            views = batch.views(old.target.count(job))
            query = f"SELECT {_cast(spec.schema, old.target.spec.columns)} FROM {views.whole(old.target, job)}"
            fresh.apply(batch.appeared(spec, query, job, views), job)
            stale = [record for record in self._journal.records.arrangements.values() if record.table == full]
            forgotten = [(ARRANGEMENT, replace(record, columns=frozenset()).body()) for record in stale]
            described = self._described(full, wider, JobId(self._journal.records.sources[full]["since"]), generation)
            described |= self._kept(full)
            self._materializer.checkpoint([(fresh.versioned, job)], [(SOURCE_TABLE, described), *forgotten, *more])
        self._delete_forgotten(full)
        fresh.divide(self.range_maps.of_source(old.source.name, wider.name, spec))
        self._tables.add(fresh)
        self.stages[full] = ReplicaStage(old.source, wider.name, fresh, by_range=old.by_range)
        self._catalog.add(source_entry(full, wider))

    def warn_of_missed_versions(self, dimension: str, table: str) -> None:
        """Tells once, when a dimension with history is made over a source that does not see every version."""
        source = self.stages[table].source
        if not source.capabilities.intermediate_versions:
            _LOGGER.warning(
                "dimension has only the versions that polls saw: dimension=%s table=%s; capture by log or trigger sees all",
                dimension,
                table,
            )

    def pass_unloaded(self, names: Collection[str], job: JobId) -> None:
        """Takes those of the tables without first rows to a job as they are, empty and not to be read there; no stage runs meanwhile.

        A flow that is built over such a table begins at that job, and gets the first rows as changes.
        """
        for stage in [stage for name, stage in self.stages.items() if name in names]:
            begins = stage.begins_at(self._journal.chain)
            if begins is not None and stage.target.through < job < begins:
                stage.target.skip_to(begins)
                stage.target.apply(None, job)

    def stopped(self) -> list[FlowFailed]:
        """Tables that cannot be followed any further, whether a job has come to that point or not."""
        return [failure for stage in self.stages.values() if (failure := stage.stopped) is not None]

    def _stored(
        self, source: Source, name: str, table: SourceTable, *, filling: bool = False
    ) -> StoredTable | CorruptWarehouse:
        """A replica's table as the ledger has it, or its damage; changes nothing that others read, so several may be opened at a time."""
        full = f"{source.name}.{name}"
        if self._journal.records.sources[full].get("unfilled") and not filling:
            hint = f"`headgate refresh --table {full}` reads it whole again"
            return CorruptWarehouse(f"{full} was damaged, and filling it again was cut short", hint=hint)
        generation = self._generation(full)
        path = _path(full, generation)
        if generation > 1:
            # What was replaced, as far as a crash or a reader kept it.
            self._tables.folder(_path(full, generation - 1)).delete_folder()
            self._delete_forgotten(full)
        since = JobId(self._journal.records.sources[full]["since"])
        try:
            stored = self._tables.open(path, _spec(full, table), self._journal.records.checkpoints.get(path), since)
        except CorruptWarehouse as damage:
            return damage
        stored.divide(self.range_maps.of_source(source.name, name, stored.spec))
        return stored

    def _add(self, source: Source, name: str, table: SourceTable, stored: StoredTable | CorruptWarehouse) -> None:
        full = f"{source.name}.{name}"
        if isinstance(stored, CorruptWarehouse):
            self.set_aside(full, stored)
            return
        self._tables.add(stored)
        by_range = bool(self._journal.records.sources[full].get("by_range"))
        stage = self.stages[full] = ReplicaStage(source, name, stored, by_range=by_range)
        self._catalog.add(source_entry(full, table))
        if by_range:
            self._restore_load(stage, self._tables.path(stored.versioned))

    def _restore_load(self, stage: ReplicaStage, path: str) -> None:
        """What the ledger knows of a table that is loaded range by range: which ranges are read, and from where on their changes count."""
        known, chain = self._journal.records.gaps.get(path), self._journal.chain
        if known is None:
            stage.target.await_rows(_UNLOADED)
            return
        gaps = [Gap.from_body(body) for body in known]
        for gap in gaps:
            if stage.target.range_map.keys_of(stage.target.holding(gap.keys)) != gap.keys:
                raise ConfigError(
                    f"{stage.name} is being loaded range by range and has other ranges in the project file now",
                    hint="declare its ranges as they were until it is loaded",
                )
        stage.target.restore(Gaps(tuple(replace(gap, due=stage.enters_at(gap, chain)) for gap in gaps)))

    def load_by_range(self, whole: Collection[str]) -> None:
        """Decides once, of tables whose first rows are to be read, which are loaded range by range; called before flows are opened.

        `whole` are tables that dimensions keep the history of: their facts would see later versions than they should.
        """
        for full, stage in self.stages.items():
            source, target = stage.source, stage.target
            if not isinstance(source, RangedSource) or not stage.is_unloaded or full in whole:
                continue
            size = source.first_loads[stage.table].bytes
            column = _range_column(target)
            if size <= self.range_maps.load_bytes or column is None:
                continue
            count = min(_MOST_RANGES, max(_FEWEST_RANGES, -(-size // _RANGE_BYTES)))
            bounds = source.bounds(stage.table, column, count)
            if bounds is None or (not bounds and target.division is None):
                continue
            record = {**self._journal.records.sources[full], "by_range": True}
            if target.division is None:
                record[RANGE_COLUMN] = column
            self._journal.record([(SOURCE_TABLE, record)])
            if target.division is None:
                target.divide(self.range_maps.of_source(source.name, stage.table, target.spec))
            assert target.division is not None
            if bounds and target.range_map.count == 1:
                self._divide(target.division, RangeMap(target.range_map.kind, bounds))
            stage.by_range = True
            target.await_rows(_UNLOADED)
            _LOGGER.info("loaded range by range: table=%s ranges=%s of %s", full, target.range_map.count, column)

    def _divide(self, division: Division, found: RangeMap) -> None:
        """Gives a family of tables that have one range the ranges of the one that is loaded."""
        self.range_maps.remember(division.family, found, chosen=True)
        for stage in self.stages.values():
            own = stage.target.division
            if own is not None and own.family == division.family:
                stage.target.divide(replace(own, map=found))

    def mark_entering(self) -> None:
        """Has a job made that ranges can enter at which were read before the last opening, where no job has that yet."""
        chain = self._journal.chain
        for stage in self.stages.values():
            positions = [
                gap.read_at
                for gap in stage.target.gaps.open
                if gap.read_at is not None and (stage.enters_at(gap, chain) or 0) > chain.newest
            ]
            if positions and isinstance(stage.source, RangedSource) and stage.source.unopened is None:
                stage.source.mark(max(positions))

    def _delete_forgotten(self, full: str) -> None:
        """Arrangements with old types: new ones take their place."""
        for record in self._journal.records.arrangements.values():
            if record.table == full and not record.columns:
                self._tables.folder(record.path).delete_folder()

    def _known(self, full: str) -> SourceTable:
        record = self._journal.records.sources[full]
        found = record.get("schema")
        schema = _parse_datatype_string(record["columns"]) if found is None else StructType.fromJson(found)
        assert isinstance(schema, StructType)
        return SourceTable(full.partition(".")[2], schema, tuple(record["key"]))

    def _generation(self, full: str) -> int:
        """How many tables the replica has been, the present one included."""
        record = self._journal.records.sources.get(full, {})
        return int(record.get("generation", 1)) + bool(record.get("dropped"))

    def _is_known(self, full: str) -> bool:
        return full in self._journal.records.sources and not self._journal.records.sources[full].get("dropped")

    def _remember(self, full: str, table: SourceTable, since: JobId) -> None:
        described = self._described(full, table, since, self._generation(full))
        self._journal.record([(SOURCE_TABLE, {"declared": False, **described, **self._kept(full)})])

    def _kept(self, full: str) -> dict[str, Any]:
        known = self._journal.records.sources[full] if self._is_known(full) else {}
        return {name: known[name] for name in _KEPT if known.get(name)}

    def _described(self, full: str, table: SourceTable, since: JobId, generation: int) -> dict[str, Any]:
        return {
            "table": full,
            "since": since,
            "generation": generation,
            "columns": table.schema.simpleString(),
            "schema": table.schema.jsonValue(),
            "key": list(table.key),
        }


def _range_column(target: StoredTable) -> str | None:
    """The column by whose ranges a table is loaded: that of its ranges, else the first of its key, where that can be one."""
    if target.division is not None:
        return target.division.column
    lead = target.spec.key[0]
    if lead == ROW_NUMBER or kind_of(target.spec.schema[lead].dataType.simpleString()) is None:
        return None
    return lead


def _path(full: str, generation: int) -> str:
    source, _, name = full.partition(".")
    return f"{INTERNAL}/replicas/{source}/{name}" + (f"-{generation}" if generation > 1 else "")


def _cast(schema: StructType, known: Collection[str]) -> str:
    """The columns of a schema as expressions over a table that may lack some, or has narrower types."""
    return ", ".join(
        f"CAST({quoted(field.name) if field.name in known else 'NULL'} AS {field.dataType.simpleString()})"
        f" AS {quoted(field.name)}"
        for field in schema.fields
    )


def _spec(name: str, table: SourceTable) -> TableSpec:
    schema = StructType([*table.schema.fields, *hidden_of(table).fields])
    return TableSpec(name, schema, table.key or (ROW_NUMBER,))
