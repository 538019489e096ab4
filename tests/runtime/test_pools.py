"""The ladder of pools, and who gets which rung."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.spark.pools import (
    MAINTENANCE_WEIGHT,
    POLICIES,
    QUERIES,
    WEIGHTS,
    StageObservation,
    plain,
    pool,
    write_allocations,
    zone_aware,
)


def weight(name: str) -> int:
    return next(weight for weight in WEIGHTS if pool(weight) == name)


def test_the_allocation_file_has_a_fair_pool_per_weight_and_one_for_queries(tmp_path: Path) -> None:
    pools = ElementTree.parse(write_allocations(tmp_path)).getroot().findall("pool")
    assert {each.findtext("schedulingMode") for each in pools} == {"FAIR"}
    found = {each.get("name"): (each.findtext("weight"), each.findtext("minShare")) for each in pools}
    assert found.pop(QUERIES) == (str(WEIGHTS[-1]), "1")
    assert found.pop("default") == (str(MAINTENANCE_WEIGHT), "0")
    assert found == {pool(weight): (str(weight), "0") for weight in WEIGHTS}


SLOW_LOOKUP = [
    StageObservation("lookup", None, 500, 500),
    StageObservation("update_r", "z1", 8000, 0),
    StageObservation("r_join_delta_s", "z1", 0, 0),
    StageObservation("delta_r_join_s", "z2", 8000, 0),
    StageObservation("update_s", "z2", 0, 0),
]
"""The lookup feeds one stage of each zone; the other one's input piles up while it waits for its zone."""


def test_plain_gives_most_to_what_is_blocked() -> None:
    pools = plain(SLOW_LOOKUP)
    assert pools["update_r"] == pools["delta_r_join_s"] == pool(32)
    assert pools["lookup"] == pool(2)


def test_zone_aware_gives_most_to_what_all_wait_for() -> None:
    pools = zone_aware(SLOW_LOOKUP)
    assert pools.pop("lookup") == pool(32)
    assert set(pools.values()) == {pool(1)}


def test_a_zone_that_can_run_is_one_unit() -> None:
    pools = zone_aware(
        [
            StageObservation("a", "z", 900, 300),
            StageObservation("b", "z", 900, 500),
            StageObservation("c", None, 400, 400),
        ]
    )
    assert pools == {"a": pool(32), "b": pool(32), "c": pool(16)}


def test_a_stage_is_not_taken_for_a_zone_of_its_name() -> None:
    pools = zone_aware([StageObservation("a", None, 1, 1), StageObservation("b", "a", 100, 100)])
    assert pools == {"a": pool(1), "b": pool(32)}


def test_what_a_row_costs_counts() -> None:
    stages = [StageObservation("cheap", None, 100, 100, 0.001), StageObservation("dear", None, 100, 100, 0.004)]
    for policy in POLICIES.values():
        assert policy(stages) == {"cheap": pool(8), "dear": pool(32)}


def test_without_work_all_have_the_lowest_rung() -> None:
    for policy in POLICIES.values():
        assert policy([]) == {}
        assert policy([StageObservation("a", None, 0, 0)]) == {"a": pool(1)}


rows = st.integers(0, 10**9)


@given(st.lists(st.tuples(st.sampled_from([None, "x", "y"]), rows, rows), max_size=6))
def test_more_that_can_run_never_gets_less(found: list[tuple[str | None, int, int]]) -> None:
    stages = [
        StageObservation(str(place), zone, max(first, second), min(first, second))
        for place, (zone, first, second) in enumerate(found)
    ]
    unzoned = [StageObservation(stage.name, None, stage.runnable_rows, stage.runnable_rows) for stage in stages]
    assert zone_aware(unzoned) == plain(unzoned)
    for policy in POLICIES.values():
        assert policy(stages).keys() == {stage.name for stage in stages}
    ranked = sorted(unzoned, key=lambda stage: stage.backlog_rows)
    weights = [weight(plain(unzoned)[stage.name]) for stage in ranked]
    assert weights == sorted(weights)
    together = zone_aware(stages)
    assert all(
        together[a.name] == together[b.name] for a in stages for b in stages if a.zone is not None and a.zone == b.zone
    )
