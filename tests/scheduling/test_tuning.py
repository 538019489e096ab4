"""Settings that change while the warehouse is open: checked, effective, recorded, and the file's again when it says so."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.capture import room
from headgate.clock import ManualClock
from headgate.config.gears import GearSettings
from headgate.config.live import LiveProject
from headgate.config.project import load_project
from headgate.config.settings import Project
from headgate.config.sources import PostgresSourceSettings
from headgate.errors import ConfigError, DefiniteError
from headgate.runtime.tables import journal
from headgate.runtime.tables.journal import Journal
from headgate.scheduling.tuning import Change, Tuning
from headgate.warehouse.ledger import Ledger
from tests.waiting import PATIENCE, eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TABLES = {"sales": {"columns": {"id": "bigint"}, "key": ["id"]}}


def project(folder: Path, **settings: object) -> Project:
    database = {"type": "postgres", "dsn": "host=127.0.0.1", "capture": "trigger", "tables": {"orders": {}}}
    sources = {
        "till": {"type": "memory", "tables": TABLES},
        "shop": {**database, **cast(Any, settings.pop("shop", {}))},
    }
    return load_project({"name": "shop", "storage": str(folder), "sources": sources, **settings})


class Parts:
    """The parts of a warehouse that settings are read from, without Spark."""

    def __init__(self, wanted: Project) -> None:
        self.clock = ManualClock(NOON)
        self.ledger = Ledger.open(wanted.storage, "me", self.clock.now)
        self.settings = LiveProject(wanted)
        upkeep = cast(Any, SimpleNamespace(release=lambda: None))
        self.tuning = Tuning(self.settings, Journal(self.ledger), {}, upkeep)

    def pace(self) -> GearSettings:
        shop = self.settings.current.sources["shop"]
        assert isinstance(shop, PostgresSourceSettings)
        return shop.pace

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()


def test_every_setting_is_shown_as_the_file_would_have_it(tmp_path: Path) -> None:
    with Parts(project(tmp_path, freshness={"max_staleness": "10m"})) as parts:
        current = parts.tuning.current()
        assert current["freshness.max_staleness"] == "10m" and current["freshness.deadline"] is None
        assert current["limits.overlay_bytes"] == 256 << 20 and current["background.system_jobs"] is True
        assert current["sources.shop.pace.w"] == 0.5
        assert current["sources.shop.pace.gears"][0] == {"period": "20ms", "workers": 2}
        assert not any(name.startswith("sources.till") for name in current)
        # What is shown is what may be given.
        for name, value in current.items():
            parts.tuning.change(name, value)
        assert parts.tuning.current() == current


def test_a_change_is_effective_at_once_and_recorded(tmp_path: Path) -> None:
    with Parts(project(tmp_path)) as parts:
        change = parts.tuning.change("sources.shop.pace.w", 0.9, who="ann")
        assert change == Change(NOON, "ann", "sources.shop.pace.w", 0.5, 0.9, "change", True)
        assert parts.pace().w_at(NOON) == 0.9
        periods = [{"from": "08:00", "to": "18:00", "w": 0.8}]
        parts.tuning.change("sources.shop.pace.w", periods)
        assert parts.tuning.current()["sources.shop.pace.w"] == periods
        assert parts.pace().w_at(NOON) == 0.8 and parts.pace().w_at(NOON + timedelta(hours=8)) == 0.5
        parts.tuning.change("sources.shop.pace.gears", [{"period": "50ms"}, {"period": "2s"}])
        assert [str(gear) for gear in parts.pace().gears] == ["50ms×1", "2s×1"]
        parts.tuning.change("limits.overlay_bytes", "64MiB")
        assert parts.settings.current.limits.overlay_bytes == 64 << 20
        assert [found.holds for found in parts.tuning.changes()] == [False, True, True, True]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sources.shop.pace.w", "0.25", 0.25),
        ("sources.shop.pace.gears", "[{period: 10ms, workers: 3}]", [{"period": "10ms", "workers": 3}]),
        ("freshness.max_staleness", "any", "any"),
        ("freshness.deadline", "1m30s", "1m30s"),
        ("freshness.deadline", "null", None),
        ("background.system_jobs", "false", False),
        ("retention.jobs", "7", 7),
        ("limits.stream_bytes", "1GiB", 1 << 30),
    ],
)
def test_a_text_is_read_as_in_the_file(tmp_path: Path, name: str, text: str, value: object) -> None:
    with Parts(project(tmp_path)) as parts:
        parts.tuning.change(name, text)
        assert parts.tuning.current()[name] == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sources.shop.pace.w", 1.5, r"sources\.shop\.pace\.w.* is too large: 1\.5 .*from 0"),
        ("sources.shop.pace.w", "much", r"sources\.shop\.pace\.w.*a number from 0"),
        ("sources.shop.pace.gears", [{"period": "2s"}, {"period": "1s"}], r"pace\.gears.*follows.*shortest period"),
        ("retention.jobs", 0, r"retention\.jobs is too small: 0 \(the least is 1\)"),
        ("retention.lease", 10, r"retention\.lease: .*has no unit.*10m"),
        ("freshness.when_stale", "hope", r"freshness\.when_stale cannot be 'hope' .*'fail'"),
        ("limits.overlay_bytes", "lots", r"limits\.overlay_bytes: 'lots' is not a size.*64MiB"),
        ("background.idle_after", "[", r"background\.idle_after: '\[' cannot be read"),
        ("background.idle_after", "${HOME}", r"background\.idle_after: .*HOME.* is not a duration"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(tmp_path: Path, name: str, value: object, said: str) -> None:
    with Parts(project(tmp_path)) as parts:
        before = parts.tuning.current()
        with pytest.raises(ConfigError, match=said):
            parts.tuning.change(name, value)
        assert parts.tuning.current() == before and not parts.tuning.changes()


def test_a_log_keeps_its_one_worker(tmp_path: Path) -> None:
    with (
        Parts(project(tmp_path, shop={"capture": "log"})) as parts,
        pytest.raises(ConfigError, match=r"sources\.shop\.pace\.gears: a log is read in order"),
    ):
        parts.tuning.change("sources.shop.pace.gears", [{"period": "0s", "workers": 2}])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("freshness.max_stalenes", "did you mean freshness.max_staleness"),
        ("storage", "these can be changed: .*retention.jobs"),
        ("sources.till.pace.w", "did you mean sources.shop.pace.w"),
    ],
)
def test_an_unknown_setting_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with Parts(project(tmp_path)) as parts:
        for attempt in (lambda: parts.tuning.change(name, 1), lambda: parts.tuning.reset(name)):
            with pytest.raises(DefiniteError, match=said):
                attempt()


def test_a_reset_goes_back_to_the_file(tmp_path: Path) -> None:
    with Parts(project(tmp_path, retention={"jobs": 5})) as parts:
        assert parts.tuning.reset("retention.jobs") is None
        parts.tuning.change("retention.jobs", 9)
        parts.tuning.change("retention.lease", "1m")
        change = parts.tuning.reset("retention.jobs", who="bob")
        assert change == Change(NOON, "bob", "retention.jobs", 9, 5, "reset", False)
        assert parts.settings.current.retention.jobs == 5
        assert parts.settings.current.retention.lease == timedelta(minutes=1)
    with Parts(project(tmp_path, retention={"jobs": 5})) as parts:
        assert parts.settings.current.retention.jobs == 5
        assert parts.settings.current.retention.lease == timedelta(minutes=1)


def test_changes_hold_after_a_restart_until_the_file_changes_the_same_setting(tmp_path: Path) -> None:
    with Parts(project(tmp_path)) as parts:
        parts.tuning.change("sources.shop.pace.w", 0.9, who="ann")
        parts.tuning.change("retention.jobs", 3, who="ann")
    with Parts(project(tmp_path, freshness={"deadline": "1s"})) as parts:
        assert parts.pace().w_at(NOON) == 0.9 and parts.settings.current.retention.jobs == 3
        assert all(change.holds for change in parts.tuning.changes())
    with Parts(project(tmp_path, retention={"jobs": 8})) as parts:
        assert parts.pace().w_at(NOON) == 0.9 and parts.settings.current.retention.jobs == 8
        *_, last = parts.tuning.changes()
        assert (last.name, last.before, last.after, last.kind) == ("retention.jobs", 3, 8, "superseded")
        assert last.who == "the project file"
        assert [change.holds for change in parts.tuning.changes()] == [True, False, False]
    # Superseded once is superseded: the file may go back without waking it.
    with Parts(project(tmp_path)) as parts:
        assert parts.settings.current.retention.jobs == 20 and len(parts.tuning.changes()) == 3


def test_a_source_that_is_gone_takes_its_changes_with_it(tmp_path: Path) -> None:
    with Parts(project(tmp_path)) as parts:
        parts.tuning.change("sources.shop.pace.w", 0.9)
    only_till = load_project(
        {"name": "shop", "storage": str(tmp_path), "sources": {"till": {"type": "memory", "tables": TABLES}}}
    )
    with Parts(only_till) as parts:
        assert [change.kind for change in parts.tuning.changes()] == ["change", "superseded"]


def test_the_ledger_forgets_old_changes_but_never_one_that_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "REMEMBERED_SETTINGS", 10)
    with Parts(project(tmp_path)) as parts:
        parts.tuning.change("retention.jobs", 3)
        for number in range(120):
            parts.tuning.change("sources.shop.pace.w", number / 1000)
        kept = parts.tuning.changes()
        assert kept[0].name == "retention.jobs" and len(kept) < 60
    with Parts(project(tmp_path)) as parts:
        assert parts.settings.current.retention.jobs == 3 and parts.pace().w_at(NOON) == 0.119
        assert [replace(change, at=NOON) for change in parts.tuning.changes()] == kept


def test_an_append_that_waits_goes_on_when_the_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LONGEST_WAIT", 60.0)
    heard: list[int | None] = []
    log = room.Room(200, None)
    log.on_full = lambda: heard.append(log.limit)
    log.change(100)
    assert heard == [100]
    waiting = threading.Thread(target=log.wait)
    waiting.start()
    eventually(lambda: len(heard) == 2)
    log.change(1000)
    waiting.join(PATIENCE)
    assert not waiting.is_alive() and len(heard) == 2
