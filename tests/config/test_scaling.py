"""What a project says about scaling."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headgate.config.project import load_project
from headgate.config.scaling import ScalingSettings
from headgate.errors import ConfigError, MultipleProblems


def loaded(tmp_path: Path, scaling: object) -> ScalingSettings | None:
    return load_project({"name": "shop", "storage": str(tmp_path), "scaling": scaling}).scaling


def test_the_defaults_are_those_of_the_paper(tmp_path: Path) -> None:
    found = loaded(tmp_path, {})
    assert found is not None
    assert (found.executors.min, found.executors.max, found.executors.ready) == (1, 8, 1)
    assert (found.extract.period, found.extract.allowed) == (timedelta(seconds=2), timedelta(seconds=1))
    assert (found.transform.queue, found.buffer.memory, found.buffer.disk) == (0.5, 0.5, 0.8)
    assert (found.load.limit, found.query.limit) == (timedelta(seconds=1), timedelta(seconds=60))
    assert (found.hold, found.most_executor_hours) == (timedelta(seconds=30), 24)


def test_a_project_without_the_section_does_not_scale(tmp_path: Path) -> None:
    assert load_project({"name": "shop", "storage": str(tmp_path)}).scaling is None


def test_shares_are_percentages_or_numbers(tmp_path: Path) -> None:
    found = loaded(tmp_path, {"transform": {"queue": "62.5%"}, "buffer": {"memory": 0.25, "disk": 1}})
    assert found is not None
    assert (found.transform.queue, found.buffer.memory, found.buffer.disk) == (0.625, 0.25, 1.0)


def test_a_limit_may_be_left_to_the_period(tmp_path: Path) -> None:
    found = loaded(tmp_path, {"extract": {"period": "5s", "limit": None}})
    assert found is not None and found.extract.allowed == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("scaling", "what"),
    [
        ({"executors": {"min": 3, "max": 2}}, "min is 3 and max is 2"),
        ({"executors": {"min": 0}}, "too small"),
        ({"executors": {"ready": -1}}, "too small"),
        ({"executors": {"most": 3}}, "unknown key"),
        ({"transform": {"queue": "150%"}}, "'150%' is not between 0% and 100%"),
        ({"transform": {"queue": 0}}, "0 is not between 0% and 100%"),
        ({"transform": {"queue": "half"}}, "'half' is not a share"),
        ({"transform": {"queue": True}}, "True is not a share"),
        ({"extract": {"margin": "50%"}}, "leaves nothing of the limit"),
        ({"extract": {"period": "1s", "limit": "2s"}}, "longer than the period"),
        ({"extract": {"period": "0s", "limit": None}}, "extract needs a limit or a period"),
        ({"extract": {"distribution": "hash"}}, "distribution cannot be 'hash'"),
        ({"query": {"limit": "0s"}}, "the limit is zero"),
        ({"query": {"limit": 60}}, "no unit"),
        ({"hold": "0s"}, "hold is zero"),
        ({"switch": {"rate": 0}}, "too small"),
        ({"most_executor_hours": 0}, "most_executor_hours"),
        ([], "must be a mapping"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, scaling: object, what: str) -> None:
    with pytest.raises((ConfigError, MultipleProblems)) as caught:
        loaded(tmp_path, scaling)
    assert what in str(caught.value)
