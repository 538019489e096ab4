"""Folding overlays into Delta tables: data files of all tables first, then each table's commit.

Nothing counts before the caller has recorded the versions in the ledger: a crash in between leaves commits that the next
opening undoes and files that nothing names.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.warehouse.store import ForeignCommit
from headgate.warehouse.versioned import VersionedTable


def materialize(
    tables: Sequence[VersionedTable], upto: JobId | None, session: SparkSession
) -> list[tuple[VersionedTable, tuple[int, JobId]]]:
    """Commits each table at the job, by default at its own newest; gives the versions and their jobs."""
    prepared = []
    for table in tables:
        job = table.through if upto is None else upto
        if job > table.base_through:
            prepared.append((table, table.prepare(session, job)))
    for table, found in prepared:
        try:
            table.commit(found)
        except ForeignCommit:
            table.repair()
            table.commit(found)
    return [(table, (table.version, table.base_through)) for table in tables]
