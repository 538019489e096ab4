"""The scaler: sizes, hours and overrides; and the simulator, which runs the same policies over costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling_calibration import RECORDED, compare
from benchmarks.scaling_paper import RAMP_SECONDS, TWELVE_NODES, rising_and_falling
from benchmarks.scaling_simulation import BufferSpeeds, Costs, SimulatedExecutors, Simulation, fill_buffers
from headgate.config.scaling import ScalingSettings
from headgate.errors import DefiniteError
from headgate.scaling.executors import within_supply
from headgate.scaling.policies.buffer import BufferFill
from headgate.scaling.policies.extract import SourceReading
from headgate.scaling.policies.switch import RecentJobs
from headgate.scaling.scaler import Observation, Scaler
from headgate.scaling.supply import ExecutorSupply

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
SETTINGS = ScalingSettings.model_validate({"executors": {"min": 1, "max": 8, "ready": 0}})
LATE = Observation(readings=[SourceReading("shop", timedelta(seconds=3))])
IDLE = Observation()
COSTS = Costs(extract=(0.05, 2e-5), transform=(0.1, 4e-5), load=(0.05, 1e-5), row_bytes=130)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_part_that_is_late_grows_and_executors_follow() -> None:
    scaler = Scaler(SETTINGS, slots=1)
    changes = scaler.step(LATE, after(0))
    assert [(change.part, change.before, change.after) for change in changes] == [
        ("extract", 1, 2),
        ("executors", 1, 5),
    ]
    assert "reading shop took 3 s" in changes[0].reason
    assert "5 tasks may run" in changes[1].reason
    assert list(scaler.changes) == changes


def test_a_size_that_a_user_sets_holds_until_it_is_given_back() -> None:
    scaler = Scaler(SETTINGS, slots=1)
    scaler.fix("extract", 4)
    assert scaler.step(LATE, after(0))[0].reason == "a user set it"
    assert scaler.step(LATE, after(60)) == []
    assert scaler.parts()["extract"].fixed
    scaler.fix("extract", None)
    assert scaler.step(LATE, after(120))[0].after == 8


@pytest.mark.parametrize(("part", "size"), [("extract", 9), ("executors", 9)])
def test_a_size_beyond_its_bounds_is_refused(part: str, size: int) -> None:
    with pytest.raises(DefiniteError, match="cannot have the size") as raised:
        Scaler(SETTINGS, slots=1).fix(part, size)  # type: ignore[arg-type]
    assert "give a size from 1 to" in str(raised.value.hint)


@pytest.mark.parametrize("part", ["buffer", "switch"])
def test_what_a_warehouse_has_one_of_cannot_be_sized(part: str) -> None:
    with pytest.raises(DefiniteError, match=f"a warehouse has one {part}") as raised:
        Scaler(SETTINGS, slots=1).fix(part, 1)  # type: ignore[arg-type]
    assert "set one of extract, transform, load, query, executors" in str(raised.value.hint)


def test_sizes_divide_the_slots_where_no_executor_can_be_added() -> None:
    scaler = Scaler(within_supply(SETTINGS, 1), slots=2)
    assert {part: each.most for part, each in scaler.parts().items()} == {
        "extract": 2, "transform": 2, "buffer": 1, "switch": 1, "load": 2, "query": 2, "executors": 1
    }  # fmt: skip
    assert [change.part for change in scaler.step(LATE, after(0))] == ["extract"]


def test_the_rate_of_a_cut_is_that_of_the_time_it_covers_and_falls_when_none_follows() -> None:
    cut = RecentJobs(6_000, after(0), after(10))
    assert cut.rate(after(10)) == cut.rate(after(20)) == 600
    assert cut.rate(after(70)) == 100
    assert RecentJobs(50, after(0), after(0.01)).rate(after(0.01)) == 50


def test_growth_stops_when_the_hours_of_a_day_are_used_up_and_goes_on_the_next_day() -> None:
    scaler = Scaler(SETTINGS.model_copy(update={"most_executor_hours": 0.5}), slots=1)
    scaler.step(replace(IDLE, executors=2), after(0))
    changes = scaler.step(replace(LATE, executors=2), after(1800))
    assert scaler.executor_hours == 1.0
    assert [change.part for change in changes] == ["extract"]
    assert "0.5 executor hours are used up" in scaler.parts()["executors"].reason
    assert scaler.parts()["executors"].is_limiting
    tomorrow = scaler.step(replace(LATE, executors=2), NOON + timedelta(hours=12, seconds=1))
    assert scaler.executor_hours < 0.001
    assert "executors" in [change.part for change in tomorrow]


def test_a_part_that_more_tasks_do_not_help_stops_growing() -> None:
    """What a fold takes however few rows it has is not shared by those who fold."""
    scaler = Scaler(SETTINGS, slots=1)
    slow = Observation(folds=[timedelta(seconds=3)] * 10)
    sizes = []
    for second in range(0, 600, 10):
        scaler.step(slow, after(second))
        sizes.append(scaler.sizes["load"])
    assert max(sizes) == 2
    assert scaler.parts()["load"].is_limiting and "as long as with fewer" in scaler.parts()["load"].reason
    # Now there is more to do, and more do help.
    scaler.step(Observation(folds=[timedelta(seconds=6)] * 10), after(610))
    assert scaler.sizes["load"] == 4


def test_times_with_another_size_do_not_count() -> None:
    scaler = Scaler(SETTINGS, slots=1)
    slow = Observation(queries=[timedelta(seconds=100)] * 5)
    assert scaler.step(slow, after(0))[0].part == "query"
    # Were the five still counted, the average would be over the limit.
    assert scaler.step(Observation(queries=[timedelta(seconds=50)]), after(10)) == []


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(1_000, 80_000), st.floats(10, 60)), min_size=1, max_size=4))
def test_simulated_sizes_stay_within_bounds_and_all_rows_are_transformed(loads: list[tuple[float, float]]) -> None:
    simulation = Simulation(SETTINGS, COSTS, queue_bytes=100 << 20)
    ends = [sum(lasting for _, lasting in loads[: place + 1]) for place in range(len(loads))]

    def rate(at: float) -> float:
        return next((rows for (rows, _), end in zip(loads, ends, strict=True) if at <= end), 0.0)

    moments = list(simulation.run(rate, ends[-1] + 1_500))
    for moment in moments:
        assert 1 <= moment.executors <= 8
        assert all(1 <= size <= 8 for size in moment.sizes.values())
    assert moments[-1].queue_rows == 0
    assert all(size == 1 for part, size in moments[-1].sizes.items() if part != "executors")


def test_a_large_part_grows_on_when_a_little_more_of_it_helps_a_little() -> None:
    scaler = Scaler(ScalingSettings.model_validate({"executors": {"min": 1, "max": 64}}), slots=1)
    scaler.fix("load", 24)
    scaler.step(IDLE, after(0))
    scaler.fix("load", None)
    sizes = []
    for second in range(10, 200, 10):
        # 26 of it are enough, as long as others leave them all slots.
        scaler.step(Observation(folds=[timedelta(seconds=26 / min(scaler.sizes["load"], 25.5))] * 10), after(second))
        sizes.append(scaler.sizes["load"])
    # It stops where it must have become clearly shorter, and has not.
    assert sizes[0] == 26 and sizes[-1] == max(sizes) == 30
    assert scaler.parts()["load"].is_limiting


@pytest.mark.parametrize(
    ("costs", "queue", "within", "executors"), [(TWELVE_NODES, 0.5, 0.99, 16), (COSTS, 0.1, 0.98, 110)]
)
def test_the_paper_s_rates_are_kept_within_three_seconds(
    costs: Costs, queue: float, within: float, executors: int
) -> None:
    """10,000 to 500,000 rows a second and back."""
    course = rising_and_falling(costs, queue)
    moments, figures = course.moments, course.figures()
    assert figures["within_3s"] > within
    assert figures["most_executors"] <= executors
    assert moments[-1].executors <= moments[60].executors
    # It shrinks more slowly than it grew.
    half = (figures["most_executors"] + moments[-1].executors) / 2
    grown = next(moment for moment in moments if moment.executors >= half)
    shrunk = next(moment for moment in moments if moment.at > RAMP_SECONDS and moment.executors < half)
    assert shrunk.rate < grown.rate


def test_the_simulator_follows_a_real_run() -> None:
    """Sizes and times within a quarter of what a cluster did; the share of rows in time of the run that is foretold is further off."""
    deviation: Any = compare(RECORDED)["deviation"]
    times = {name: each["worst_wait_s"] for name, each in deviation.items()}
    sizes = {key: deviation["auto"][key] for key in ("executor_seconds_vs_max", "settle_s", "most_executors")}
    assert all(abs(each) <= 0.25 for each in (*times.values(), *sizes.values())), deviation


def test_a_buffer_without_a_consumer_spills_at_half_its_memory_and_grows_when_memory_fills() -> None:
    slow_disk = BufferSpeeds(10_000, 10**9, 30)
    seen = list(fill_buffers(SETTINGS, slow_disk, 50, 800, most=4))
    first = next(at for at, fills in seen if fills[0].disk > 0)
    assert first == pytest.approx(100, abs=2)
    grown = next(at for at, fills in seen if len(fills) == 2)
    assert any(fills[0].memory > 0.99 for at, fills in seen if at <= grown)
    assert max(len(fills) for _, fills in seen) == 2


def test_a_part_tells_its_load_as_a_share_of_its_limit() -> None:
    scaler = Scaler(ScalingSettings(), slots=1)
    assert {part.load for part in scaler.parts().values()} == {None}
    scaler.fix("load", 3)
    observation = Observation(
        readings=[SourceReading("a", timedelta(seconds=0.25)), SourceReading("b", timedelta(seconds=0.5))],
        queues={"a": 0.25, "b": 0.1},
        buffers=[BufferFill(0.1, 0.4)],
        rate=250_000,
        folds=[timedelta(seconds=1), timedelta(seconds=3)],
        queries=[timedelta(seconds=30)],
    )
    scaler.step(observation, NOON)
    loads = {part: each.load for part, each in scaler.parts().items()}
    # Six tasks may run on the one executor that there is.
    assert loads == {
        "extract": 0.5,
        "transform": 0.5,
        "buffer": 0.5,
        "switch": 0.5,
        "load": 2,
        "query": 0.5,
        "executors": 6,
    }


def test_simulated_executors_come_after_a_while_and_go_at_once() -> None:
    supply: ExecutorSupply = SimulatedExecutors(slots=2, start_seconds=5.0, count=1)
    assert isinstance(supply, SimulatedExecutors)
    supply.want(4)
    assert supply.running == 1
    supply.at = 4.0
    supply.want(3)
    assert supply.running == 1
    supply.at = 5.0
    assert supply.running == 3
    supply.want(2)
    assert supply.running == 2
