"""Format 2: the beginning of time is 1900-01-01 instead of year 1, which few readers can hold.

Rewritten are the columns that headgate fills with it: `__commit_at` of replicas, `__start_at` of type 2 dimensions (not of those
that a column of the source orders), both in arrangements too, timestamps of procedures over these tables, and labels of jobs.
Other values stay, and so does the order of rows: no commit is that old. Surrogate keys do not depend on times. Flows that read
these columns have another fingerprint with another beginning of time, so the opening that follows builds them anew. Stream logs
mark an initial load; where they also date its rows, in files of large transactions, whoever reads the files corrects that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.warehouse.files import FileReader, FileWriter
from headgate.warehouse.ledger import Ledger, LedgerEntry
from headgate.warehouse.log import LOG
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import EPOCH, DataFile
from headgate.warehouse.storage import Folder
from headgate.warehouse.store import DeltaStore, Step

_LOGGER = logging.getLogger(__name__)

OLD = datetime(1, 1, 1, tzinfo=UTC)
NEW = datetime(1900, 1, 1, tzinfo=UTC)


def convert(ledger: Ledger, root: Folder, step: Step) -> list[LedgerEntry]:
    """Rewrites table after table, each recorded before the next; gives the entries with new labels of jobs."""
    stored = _Stored.of(ledger.entries())
    places = dict(stored.places())
    for number, (path, columns) in enumerate(places.items(), start=1):
        ledger.verify()
        version, through = stored.checkpoints[path]
        written, files = _rewrite(root.child(path), columns, version, through, step)
        _LOGGER.info("converted a table: table=%s files=%d (%d of %d)", path, files, number, len(places))
        if files:
            ledger.append([("checkpoint", {"tables": {path: [written, through]}})])
    is_guessed = None in places.values()
    return [_converted(entry, is_guessed) for entry in ledger.entries()]


def _converted(entry: LedgerEntry, is_guessed: bool) -> LedgerEntry:
    if entry.kind == "job":
        return replace(entry, body=_labels(entry.body))
    if entry.kind == "flow" and is_guessed and not entry.body["versioned"]:
        # Which views read a procedure's table is not known here: all are built anew.
        return replace(entry, body={**entry.body, "fingerprint": ""})
    return entry


@dataclass(frozen=True)
class _Stored:
    """What the ledger of format 1 says of tables."""

    checkpoints: Mapping[str, tuple[int, int]]
    """Version and job by path."""
    replicas: dict[str, str]
    """The path by table."""
    dimensions: dict[str, str]
    procedures: dict[str, tuple[str, str]]
    """What it is on, and the path."""
    arrangements: Sequence[tuple[str, str]]
    """Tables and paths."""

    @staticmethod
    def of(entries: Sequence[LedgerEntry]) -> _Stored:
        checkpoints: dict[str, tuple[int, int]] = {}
        replicas: dict[str, str] = {}
        dimensions: dict[str, str] = {}
        procedures: dict[str, tuple[str, str]] = {}
        arrangements: dict[tuple[str, str], None] = {}
        for entry in entries:
            body = entry.body
            match entry.kind:
                case "checkpoint":
                    checkpoints |= {path: (version, job) for path, (version, job) in body["tables"].items()}
                case "source":
                    generation = int(body.get("generation", 1))
                    end = f"-{generation}" if generation > 1 else ""
                    replicas[body["table"]] = f"_headgate/replicas/{body['table'].replace('.', '/', 1)}{end}"
                case "flow" if body["versioned"]:
                    dimensions[body["name"]] = _generation(body)
                case "procedure":
                    procedures[body["name"]] = (body["on"], _generation(body))
                case "arrangement":
                    arrangements[body["table"], body["path"]] = None
        return _Stored(checkpoints, replicas, dimensions, procedures, tuple(arrangements))

    def places(self) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """Paths of the tables that can hold the beginning of time, and in which columns; None: in any timestamp."""
        columns: dict[str, tuple[str, ...]] = dict.fromkeys(self.replicas, ("__commit_at",))
        for table, path in self.dimensions.items():
            # The events of a dimension whose versions a column of the source orders: its times are the source's own.
            if f"_headgate/states/{path}/events" not in self.checkpoints:
                columns[table] = ("__start_at",)
        paths = [
            (path, columns[table]) for table, path in (self.replicas | self.dimensions).items() if table in columns
        ]
        paths += [(path, columns[table]) for table, path in self.arrangements if table in columns]
        for path, found in paths:
            if path in self.checkpoints:
                yield path, found
        for table, path in self.procedures.values():
            if table in columns and path in self.checkpoints:
                yield path, None


def _generation(body: Mapping[str, Any]) -> str:
    return str(body["name"]) if body["generation"] == 1 else f"{body['name']}.{body['generation']}"


def _rewrite(
    folder: Folder, columns: tuple[str, ...] | None, version: int, through: int, step: Step
) -> tuple[int, int]:
    """Rewrites the files of the version that hold the old beginning of time; gives the new version and how many there were."""
    if not folder.exists(LOG):
        # A table that was replaced is deleted; its checkpoint stays in the ledger.
        return version, 0
    store = _open(folder, step)
    if store.version != version:
        store.restore(version)
    schema = store.spec.arrow_schema
    moments = [
        field.name
        for field in schema
        if pa.types.is_timestamp(field.type) and (columns is None or field.name in columns)
    ]
    reader = FileReader(folder, store.spec)
    attempt = store.begin()
    done = False
    try:
        writer = FileWriter(folder, attempt, store.spec, rows_per_file=1)
        adds: list[DataFile] = []
        removes: list[int] = []
        lows = [store.index_by(name).table.column("low").to_pylist() for name in moments]
        old = (OLD - EPOCH) // timedelta(microseconds=1)
        for place, path in enumerate(store.index.paths):
            if any(low[place] is None or low[place] == old for low in lows):
                rows = reader.rows([path])
                changed = _moved(rows, moments)
                if changed is not rows:
                    adds.append(writer.write_in_order(changed))
                    removes.append(place)
        done = bool(adds)
        return store.commit(adds, store.index.take(np.array(removes, np.int64)), {"through": through}), len(adds)
    finally:
        store.end(attempt, discard=not done)


def _open(folder: Folder, step: Step) -> DeltaStore:
    """The table with the columns that it has; those with ranges go on having them."""
    table = DeltaTable(folder.address)
    schema = pa.schema(table.schema().to_arrow())
    actions = pa.table(table.get_add_actions(flatten=True))
    ranged = [field.name for field in schema if f"null_count.{field.name}" in actions.column_names]
    spec = TableSpec(folder.path, from_arrow_schema(schema), tuple(ranged) or (schema.names[0],))
    return DeltaStore(folder, spec, table, step)


def _moved(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with the new beginning of time; the same object when they do not hold the old one."""
    for name in columns:
        values = rows.column(name)
        old, new = (pa.scalar(at if values.type.tz else at.replace(tzinfo=None), values.type) for at in (OLD, NEW))
        is_old = pc.fill_null(pc.equal(values, old), False)
        if pc.any(is_old).as_py():
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.if_else(is_old, new, values))
    return rows


def _labels(body: Mapping[str, Any]) -> dict[str, Any]:
    """A job with the new beginning of time where a source had not been heard of."""

    def label(text: str | None) -> str | None:
        return NEW.isoformat() if text == OLD.isoformat() else text

    as_of = {source: label(at) for source, at in body.get("as_of", {}).items()}
    return {**body, "data_timestamp": label(body["data_timestamp"]), "as_of": as_of}
