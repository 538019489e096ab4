"""Rewriting data files on the driver, one by one, so that memory does not follow the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headgate.warehouse.codes import code, member
from headgate.warehouse.compaction import joined, plan
from headgate.warehouse.files import THREADS, FileReader, FileWriter, Folded
from headgate.warehouse.images import Images
from headgate.warehouse.index import FileIndex, Places, Wanted, ordering_values
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.statistics import DataFile, has_range

Rest = Callable[[], None]
"""Called between two pieces of work that nobody waits for; may take its time."""


def no_rest() -> None:
    """For work that somebody waits for."""


def rewrite_files(
    index: FileIndex,
    images: Images,
    spec: TableSpec,
    reader: FileReader,
    writer: FileWriter,
    rows_per_file: int,
    rest: Rest = no_rest,
) -> Folded:
    """Rewrites the files that hold dead rows and those to merge, each with the images in its range; the other images get files
    of their own. Between two files there may be a rest."""
    groups = plan(index, rows_per_file)
    alone = np.setdiff1d(index.places(Wanted.of(images.dead.column(spec.lead))), joined(groups))
    tasks = [*groups, *alone.reshape(-1, 1)]
    shares, others = _shares([index.take(task) for task in tasks], images.rows, spec)
    dead = code(images.dead, spec.key)

    def rewrite(number: int) -> tuple[list[DataFile], Places]:
        rest()
        rows = reader.rows([index.paths[place] for place in tasks[number]])
        gone = member(code(rows, spec.key), dead)
        added = shares[number]
        if not gone.any() and not added.num_rows and len(tasks[number]) == 1:
            return [], joined([])
        kept = rows.filter(pa.array(~gone)) if gone.any() else rows
        return writer.write(pa.concat_tables([kept, added])), tasks[number]

    with ThreadPoolExecutor(THREADS) as pool:
        inserted = pool.submit(writer.write, others)
        done = list(pool.map(rewrite, range(len(tasks))))
        adds = [*inserted.result(), *(file for files, _ in done for file in files)]
    removes = index.take(joined([places for _, places in done]))
    folded = Folded(tuple(adds), removes, images.dead.num_rows + images.rows.num_rows)
    folded.require_growth(images.rows.num_rows - images.dead.num_rows, spec.name)
    return folded


def _shares(tasks: Sequence[FileIndex], rows: pa.Table, spec: TableSpec) -> tuple[list[pa.Table], pa.Table]:
    """The images that fall into each task's range, and those that fall into none."""
    nothing = [rows.slice(0, 0) for _ in tasks]
    if not tasks or not rows.num_rows or not has_range(rows.schema.field(spec.lead).type):
        return nothing, rows
    ranged = [number for number, group in enumerate(tasks) if len(group.ranged) == len(group)]
    if not ranged:
        return nothing, rows
    lows = np.concatenate([np.sort(tasks[number].lows)[:1] for number in ranged])
    highs = np.concatenate([np.sort(tasks[number].highs)[-1:] for number in ranged])
    order = np.argsort(lows, kind="stable")
    column = rows.column(spec.lead)
    known = np.flatnonzero(np.asarray(column.is_valid()))
    values = ordering_values(column.drop_null())
    at = np.searchsorted(lows[order], values, side="right") - 1
    task = order[np.maximum(at, 0)]
    inside = (at >= 0) & np.asarray(values <= highs[task], dtype=np.bool_)
    owner = np.full(rows.num_rows, -1, dtype=np.int64)
    owner[known[inside]] = np.array(ranged)[task[inside]]
    by_owner = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[by_owner], np.arange(-1, len(tasks) + 1))
    arranged = rows.take(pa.array(by_owner))
    parts = [arranged.slice(int(start), int(end - start)) for start, end in pairwise(cuts)]
    return parts[1:], parts[0]
