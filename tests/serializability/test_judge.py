"""The judge can say no: each kind of mistake, put into a history that is right, is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.serializability.history import Event, History, read
from tests.serializability.judge import judge

SHIFT = 7.0


def world() -> Event:
    branches = {"0": 200, "1": 200}
    return {
        "event": "world",
        "databases": ["east", "west"],
        "branches": branches,
        "accounts": 2,
        "writers": 1,
        "owner_every": 3,
        "clock_shift": SHIFT,
        "kept": None,
    }


def commit(database: str, number: int, acknowledged_at: float) -> Event:
    return {
        "event": "commit",
        "database": database,
        "writer": 1,
        "number": number,
        "moved": [[0, -5], [1, 5]],
        "sent_at": acknowledged_at - 0.01,
        "acknowledged_at": acknowledged_at,
    }


def iso(at: float) -> str:
    return datetime.fromtimestamp(at + SHIFT, UTC).isoformat()


def answer(east: int, west: int, began: float, job: int, *, bound: float | None = 0.0, stale: float = 0.0) -> Event:
    """An answer that is right, of something that began then and took half a second, and shows so many transfers."""
    rows = [
        row
        for name, last in {"east": east, "west": west}.items()
        for row in [
            *([["history", name, 1, last, last]] if last else []),
            ["branches", name, 0, 200 - 5 * last, 2],
            ["branches", name, 1, 200 + 5 * last, 2],
            ["owner", name, 1, last - last % 3, last - last % 3],
            ["first", name, 1, 0, 0],
            ["differing", name, 0, 0, 0],
        ]
    ]
    arrived = began + 0.1
    sources = [
        {"name": name, "lag": stale, "clock_offset": -SHIFT, "clock_error": 0.001, "position": last, "sampled": True}
        for name, last in {"east": east, "west": west}.items()
    ]
    receipt = {
        "bound": {"max_staleness": bound, "deadline": 5.0, "when_stale": "serve"},
        "arrived_at": iso(arrived),
        "data_timestamp": iso(arrived - stale),
        "staleness": stale,
        "job": job,
        "sources": sources,
        "missed": False,
        "why_missed": None,
        "shared_cut": False,
        "closed_job": True,
        "waited": {"capture": 0.1, "queue": 0.0, "spark": 0.1, "read": 0.1, "total": 0.3},
        "notes": [],
        "warnings": ["the clock of east is ahead", "the clock of west is ahead"],
    }
    parts = ("history", "branches", "owner", "first", "differing")
    return {
        "event": "answer",
        "reader": "reader0",
        "session": "one",
        "query": "all",
        "job": job,
        "shows": [[part, name] for part in parts for name in ("east", "west")],
        "bound": bound,
        "deadline": 5.0,
        "when_stale": "serve",
        "began_at": began,
        "ended_at": began + 0.5,
        "rows": rows,
        "again": None,
        "receipt": receipt,
    }


def right() -> list[Event]:
    """Transfers at each full second, an answer after each of the first four, and one that rests on an older job."""
    commits = [commit(database, number, 100.0 + number) for database in ("east", "west") for number in range(1, 6)]
    answers = [answer(number, number, 100.2 + number, number) for number in range(1, 5)]
    return [world(), *commits, *answers, answer(4, 4, 105.2, 4, bound=2.0, stale=0.9)]


def test_nothing_is_wrong_with_a_right_history() -> None:
    verdict = judge(right())
    assert verdict.problems == ()
    assert verdict.counts["answer"] == 5 and verdict.counts["jobs"] == 4 and verdict.counts["commit"] == 10


def set_row(part: str, name: str, place: int, value: int) -> Callable[[Event], None]:
    def change(last: Event) -> None:
        next(row for row in last["rows"] if row[:2] == [part, name])[place] = value

    return change


def drop_rows(part: str) -> Callable[[Event], None]:
    def change(last: Event) -> None:
        last["rows"] = [row for row in last["rows"] if row[:2] != [part, "east"]]

    return change


def say(**changes: Any) -> Callable[[Event], None]:
    return lambda last: last["receipt"].update(changes)


def say_of_source(**changes: Any) -> Callable[[Event], None]:
    return lambda last: last["receipt"]["sources"][0].update(changes)


MISTAKES: dict[str, tuple[Callable[[Event], Any], str]] = {
    "half of a transfer is in": (set_row("branches", "east", 3, 185), "torn: the branches of east add up to"),
    "another state of the same total": (
        lambda last: (set_row("branches", "east", 3, 175)(last), last["rows"].append(["branches", "east", 1, 225, 2])),
        "torn: branches 0 of east",
    ),
    "a branch is missing": (drop_rows("branches"), "torn: branches of east has the rows"),
    "a dimension is missing": (drop_rows("owner"), "torn: owner of east has the rows"),
    "a transfer is doubled": (set_row("history", "east", 4, 5), "torn: history 1 of east"),
    "a version was lost": (set_row("owner", "west", 4, 0), "torn: owner 1 of west"),
    "history begins later than before": (set_row("first", "west", 3, 3), "torn: first 1 of west"),
    "one table, two states": (set_row("differing", "east", 3, 2), "the same table twice"),
    "a snapshot that moves": (lambda last: last.update(again=[]), "read twice gave other rows"),
    "a transfer from nowhere": (set_row("history", "east", 3, 9), "which nobody committed"),
    "a bound of 0 that is not kept": (lambda last: last.update(bound=0.0), "a bound of 0"),
    "the data are older than it says": (say(data_timestamp=iso(105.3), staleness=0.0), "its data_timestamp promises"),
    "a source lags more than it says": (say_of_source(lag=0.1), "a lag of 0.1 s promises"),
    "a source that is not named": (lambda last: last["receipt"]["sources"].pop(), "not among the receipt's sources"),
    "an arrival before it was asked": (say(arrived_at=iso(104.0)), "arrived at"),
    "another bound": (lambda last: last["receipt"]["bound"].update(max_staleness=9.0), "the receipt's bound is"),
    "another job": (say(job=3), "the receipt is of job 3"),
    "a staleness that does not add up": (say(staleness=0.4), "but it lies"),
    "a miss that is not told": (
        lambda last: (last.update(bound=0.2), last["receipt"]["bound"].update(max_staleness=0.2)),
        "does not say so",
    ),
    "a miss that nobody allowed": (
        lambda last: (
            say(missed=True, why_missed="late")(last),
            last.update(when_stale="fail"),
            last["receipt"]["bound"].update(when_stale="fail"),
        ),
        "without being asked to serve",
    ),
    "a deadline that is not kept": (
        lambda last: last["receipt"]["waited"].update(spark=9.0),
        "waited 9.100 s with a deadline",
    ),
    "a clock that is wrong": (say_of_source(clock_offset=0.0), "the clock of east is -7.0 s off, the receipt says 0.0"),
    "a clock that is not told": (say_of_source(clock_offset=None), "says neither the clock of east"),
    "no warning of the clock": (say(warnings=[]), "does not warn"),
    "one job, two positions": (say_of_source(position=3), "job 4 had 4"),
    "nothing, from before the first job": (lambda last: last.update(rows=[]), "torn: branches of east has the rows []"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    change, expected = MISTAKES[mistake]
    events = copy.deepcopy(right())
    change(events[-1])
    assert any(expected in problem for problem in judge(events).problems), judge(events).problems


def older() -> Event:
    return answer(2, 2, 106.2, 2, bound=None, stale=3.5)


def test_a_session_that_goes_back_is_found() -> None:
    problems = judge([*right(), older()]).problems
    assert any("goes back to job 2" in problem for problem in problems)
    assert any("goes back to transfer 2" in problem for problem in problems)


def test_other_sessions_and_answers_at_the_same_time_may_be_older() -> None:
    other = {**older(), "session": "two"}
    early = {**older(), "began_at": 101.3}
    early["receipt"] = {**older()["receipt"], "arrived_at": iso(106.3)}
    assert judge([*right(), other]).problems == ()
    assert judge([*right(), {**early, "ended_at": 106.7}]).problems == ()


def test_who_asks_for_what_there_is_may_go_back_when_it_is_told() -> None:
    told = older()
    told["receipt"].update(missed=True, why_missed="late; the session has seen job 4 already, this is job 2")
    assert judge([*right(), told]).problems == ()
    told["receipt"].update(why_missed="late")
    assert judge([*right(), told]).problems != ()


def test_a_later_job_that_holds_less_is_found() -> None:
    assert any("less than of earlier" in problem for problem in judge([*right(), {**older(), "job": 9}]).problems)


def test_refusals_are_judged() -> None:
    refusal = {key: value for key, value in older().items() if key not in ("receipt", "rows", "again", "job")}
    refusal |= {"event": "refusal", "when_stale": "fail", "deadline": 0.4, "what": "no answer could be made"}
    assert judge([*right(), refusal]).problems == ()
    assert judge([*right(), {**refusal, "deadline": 2.0}]).problems != ()
    assert judge([*right(), {**refusal, "when_stale": "wait"}]).problems != ()
    assert judge([*right(), {**refusal, "when_stale": "serve"}]).problems != ()
    nothing = {"when_stale": "serve", "what": "there is no snapshot that all of a, b hold"}
    assert judge([*right(), {**refusal, **nothing}]).problems == ()


def test_a_line_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    history = History(tmp_path / "one.jsonl")
    history.add("world", kept=None)
    history.close()
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('{"event": "ans')
    assert read([tmp_path / "one.jsonl"]) == [{"event": "world", "kept": None}]
