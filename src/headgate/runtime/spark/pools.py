"""Spark's FAIR pools: one for queries, one for reading sources, and for maintenance one for each of a few weights.

Inside the pool of queries every query has the same claim: one that comes later gets the next slot that is free. No pool takes a
slot from a task that runs, so a query waits at most until one task ends. Pools cannot change after Spark has started, so there
is one pool per weight and a stage picks one per execution. Stages in one pool share its weight.
"""

from __future__ import annotations

import threading
from pathlib import Path
from weakref import ref

from pyspark import SparkContext

WEIGHTS = (1, 2, 4, 8, 16, 32)
QUERIES = "headgate-queries"
"""The pool of queries."""
EXTRACT = "headgate-extract"
"""The pool of large loads from sources."""
QUERY_WEIGHT = 32
"""As much as the heaviest maintenance pool."""
QUERY_SHARE = 1
"""Slots that queries get before weights count: one that waits has the next that is free, however much maintenance runs."""
MAINTENANCE_WEIGHT = 16
"""Of Spark's default pool."""
DEFAULT = "default"
"""Spark's own pool: what maintenance does that is no stage, such as folding and building."""
POOL_PROPERTY = "spark.scheduler.pool"
"""The local property of a thread that names its pool."""
ALLOCATION_FILE = "spark.scheduler.allocation.file"
"""The setting that names the file of `write_allocations`."""


_thread = threading.local()


def use_pool(context: SparkContext, name: str) -> None:
    """Has the Spark jobs of the calling thread go into a pool, of which Spark is told only when it is another one than before."""
    known: ref[SparkContext] | None = getattr(_thread, "context", None)
    if known is None or known() is not context or _thread.pool != name:
        context.setLocalProperty(POOL_PROPERTY, name)
        _thread.context, _thread.pool = ref(context), name


def used_pool(context: SparkContext) -> str:
    """The pool of the calling thread."""
    known: ref[SparkContext] | None = getattr(_thread, "context", None)
    return str(_thread.pool) if known is not None and known() is context else DEFAULT


def pool(weight: int) -> str:
    return f"headgate-{weight}"


def allocations() -> str:
    """The text of Spark's allocation file."""
    shares = {
        QUERIES: (QUERY_WEIGHT, QUERY_SHARE),
        EXTRACT: (MAINTENANCE_WEIGHT, 0),
        DEFAULT: (MAINTENANCE_WEIGHT, 0),
        **{pool(weight): (weight, 0) for weight in WEIGHTS},
    }
    pools = "".join(
        f'  <pool name="{name}">\n    <schedulingMode>FAIR</schedulingMode>\n'
        f"    <weight>{weight}</weight>\n    <minShare>{share}</minShare>\n  </pool>\n"
        for name, (weight, share) in shares.items()
    )
    return f'<?xml version="1.0"?>\n<allocations>\n{pools}</allocations>\n'


def write_allocations(folder: Path) -> Path:
    """Writes the allocation file into a folder and gives its path."""
    file = folder / "fairscheduler.xml"
    file.write_text(allocations())
    return file
