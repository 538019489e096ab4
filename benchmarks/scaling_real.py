"""Scaling for real, small: a standalone cluster of this machine, whose executors come and go with the rates of two sources.

    make bench NAME=scaling_real SCALE=tiny|small|full

A producer and a PostgreSQL, captured by trigger, write at a low, a high and a low rate. A procedure waits 20 ms for every row of the
producer, as a slow lookup does: that stands for work of other machines, so that on two cores more executors do more. An executor has
four slots: at the high rate the rows wait for six seconds in a second, which one executor cannot do and three can (`needed_slots`).
The same with sizes that follow the load (`auto`), and with one (`least`) and three executors (`most`) throughout, one after the other:

    sla_held                  share of half seconds in which no acknowledged row waited longer than 15 s for its tables
    executor_seconds_vs_max   executor seconds of `auto` over those of three executors all the time
    settle_s                  seconds from the rise of the rate until rows wait less than that for the rest of the high rate
    lost, doubled             rows, of all runs

The moments of `auto` are in `out/scaling_real_moments.json`.
"""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import OUTPUT, parse_scale, publish, say
from tests.deploy.scaled import MOST, Scaled, prepare, run, surroundings
from tests.deploy.scaling_process import SLOTS, Plan

ALLOWED_S = 15.0
LOW, HIGH = 20, 300
PHASES = {
    "tiny": [(5.0, LOW), (10.0, HIGH), (10.0, LOW)],
    "small": [(20.0, LOW), (35.0, HIGH), (45.0, LOW)],
    "full": [(120.0, LOW), (120.0, HIGH), (240.0, LOW)],
}
SIZES = {"auto": (1, MOST), "least": (1, 1), "most": (MOST, MOST)}
TARGETS = {"sla_held": (">=", 0.95), "executor_seconds_vs_max": ("<=", 0.6), "lost": ("<=", 0), "doubled": ("<=", 0)}


def main() -> None:
    scale = parse_scale("How a warehouse on a real cluster follows the load.")
    found: dict[str, Scaled] = {}
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)) as (cluster, server):
        for name, (least, most) in SIZES.items():
            prepare(server)
            place = str(Path(folder) / name)
            plan = Plan(place, cluster.url, server.dsn, PHASES[scale], least, most)
            found[name] = run(plan)
            say(f"{name}: {found[name].result}, rows in time {held(found[name]):.2f}")
    auto = found["auto"].moments
    results: dict[str, object] = {
        "needed_slots": {"low": LOW * plan.wait, "high": HIGH * plan.wait},
        "slots": SLOTS,
        "sla_held": held(found["auto"]),
        "sla_held_fixed": {name: held(found[name]) for name in ("least", "most")},
        "executor_seconds_vs_max": executor_seconds(auto) / (MOST * (auto[-1]["at"] - auto[0]["at"])),
        "settle_s": settled(auto),
        "most_executors": max(moment["executors"] for moment in auto),
        "worst_wait_s": {name: max(moment["lag"] for moment in each.moments) for name, each in found.items()},
        "lost": sum(result(each)["lost"] for each in found.values()),
        "doubled": sum(result(each)["doubled"] for each in found.values()),
        "exact": all(result(each)["sold"] for each in found.values()),
        "changes": result(found["auto"])["changes"],
    }
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "scaling_real_moments.json").write_text(json.dumps(auto, indent=1) + "\n", encoding="utf-8")
    publish("scaling_real", scale, results, TARGETS)


def result(scaled: Scaled) -> dict[str, Any]:
    assert scaled.result is not None
    return scaled.result


def held(scaled: Scaled) -> float:
    return sum(moment["lag"] <= ALLOWED_S for moment in scaled.moments) / len(scaled.moments)


def executor_seconds(moments: list[dict[str, Any]]) -> float:
    """The integral of the executors over time."""
    return sum(before["executors"] * (after["at"] - before["at"]) for before, after in pairwise(moments))


def settled(moments: list[dict[str, Any]]) -> float:
    high = [moment for moment in moments if moment["phase"] == 1]
    late = [moment["at"] for moment in high if moment["lag"] > ALLOWED_S]
    return max(late) - high[0]["at"] if late else 0.0


if __name__ == "__main__":
    main()
