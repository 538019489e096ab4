"""Spark's pools, and the weights of the stages that share them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.execution.weights import StageInput, zone_aware
from headgate.runtime.spark.pools import EXTRACT, MAINTENANCE_WEIGHT, QUERIES, WEIGHTS, pool, write_allocations


def test_the_allocation_file_has_a_fair_pool_per_weight_and_one_for_queries(tmp_path: Path) -> None:
    pools = ElementTree.parse(write_allocations(tmp_path)).getroot().findall("pool")
    assert {each.findtext("schedulingMode") for each in pools} == {"FAIR"}
    found = {each.get("name"): (each.findtext("weight"), each.findtext("minShare")) for each in pools}
    assert found.pop(QUERIES) == (str(WEIGHTS[-1]), "1")
    assert found.pop(EXTRACT) == (str(MAINTENANCE_WEIGHT), "0")
    assert found.pop("default") == (str(MAINTENANCE_WEIGHT), "0")
    assert found == {pool(weight): (str(weight), "0") for weight in WEIGHTS}


def test_what_all_wait_for_gets_most() -> None:
    lookup, blocked = StageInput("lookup", None, 500), StageInput("update_r", "z1", 0)
    assert zone_aware([lookup, blocked]) == {"lookup": 32, "update_r": 1}


def test_a_zone_is_one_unit() -> None:
    weights = zone_aware([StageInput("a", "z", 300), StageInput("b", "z", 500), StageInput("c", None, 400)])
    assert weights == {"a": 32, "b": 32, "c": 16}


def test_a_stage_is_not_taken_for_a_zone_of_its_name() -> None:
    assert zone_aware([StageInput("a", None, 1), StageInput("b", "a", 100)]) == {"a": 1, "b": 32}


def test_without_work_all_have_the_lowest_weight() -> None:
    assert zone_aware([]) == {}
    assert zone_aware([StageInput("a", None, 0)]) == {"a": 1}


@given(st.lists(st.tuples(st.sampled_from([None, "x", "y"]), st.integers(0, 10**9)), max_size=6))
def test_more_input_never_gets_less(found: list[tuple[str | None, int]]) -> None:
    stages = [StageInput(str(place), zone, rows) for place, (zone, rows) in enumerate(found)]
    weights = zone_aware(stages)
    assert weights.keys() == {stage.name for stage in stages}
    assert all(weights[a.name] == weights[b.name] for a in stages for b in stages if a.unit == b.unit)
    alone = sorted((StageInput(stage.name, None, stage.rows) for stage in stages), key=lambda stage: stage.rows)
    ranked = [zone_aware(alone)[stage.name] for stage in alone]
    assert ranked == sorted(ranked)
