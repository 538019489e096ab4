"""Reads the audit rows of a range: with COPY, a chunk at a time, each decoded as it arrives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture.postgres.copied import BATCH_BYTES, copied
from headgate.capture.postgres.known_tables import KnownTables
from headgate.capture.postgres.sessions import Sessions
from headgate.capture.postgres.trigger_batch import AuditBatch, Chunk, SnapshotRange, chunk_of
from headgate.capture.postgres.trigger_sql import COLUMNS, Objects, changes_between
from headgate.capture.postgres.trigger_state import first_position
from headgate.capture.postgres.trigger_tables import decode_notes

_NUMBERS = ("id", "xid", "relation", "commit_at")


class AuditReader:
    """Reads one capture's audit table; safe to use from several threads."""

    def __init__(self, sessions: Sessions, objects: Objects, tables: KnownTables, folder: Path, memory: int) -> None:
        """`folder` is for chunks that do not fit into so many bytes of memory."""
        self._sessions = sessions
        self._objects = objects
        self._tables = tables
        self._folder = folder
        self._memory = memory

    def read(self, wanted: SnapshotRange, *, timed: bool) -> AuditBatch:
        """All changes of the range, of the tables that are captured; `timed` if the source keeps commit times."""
        batch = AuditBatch(wanted, self._folder, self._memory)
        columns: dict[int, tuple[str, ...]] = {}
        with self._sessions.borrow("reading the audit table") as connection:
            query = changes_between(self._objects, wanted.after, wanted.upto, commit_times=timed)
            for texts in copied(connection, query, COLUMNS, batch_bytes=min(BATCH_BYTES, self._memory)):
                notes = self._captured(texts)
                if notes.num_rows:
                    batch.add(self._decoded(notes, columns, first_position(wanted.batch)))
        return batch

    def _captured(self, texts: pa.Table) -> pa.Table:
        names = pa.array(list(self._tables.tables), pa.string())
        notes = texts.filter(pc.is_in(texts.column("captured"), names))
        for name in _NUMBERS:
            number = notes.column(name).cast(pa.int64())
            notes = notes.set_column(notes.schema.get_field_index(name), name, number)
        return notes.append_column("place", pa.array(np.arange(notes.num_rows)))

    def _decoded(self, notes: pa.Table, columns: dict[int, tuple[str, ...]], position: int) -> Chunk:
        pairs = notes.group_by(["relation", "captured"], use_threads=False).aggregate([]).to_pylist()
        relations = {pair["relation"]: pair["captured"] for pair in pairs}
        unseen = {relation: name for relation, name in relations.items() if relation not in columns}
        if unseen:
            # Another session, since this one is copying. What it sees is not older than what is being copied.
            with self._sessions.borrow("reading the definitions of the tables") as connection:
                columns.update(self._tables.look(connection, unseen, position))
        changes = []
        for relation, name in relations.items():
            some = notes.filter(pc.equal(notes.column("relation"), relation))
            changes.append(decode_notes(self._tables, name, columns[relation], some, position))
        return chunk_of(notes, changes)
