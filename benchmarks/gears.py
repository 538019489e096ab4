"""Gears: workload-aware capture against every constant gear, under a closed OLTP load and changing mixes of requests.

    make bench NAME=gears SCALE=tiny|small|full

Per method, one capture and one pgbench run on; every few seconds the capture gets other gears: each constant one of
its ladder, and all of them with the controller ("aware"), in an order that rotates. Each of these slots sees the same cycle of
request mixes, whose times count in periods of the lowest gear:

    quiet        few requests that can wait
    reports      some that can wait a little, half of them content with a recent state
    dashboards   many that want the newest state soon

τ is what pgbench finished; staleness, latency and expired share are over the slot's requests, as `headgate.capture.gears.requests`
defines them; the gain is the controller's, with τ as a share of the best in the same round. A mean staleness below 1 ms
counts as 1 ms where two are compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.oltp import Load, Oltp, Transactions
from benchmarks.oltp_capture import Attached
from benchmarks.oltp_plots import Moment, draw
from benchmarks.report import OUTPUT, median, parse_scale, publish, say
from headgate.capture.gears.controller import gain
from headgate.capture.gears.requests import RequestOutcome, measure
from headgate.config.gears import LADDERS, CaptureMethod, GearSettings

WAREHOUSES = {"tiny": 4, "small": 10, "full": 20}
ROUNDS = {"tiny": 1, "small": 6, "full": 12}
MIX_SECONDS = {"tiny": 0.4, "small": 1.2, "full": 4.0}
LONGER_MIXES: Mapping[CaptureMethod, float] = {"timestamp": 2.0}
"""Whose gears are so slow that their mixes must last longer for enough requests."""
WARM_UP_SECONDS = {"tiny": 0.5, "small": 3.0, "full": 10.0}
LEAD_IN_SECONDS = 0.3
"""After a change of gears, before the slot counts."""
METHODS: tuple[CaptureMethod, ...] = ("trigger", "timestamp", "log")
IMAGES = Path(__file__).parent.parent / "docs" / "img"


@dataclass(frozen=True)
class Mix:
    """Requests of one kind: how many, how long they can wait, and how old what they need may be, in lowest periods."""

    name: str
    per_period: float
    window: tuple[float, float]
    age: float = 0.0
    """The largest; half of the requests need the newest commit all the same."""


MIXES = (
    Mix("quiet", per_period=0.2, window=(1.0, 2.0)),
    Mix("reports", per_period=1.0, window=(0.5, 1.5), age=1.0),
    Mix("dashboards", per_period=3.0, window=(0.2, 0.6)),
)


@dataclass
class Slot:
    """One cycle of mixes in one variant."""

    variant: str
    round: int
    start: float = 0.0
    end: float = 0.0
    outcomes: list[tuple[float, RequestOutcome]] = field(default_factory=list)
    """With the seconds since the start at which they were asked for."""
    server_cpu: float = 0.0
    walsender_cpu: float = 0.0
    shifts: int = 0
    transactions: Transactions | None = None

    @property
    def throughput(self) -> float:
        assert self.transactions is not None
        return len(self.transactions) / (self.end - self.start)


def variants_of(method: CaptureMethod) -> dict[str, GearSettings]:
    ladder = LADDERS[method]
    names = ("high", "low") if len(ladder) == 2 else ("high", "middle", "low")
    constant = {name: GearSettings(gears=(gear,)) for name, gear in zip(names, ladder, strict=True)}
    return {**constant, "aware": GearSettings(gears=ladder)}


def mix_seconds(method: CaptureMethod, scale: str) -> float:
    return MIX_SECONDS[scale] * LONGER_MIXES.get(method, 1.0)


def run_slot(
    attached: Attached, oltp: Oltp, slot: Slot, settings: GearSettings, period: timedelta, length: float
) -> None:
    """Asks for one cycle of mixes."""
    agent = attached.agent
    agent.change(settings)
    time.sleep(LEAD_IN_SECONDS)
    used, sent = oltp.cpu_seconds(), oltp.walsender_seconds()
    slot.start = time.time()
    futures: list[Future[RequestOutcome]] = []
    for number, mix in enumerate(MIXES):
        random = Random(1000 * slot.round + number)
        begins, ends = slot.start + number * length, slot.start + (number + 1) * length
        arrival = begins
        while True:
            arrival += random.expovariate(mix.per_period / period.total_seconds())
            window = random.uniform(*mix.window) * period
            need = datetime.fromtimestamp(arrival, UTC) - random.uniform(0, mix.age) * period
            newest = mix.age == 0 or random.random() < 0.5
            if arrival >= ends:
                break
            time.sleep(max(0.0, arrival - time.time()))
            future = agent.submit(None if newest else need, window)
            future.add_done_callback(partial(_note, slot.outcomes, arrival - slot.start))
            futures.append(future)
        time.sleep(max(0.0, ends - time.time()))
    slot.end = time.time()
    slot.server_cpu, slot.walsender_cpu = oltp.cpu_seconds() - used, oltp.walsender_seconds() - sent
    began_at = datetime.fromtimestamp(slot.start, UTC)
    slot.shifts = sum(shift.at >= began_at for shift in agent.status.shifts)
    wait(futures, timeout=60)


def _note(outcomes: list[tuple[float, RequestOutcome]], arrival: float, future: Future[RequestOutcome]) -> None:
    outcomes.append((arrival, future.result()))


def run_method(oltp: Oltp, method: CaptureMethod, scale: str) -> list[Slot]:
    variants, rounds, length = variants_of(method), ROUNDS[scale], mix_seconds(method, scale)
    period = LADDERS[method][-1].period
    names = list(variants)
    slots: list[Slot] = []
    database = f"gears_{method}"
    oltp.create(database)
    with Attached(oltp, database, method) as attached:
        longest = LEAD_IN_SECONDS + len(MIXES) * length + 2 * period.total_seconds() + 1
        load = Load(oltp, database, WARM_UP_SECONDS[scale] + rounds * len(names) * longest + 1)
        try:
            time.sleep(WARM_UP_SECONDS[scale])
            for number in range(rounds):
                turn = number % len(names)
                order = [*names[turn:], *names[:turn]]
                for name in reversed(order) if number % 2 else order:
                    slot = Slot(name, number)
                    run_slot(attached, oltp, slot, variants[name], period, length)
                    slots.append(slot)
            load.stop()
            transactions = load.wait()
        finally:
            load.close()
    oltp.drop(database)
    for slot in slots:
        slot.transactions = transactions.between(slot.start, slot.end)
    return slots


def figures(method: CaptureMethod, slots: Sequence[Slot]) -> dict[str, object]:
    settings = GearSettings().for_method(method)
    names = list(dict.fromkeys(slot.variant for slot in slots))
    by_round: list[dict[str, Slot]] = [
        {slot.variant: slot for slot in slots if slot.round == number} for number in sorted({s.round for s in slots})
    ]
    gains: dict[str, list[float]] = {name: [] for name in names}
    for row in by_round:
        best = max(slot.throughput for slot in row.values())
        for name, slot in row.items():
            served = measure([outcome for _, outcome in slot.outcomes])
            gains[name].append(gain(settings, slot.throughput / best, served, datetime.now(UTC)))
    details = {name: _details([slot for slot in slots if slot.variant == name]) for name in names}
    for name in names:
        details[name]["gain"] = median(gains[name])
    aware, high, low = details["aware"], details["high"], details["low"]
    ratios = [row["aware"].throughput / row["low"].throughput for row in by_round]
    found: dict[str, object] = {
        "tau_vs_low": median(ratios),
        "tau_vs_low_rounds": {
            "least": min(ratios),
            "most": max(ratios),
            "pooled": aware["tau_per_s"] / low["tau_per_s"],
        },
        "gain_vs_best_constant": aware["gain"] / max(details[name]["gain"] for name in names if name != "aware"),
        "staleness_vs_high": max(aware["staleness_ms"], 1.0) / max(high["staleness_ms"], 1.0),
        "expired_minus_high": aware["expired"] - high["expired"],
    }
    return {**found, **details}


def _details(slots: Sequence[Slot]) -> dict[str, float]:
    served = measure([outcome for slot in slots for _, outcome in slot.outcomes])
    length = sum(slot.end - slot.start for slot in slots)
    count = sum(len(slot.transactions) for slot in slots if slot.transactions is not None)
    return {
        "tau_per_s": count / length,
        "latency_ms": served.latency.total_seconds() * 1e3,
        "staleness_ms": served.staleness.total_seconds() * 1e3,
        "expired": served.expired,
        "requests": float(served.requests),
        "server_cpu_ms": sum(slot.server_cpu for slot in slots) / count * 1e3,
        "walsender_cpu_ms": sum(slot.walsender_cpu for slot in slots) / count * 1e3,
        "walsender_share": sum(slot.walsender_cpu for slot in slots) / length,
        "shifts_per_s": sum(slot.shifts for slot in slots) / length,
    }


def moments(slots: Sequence[Slot], length: float) -> dict[str, list[Moment]]:
    """One per mix of each slot, a variant's slots put one after the other."""
    found: dict[str, list[Moment]] = {}
    for slot in slots:
        series = found.setdefault(slot.variant, [])
        assert slot.transactions is not None
        for number in range(len(MIXES)):
            begins, ends = number * length, (number + 1) * length
            count = len(slot.transactions.between(slot.start + begins, slot.start + ends))
            outcomes = [outcome for arrival, outcome in slot.outcomes if begins <= arrival < ends]
            served = measure(outcomes)
            asked = (
                served.latency.total_seconds() * 1e3,
                served.staleness.total_seconds() * 1e3,
                served.expired,
            )
            at = slot.round * len(MIXES) * length + begins + length / 2
            series.append(Moment(at, count / length, *(asked if outcomes else (None, None, None))))
    return found


def targets(methods: Sequence[CaptureMethod]) -> Mapping[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    for method in methods:
        found |= {f"{method}.tau_vs_low": (">=", 0.95), f"{method}.gain_vs_best_constant": (">=", 1.0)}
    return {**found, "trigger.staleness_vs_high": ("<=", 1.5), "trigger.expired_minus_high": ("<=", 0.02)}


def main() -> None:
    scale = parse_scale(__doc__ or "")
    results: dict[str, object] = {}
    folder = OUTPUT if scale == "tiny" else IMAGES
    with Oltp(WAREHOUSES[scale]) as oltp:
        for method in METHODS:
            say(f"capture by {method}")
            slots = run_method(oltp, method, scale)
            results[method] = figures(method, slots)
            draw(folder / f"gears_{method}.png", f"capture by {method}", moments(slots, mix_seconds(method, scale)))
    publish("gears", scale, results, targets(METHODS))


if __name__ == "__main__":
    main()
