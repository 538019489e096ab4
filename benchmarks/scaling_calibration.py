"""The simulator against a real run: what a batch costs is found from the runs with one and with three executors throughout, and the run
whose sizes followed the load is then foretold.

The record is `out/scaling_real.json`, or, where there is none, what `make bench NAME=scaling_real SCALE=small` gave on 2026-11-18
(docs/benchmarks.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

from benchmarks.report import OUTPUT
from benchmarks.scaling_simulation import Costs, Simulation
from headgate.config.scaling import ScalingSettings

PHASES = [(20.0, 20), (35.0, 300), (45.0, 20)]
"""Seconds, and rows a second, of scale `small`."""
WAIT_S = 0.02
"""For every row, in the procedure."""
SLOTS, MOST = 4, 3
ALLOWED_S = 15.0
RECORDED: dict[str, Any] = {
    "sla_held": 0.54,
    "sla_held_fixed": {"least": 0.39, "most": 0.72},
    "worst_wait_s": {"auto": 33.0, "least": 54.0, "most": 24.0},
    "executor_seconds_vs_max": 0.90,
    "settle_s": 35.0,
    "most_executors": 3,
}
BATCH_SECONDS = (1.0, 2.0, 2.5, 3.0, 4.0)
DRIVER_SECONDS = (0.0, 0.001, 0.0015, 0.002)
FIRST_SECONDS = (4.0, 10.0, 16.0)


def recorded() -> dict[str, Any]:
    file = OUTPUT / "scaling_real.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found if found.get("scale") == "small" else RECORDED


def calibrated(record: Mapping[str, Any]) -> Costs:
    """The costs with which the runs of fixed sizes are met best: the largest deviation is the least."""

    def deviation(costs: Costs) -> float:
        found = {"least": simulated(costs, 1, 1), "most": simulated(costs, MOST, MOST)}
        return max(
            max(
                abs(each["sla_held"] / record["sla_held_fixed"][name] - 1),
                abs(each["worst_wait_s"] / record["worst_wait_s"][name] - 1),
            )
            for name, each in found.items()
        )

    tried = [
        # Capture and folds are hardly anything here; a row of the small commits is about 200 bytes of the stream.
        Costs((0.01, 0.0), (batch, WAIT_S), (0.1, 0.0), row_bytes=200, start_seconds=3.0, driver_seconds=driver,
              first_seconds=max(0.0, first - batch))
        for batch, driver, first in product(BATCH_SECONDS, DRIVER_SECONDS, FIRST_SECONDS)
    ]  # fmt: skip
    return min(tried, key=deviation)


def simulated(costs: Costs, least: int, most: int) -> dict[str, float]:
    """The figures of a run between these numbers of executors, looked at twice a second as the real one."""
    settings = ScalingSettings.model_validate(
        {"executors": {"min": least, "max": most, "ready": 0}, "transform": {"queue": "0.5%"}, "hold": "2s"}
    )
    ends = [sum(seconds for seconds, _ in PHASES[: place + 1]) for place in range(len(PHASES))]

    def rate(at: float) -> float:
        return next(rows for (_, rows), end in zip(PHASES, ends, strict=True) if at <= end)

    moments = list(Simulation(settings, costs, SLOTS, 8 << 20).run(rate, ends[-1], tick=0.5))
    late = [moment.at - ends[0] for moment in moments if ends[0] < moment.at <= ends[1] and moment.lag_s > ALLOWED_S]
    return {
        "sla_held": sum(moment.lag_s <= ALLOWED_S for moment in moments) / len(moments),
        "worst_wait_s": max(moment.lag_s for moment in moments),
        "executor_seconds_vs_max": sum(moment.executors for moment in moments) / (MOST * len(moments)),
        "settle_s": max(late, default=0.0),
        "most_executors": max(moment.executors for moment in moments),
    }


def compare(record: Mapping[str, Any]) -> dict[str, object]:
    """Simulated over real, less 1, of the run that was not used to find the costs; and of those that were."""
    costs = calibrated(record)
    worst = record["worst_wait_s"]
    real = {
        "auto": {
            **{key: record[key] for key in simulated(costs, 1, 1) if key in record},
            "worst_wait_s": worst["auto"],
        },
        **{
            name: {"sla_held": record["sla_held_fixed"][name], "worst_wait_s": worst[name]}
            for name in ("least", "most")
        },
    }
    found = {"auto": simulated(costs, 1, MOST), "least": simulated(costs, 1, 1), "most": simulated(costs, MOST, MOST)}
    return {
        "costs": {
            "batch_s": costs.transform[0],
            "driver_s_per_row": costs.driver_seconds,
            "first_batch_s": costs.transform[0] + costs.first_seconds,
        },
        "simulated": found,
        "deviation": {
            name: {key: found[name][key] / value - 1 for key, value in each.items()} for name, each in real.items()
        },
    }
