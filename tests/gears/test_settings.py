"""Gears in a project file: the papers' ladders, weights by the time of day, and clear refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import yaml
from pydantic import ValidationError

from headgate.config.gears import LADDERS, CaptureMethod, Gear, GearSettings
from headgate.errors import ConfigError


def read(text: str) -> GearSettings:
    return GearSettings.model_validate(yaml.safe_load(text))


def hour(of_day: float) -> datetime:
    return datetime(2024, 7, 1, tzinfo=UTC) + timedelta(hours=of_day)


@pytest.mark.parametrize(
    ("method", "periods", "workers"),
    [
        ("trigger", [20, 160, 320], [2, 2, 1]),
        ("timestamp", [20, 640, 1280], [2, 2, 1]),
        ("log", [0, 120], [1, 1]),
    ],
)
def test_each_method_has_the_ladder_of_the_papers(
    method: CaptureMethod, periods: list[int], workers: list[int]
) -> None:
    settings = GearSettings().for_method(method)
    assert [gear.period for gear in settings.gears] == [timedelta(milliseconds=period) for period in periods]
    assert [gear.workers for gear in settings.gears] == workers
    assert settings.lowest == LADDERS[method][-1]
    assert settings.most_workers == max(workers)


def test_a_project_may_have_its_own_gears() -> None:
    settings = read("gears: [{period: 50ms, workers: 3}, {period: 2s}]").for_method("trigger")
    assert settings.gears == (
        Gear(period=timedelta(milliseconds=50), workers=3),
        Gear(period=timedelta(seconds=2), workers=1),
    )
    assert [str(gear) for gear in settings.gears] == ["50ms×3", "2s×1"]


@pytest.mark.parametrize(
    "gears",
    [
        "[{period: 2s}, {period: 50ms}]",
        "[{period: 50ms}, {period: 50ms}]",
        "[{period: 50ms}, {period: 50ms, workers: 2}]",
    ],
)
def test_gears_go_down(gears: str) -> None:
    with pytest.raises(ValidationError, match="follows"):
        read(f"gears: {gears}")


def test_a_log_has_one_worker() -> None:
    with pytest.raises(ConfigError, match="one worker"):
        read("gears: [{period: 0s, workers: 2}]").for_method("log")


def test_one_number_is_the_weight_all_day() -> None:
    assert {read("w: 0.8").w_at(hour(of_day)) for of_day in (0, 7.99, 12, 23.99)} == {0.8}
    assert GearSettings().w_at(hour(3)) == 0.5
    assert read("w: 0.8").with_w(0.1).w_at(hour(3)) == 0.1


def test_the_weight_follows_the_time_of_day() -> None:
    settings = read('w: [{from: "08:00", to: 18:00, w: 0.8}, {from: "22:00", to: "06:00", w: 0.1}]')
    weights = {of_day: settings.w_at(hour(of_day)) for of_day in (7.99, 8, 17.99, 18, 22, 23.9, 0, 5.99, 6)}
    assert weights == {7.99: 0.5, 8: 0.8, 17.99: 0.8, 18: 0.5, 22: 0.1, 23.9: 0.1, 0: 0.1, 5.99: 0.1, 6: 0.5}


def test_the_day_is_that_of_the_time_zone() -> None:
    settings = read('{time_zone: Europe/Zurich, w: [{from: "08:00", to: "18:00", w: 0.8}]}')
    assert settings.w_at(hour(6)) == 0.8
    assert settings.w_at(hour(16)) == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('w: [{from: "8", to: "18:00", w: 0.8}]', "not a time of day"),
        ('w: [{from: 8, to: "18:00", w: 0.8}]', "not a time of day"),
        ('w: [{from: "24:00", to: "18:00", w: 0.8}]', "not a time of day"),
        ('w: [{from: "08:00", to: "18:00", w: 1.8}]', "less than or equal to 1"),
        ("w: -1", "greater than or equal to 0"),
        ("w: true", "tuple"),
        ("time_zone: Mars/Olympus", "not a time zone"),
        ("epsilon: 0", "greater than 0"),
        ("queue: -1", "greater than or equal to 0"),
        ("gears: [{period: 20}]", "no unit"),
        ("gears: [{period: 20ms, workers: 0}]", "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        read(text)
