"""A table's changes job by job, in pieces of bounded size: what is in files is read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.warehouse.changes import ChangeSet, files_dataset, find_damaged, job_array, slice_jobs
from headgate.warehouse.spec import arrow_columns
from headgate.warehouse.storage import Folder

PIECE_BYTES = 1 << 20
"""About how much of the changes that lie in memory makes a piece."""
_PIECE_ROWS = 8_192
"""Rows of a piece, at most."""


def job_pieces(
    parts: Sequence[ChangeSet], columns: Sequence[str], known_from: JobId
) -> Iterator[tuple[JobId, pa.Table, bool]]:
    """Each job that changed the table, in order: the columns and weights of its rows piece by piece, and whether that is the
    job's last piece.

    The table's rows are not known before `known_from`: what earlier jobs changed counts there.
    """
    wanted = [*columns, WEIGHT]
    jobs = sorted(set().union(*(_jobs(part) for part in parts)))
    early = [job for job in jobs if job < known_from]
    groups = [(JobId(job - 1), JobId(job)) for job in jobs if job >= known_from]
    if early:
        groups = [(JobId(early[0] - 1), known_from), *(group for group in groups if group[1] > known_from)]
    for after, upto in groups:
        held: pa.Table | None = None
        for piece in (each for part in parts for each in _pieces(part, wanted, after, upto)):
            if held is not None:
                yield upto, held, False
            held = piece
        if held is not None:
            yield upto, held, True


def _jobs(part: ChangeSet) -> set[int]:
    """The jobs that have changes."""
    found: set[int] = set()
    if part.table is not None:
        found.update(np.unique(job_array(part.table)).tolist())
    for batch in _scanned(part, [JOB], part.after, part.upto):
        found.update(pc.unique(batch.column(JOB)).to_pylist())
    return {job for job in found if part.after < job <= part.upto}


def _pieces(part: ChangeSet, columns: list[str], after: JobId, upto: JobId) -> Iterator[pa.Table]:
    for batch in _scanned(part, columns, after, upto):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])
    if part.table is not None:
        rows = slice_jobs(part.table, after, upto)
        size = min(_PIECE_ROWS, max(1, rows.num_rows * PIECE_BYTES // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size).select(columns)


def _scanned(part: ChangeSet, columns: list[str], after: JobId, upto: JobId) -> Iterator[pa.RecordBatch]:
    """What lies in files, read no further ahead than the next batch."""
    if not part.files:
        return
    within = (ds.field(JOB) > after) & (ds.field(JOB) <= upto)
    try:
        yield from files_dataset(part.files, arrow_columns(part.schema)).to_batches(
            columns=columns, filter=within, batch_size=_PIECE_ROWS, batch_readahead=1, fragment_readahead=1
        )
    except (OSError, pa.ArrowException) as error:
        raise find_damaged([Folder.at(file).path for file in part.files], Folder.at(part.files[0]), error) from error
