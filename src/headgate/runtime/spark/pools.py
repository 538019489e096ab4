"""Spark's FAIR pools: one for queries, and for maintenance a fixed ladder of weights with two policies that give each stage a rung.

Inside the pool of queries every query has the same claim: one that comes later gets the next slot that is free. No pool takes a
slot from a task that runs, so a query waits at most until one task ends. Pools cannot change after Spark has started, so there
is one pool per weight and a stage picks one per execution. Stages in one pool share its weight.

    plain        MINIMUM COST: the operator with the largest volume of input gets most
    zone-aware   the same, but a consistency zone is one unit, and input that is blocked counts for nothing

In a zone, a fast operator waits for a slow one; its input piles up though it could not run. Plain MINIMUM COST takes that
pile for work and gives it the time that the slow operator lacks.
("Incremental ETL Pipeline Scheduling for Near Real-Time Data Warehouses", section 4; its thesis, section 3.6.2.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

WEIGHTS = (1, 2, 4, 8, 16, 32)
QUERIES = "headgate-queries"
"""The pool of queries."""
QUERY_WEIGHT = 32
"""As much as the heaviest maintenance pool."""
QUERY_SHARE = 1
"""Slots that queries get before weights count: one that waits has the next that is free, however much maintenance runs."""
MAINTENANCE_WEIGHT = 16
"""Of Spark's default pool: what maintenance does that is no stage, such as folding and building."""
POOL_PROPERTY = "spark.scheduler.pool"
"""The local property of a thread that names its pool."""
ALLOCATION_FILE = "spark.scheduler.allocation.file"
"""The setting that names the file of `write_allocations`."""


@dataclass(frozen=True, slots=True)
class StageObservation:
    """A stage's input."""

    name: str
    zone: str | None
    """Stages of one zone work on one job at a time, together; None for a stage by itself."""
    backlog_rows: int
    """All input that waits."""
    runnable_rows: int
    """The part of it that is not blocked by another stage of the zone."""
    seconds_per_row: float = 1.0
    """What a row costs; the same for all compares volumes in rows."""


Policy = Callable[[Sequence[StageObservation]], dict[str, str]]


def pool(weight: int) -> str:
    return f"headgate-{weight}"


def allocations() -> str:
    """The text of Spark's allocation file."""
    shares = {
        QUERIES: (QUERY_WEIGHT, QUERY_SHARE),
        "default": (MAINTENANCE_WEIGHT, 0),
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


def plain(observations: Sequence[StageObservation]) -> dict[str, str]:
    """MINIMUM COST: each stage's weight follows all of its own input."""
    return _ladder({stage.name: stage.backlog_rows * stage.seconds_per_row for stage in observations})


def zone_aware(observations: Sequence[StageObservation]) -> dict[str, str]:
    """Zone-aware MINIMUM COST: a zone's weight follows the input that its stages can work on now; all of them get it."""
    volumes: dict[str, float] = defaultdict(float)
    for stage in observations:
        volumes[_unit(stage)] += stage.runnable_rows * stage.seconds_per_row
    pools = _ladder(volumes)
    return {stage.name: pools[_unit(stage)] for stage in observations}


POLICIES: Mapping[str, Policy] = MappingProxyType({"plain": plain, "zone_aware": zone_aware})


def _unit(stage: StageObservation) -> str:
    return f"stage {stage.name}" if stage.zone is None else f"zone {stage.zone}"


def _ladder(volumes: Mapping[str, float]) -> dict[str, str]:
    """The largest volume gets the highest rung, others the highest one that is not above their proportion."""
    largest = max(volumes.values(), default=0.0)
    return {name: pool(_rung(volume / largest if largest > 0 else 0.0)) for name, volume in volumes.items()}


def _rung(share: float) -> int:
    return max((weight for weight in WEIGHTS if weight <= share * WEIGHTS[-1]), default=WEIGHTS[0])
