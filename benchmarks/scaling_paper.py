"""The experiments of "Elastic Performance for ETL+Q Processing" (sections 5.2, 5.5 and 5.7), simulated with the warehouse's policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from benchmarks.scaling_simulation import BufferSpeeds, Costs, SimulatedMoment, Simulation, fill_buffers
from headgate.config.scaling import ScalingSettings
from headgate.scaling.policies.buffer import BufferFill

ROW_BYTES = 130
"""50 MB are about 380,000 rows in the paper."""
LOW, HIGH = 10_000, 500_000
RAMP_SECONDS = 3_600
ALLOWED_S = 3.0
PERIOD_S = 2.0
MOST_SESSIONS = 8
QUERY_LIMIT_S = 60.0
TWELVE_NODES = Costs((0.02, 2.8e-6), (0.02, 7e-6), (0.02, 2.8e-6), query_seconds=100.0, row_bytes=ROW_BYTES)
"""Nodes of which 12 carry 500,000 rows/s, up to four of them transforming, and answer seven sessions within 60 s but not eight, as the
paper's did; it does not tell what a row cost there."""


@dataclass(frozen=True, slots=True)
class Course:
    """The rate rose and fell."""

    moments: Sequence[SimulatedMoment]
    costs: Costs

    def figures(self) -> dict[str, float]:
        moments = self.moments
        used = sum(moment.executors for moment in moments)
        return {
            "overshoot_s": max(0.0, max(moment.total_s for moment in moments) - ALLOWED_S),
            "within_3s": sum(moment.total_s <= ALLOWED_S for moment in moments) / len(moments),
            "most_executors": max(moment.executors for moment in moments),
            "executor_seconds_vs_max": used / (needed(self.costs, HIGH) * len(moments)),
            "executor_seconds_vs_needed": used / sum(needed(self.costs, moment.rate) for moment in moments),
            "changes": sum(len(moment.changes) for moment in moments),
        }


def needed(costs: Costs, rate: float) -> int:
    """Executors of one slot with which every part keeps its second, and a query has one."""
    rows = rate * PERIOD_S
    parts = (costs.extract, costs.transform, costs.load)
    return 1 + sum(max(1, ceil(rows * each / max(1e-3, ALLOWED_S / 3 - fixed))) for fixed, each in parts)


def rising_and_falling(costs: Costs, queue: float = 0.5) -> Course:
    """Every part has a second every two seconds, and transform a queue of which 100 MB times `queue` may be filled: 50 MB in the
    paper. Executors are not limited: the paper had as many as it took."""
    settings = ScalingSettings.model_validate(
        {
            "executors": {"min": 1, "max": 1_000, "ready": 4},
            "transform": {"queue": queue},
            "most_executor_hours": 24_000,
        }
    )
    simulation = Simulation(settings, costs, queue_bytes=100_000_000)

    def rate(at: float) -> float:
        return LOW + (HIGH - LOW) * max(0.0, 1 - abs(at - RAMP_SECONDS) / RAMP_SECONDS)

    return Course(list(simulation.run(rate, 2.5 * RAMP_SECONDS)), costs)


def buffers_without_a_consumer() -> list[tuple[float, list[BufferFill]]]:
    """350,000 rows/s into buffers of 10 GB memory and 1 TB disk, which writes 30 MB/s; for an hour."""
    speeds = BufferSpeeds(10e9, 1e12, 30e6)
    return list(fill_buffers(ScalingSettings(), speeds, 350_000 * ROW_BYTES, 3_600, most=12))


@dataclass(frozen=True, slots=True)
class Sessions:
    """So many sessions ask all the time; once sizes have settled."""

    query_s: float
    size: int
    held: float
    """Share of the time in which queries took 60 s at the most."""


def query_sessions(query_seconds: float) -> dict[int, Sessions]:
    """1 to 8 sessions over 50 GB with at most 12 executors of one slot; a query takes so long with one of them, alone."""
    settings = ScalingSettings.model_validate({"executors": {"min": 1, "max": 12, "ready": 0}})
    costs = replace(TWELVE_NODES, query_seconds=query_seconds)
    found = {}
    for sessions in range(1, MOST_SESSIONS + 1):
        moments = list(Simulation(settings, costs).run(lambda at: 0.0, 2_000, lambda at, n=sessions: n))
        settled = moments[len(moments) // 2 :]
        held = sum(moment.query_s <= QUERY_LIMIT_S for moment in settled) / len(settled)
        last = settled[-1]
        found[sessions] = Sessions(last.query_s, last.sizes["query"], held)
    return found
