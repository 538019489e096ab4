"""From changes to the snapshot they make: which rows of the base went, and which rows stand in their place.

For every key, over the jobs (base, i] and in job order:

    dead    the -1 of the first job that touched the key: the row that the base holds
    image   the +1 of the last job that touched the key: the row at job i

A key whose first job has no -1 is new, so the base does not hold it; a key whose last job has no +1 is deleted. Both
follow from the contract of changes: netted per job and key, summing to the snapshot.

One rule, two implementations: `images_of` where the changes are an Arrow table in the driver (a small batch then needs no Spark query),
`images_frame` where they are in files that only executors read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from headgate.delta.changes import JOB, WEIGHT
from headgate.warehouse.changes import job_array
from headgate.warehouse.codes import code, member, ranks
from headgate.warehouse.frames import column
from headgate.warehouse.spec import TableSpec

FIRST, LAST = "__first", "__last"


@dataclass(frozen=True)
class Images:
    """Rows that the base holds and the snapshot does not, and rows that the snapshot holds besides the base's."""

    dead: pa.Table
    rows: pa.Table


def images_of(changes: pa.Table, codes: Callable[[], pa.Array]) -> Images:
    """From changes in job order and the codes of their keys, which are needed only if a row went."""
    weights = changes.column(WEIGHT).to_numpy()
    plain = changes.drop_columns([JOB, WEIGHT])
    if not len(weights) or weights.min() > 0:
        return Images(plain.slice(0, 0), plain)
    jobs = job_array(changes)
    place, count = ranks(codes())
    first = np.empty(count, dtype=np.int64)
    last = np.empty(count, dtype=np.int64)
    last[place] = jobs
    first[place[::-1]] = jobs[::-1]
    dead = (weights < 0) & (jobs == first[place])
    kept = (weights > 0) & (jobs == last[place])
    return Images(plain.filter(pa.array(dead)), plain.filter(pa.array(kept)))


def with_images(stored: pa.Table, changes: pa.Table, spec: TableSpec, select: Sequence[str]) -> pa.Table:
    """Rows of the base together with what changes of the same keys, in job order, made of them."""
    names = list(select)
    if not changes.num_rows:
        return stored.select(names)
    codes = code(changes, spec.key)
    images = images_of(changes, lambda: codes)
    if stored.num_rows:
        stored = stored.filter(pa.array(~member(code(stored, spec.key), codes)))
    return pa.concat_tables([stored.select(names), images.rows.select(names)], promote_options="default")


def images_frame(changes: DataFrame, spec: TableSpec) -> DataFrame:
    """The same by executors, as changes: dead rows have weight -1, images +1."""
    key = Window.partitionBy(*(column(name) for name in spec.key))
    ranked = changes.withColumns({FIRST: sf.min(JOB).over(key), LAST: sf.max(JOB).over(key)})
    return ranked.where(f"{WEIGHT} < 0 AND {JOB} = {FIRST} OR {WEIGHT} > 0 AND {JOB} = {LAST}").drop(FIRST, LAST)
