"""The policy that chooses a gear: a pure function of the settings, what is observed, and now.

The gain weighs the source's throughput τ against how requests are served (staleness S, latency L, expired share Er):

    G = w · α·τ + (1 − w) · β / (S · L · Er)

α·τ is the share of the undisturbed throughput. S and L count in periods of the lowest gear, all three are kept within
[ε, 1], and β = ε³, so both terms lie within [0, 1]. For each gear the controller predicts the throughput from the
load it puts on the source, and the outcome of the waiting requests from when its next task would be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from headgate.capture.gears.requests import NONE, Measures, Request, RequestOutcome, measure
from headgate.capture.source import SourceFreshness
from headgate.config.gears import Gear, GearSettings

_SHORTEST = timedelta(milliseconds=1)
_BUSIEST = 0.9
"""Of the time that workers have for what passes meanwhile; beyond it they would never catch up."""


@dataclass(frozen=True, slots=True)
class CaptureObservation:
    """What the controller knows."""

    gear: Gear
    waiting: Sequence[Request]
    captured: SourceFreshness
    reading: SourceFreshness
    """The newest range that a worker has: what it meets is on its way, whatever the gear."""
    planned: SourceFreshness
    """The newest range of all; it may still wait for a worker."""
    planned_at: datetime
    """When the source was last looked at."""
    tasks: int
    """Tasks that wait for a worker or are being read."""
    task_time: timedelta
    """What a task takes without waiting for a worker, planning, reading and publishing it, however little it covers."""
    load_cost: float
    """The share of throughput that one busy session takes."""
    task_share: float = 0.0
    """What a task takes longer for each second of the source's history that it covers."""
    looking: bool = False
    """The look at the source that began at `planned_at` is not over: what was needed before it will be in its task."""


@dataclass(frozen=True, slots=True)
class GearChoice:
    gear: Gear
    reason: str


def gain(settings: GearSettings, throughput: float, measures: Measures, now: datetime) -> float:
    """The gain of a throughput (a share of the undisturbed one) and of how requests are served."""
    scale, epsilon = max(settings.lowest.period, _SHORTEST), settings.epsilon
    terms = (measures.staleness / scale, measures.latency / scale, measures.expired)
    quality = 1.0
    for term in terms:
        quality *= epsilon / min(1.0, max(epsilon, term))
    w = settings.w_at(now)
    return w * throughput + (1 - w) * quality


def choose(settings: GearSettings, observation: CaptureObservation, now: datetime) -> GearChoice:
    """The gear to be in, and why; the present one unless another promises clearly more."""
    if len(settings.gears) == 1:
        return GearChoice(settings.lowest, "there is only this gear")
    if not observation.waiting:
        return GearChoice(settings.lowest, "no request waits")
    open_requests = [request for request in observation.waiting if not _on_its_way(request, observation)]
    if not open_requests:
        return GearChoice(settings.lowest, "all that requests need is being read")
    promised = {gear: predict(gear, observation, open_requests, now) for gear in settings.gears}
    gains = {
        gear: gain(settings, undisturbed_share(gear, observation), measures, now) for gear, measures in promised.items()
    }
    best = max(reversed(settings.gears), key=gains.__getitem__)
    present = observation.gear
    if present in gains and gains[best] <= gains[present] + settings.hysteresis:
        return GearChoice(present, "no other gear promises clearly more")
    measures = promised[best]
    against = f" against {gains[present]:.2f}" if present in gains else ""
    return GearChoice(
        best,
        f"gain {gains[best]:.2f}{against}: {measures.requests} waiting, to be answered in "
        f"{measures.latency.total_seconds():.3f} s, {measures.expired:.0%} expiring",
    )


def _on_its_way(request: Request, observation: CaptureObservation) -> bool:
    looked_at = observation.looking and request.needed_at <= observation.planned_at
    return looked_at or request.met_by(observation.reading)


def undisturbed_share(gear: Gear, observation: CaptureObservation) -> float:
    """The share of its throughput that the source keeps in a gear."""
    task_time = usual_task_time(gear, observation)
    load = task_time / max(gear.period, task_time / gear.workers, _SHORTEST)
    return max(0.0, 1 - observation.load_cost * load)


def usual_task_time(gear: Gear, observation: CaptureObservation) -> timedelta:
    """What a task takes in a gear: it covers a period, or what passes until a worker is free."""
    covering_a_period = observation.task_time + observation.task_share * gear.period
    if covering_a_period <= gear.period * gear.workers:
        return covering_a_period
    return observation.task_time / (1 - min(observation.task_share / gear.workers, _BUSIEST))


def predict(gear: Gear, observation: CaptureObservation, requests: Sequence[Request], now: datetime) -> Measures:
    """How these requests would be served in a gear.

    What expires is as stale as this gear keeps things on average, which is what the next such requests will find.
    """
    next_plan_at = min(max(now, observation.planned_at + gear.period), now + gear.period)
    covered = max(NONE, next_plan_at - observation.planned_at)
    task_time, present = usual_task_time(gear, observation), usual_task_time(observation.gear, observation)
    planned_done_at = now + ceil(observation.tasks / gear.workers) * present
    free_at = next_plan_at + observation.tasks // gear.workers * present
    next_done_at = free_at + observation.task_time + observation.task_share * covered
    usual = SourceFreshness(observation.captured.position, now - gear.period / 2 - task_time)

    def outcome(request: Request) -> RequestOutcome:
        done_at = planned_done_at if request.met_by(observation.planned) else next_done_at
        return request.served(usual, done_at) if done_at <= request.deadline else request.expired(usual)

    return measure([outcome(request) for request in requests])
