"""The scheduler's decisions, each compared with what trying everything gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delta.changes import BEGINNING, JobId
from headgate.scheduling.policy import (
    CloseJob,
    JoinJob,
    MaterializationSettings,
    Need,
    Offer,
    Overlays,
    PlannedCut,
    ReuseJob,
    SystemJob,
    SystemJobSettings,
    TableGoal,
    Workload,
    choose,
    materialization,
    plan_cuts,
    system_job,
)

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def need(query: int, sources: str, since: float = 0, deadline: float | None = None) -> Need:
    return Need(query, frozenset(sources), at(since), None if deadline is None else at(deadline))


def offer(job: int, complete: bool, **as_of: float) -> Offer:
    return Offer(JobId(job), {source: at(seconds) for source, seconds in as_of.items()}, complete)


# reuse, join or close

OFFERS = [
    offer(3, True, a=-30, b=-30),
    offer(4, True, a=-20, b=-20),
    offer(5, False, a=-10, b=-20),
    offer(6, False, a=-5, b=-5),
]


@pytest.mark.parametrize(
    ("sources", "since", "floor", "kind", "job"),
    [
        ("ab", -30, 0, ReuseJob, 4),
        ("ab", -25, 0, ReuseJob, 4),
        ("a", -15, 0, JoinJob, 5),
        ("ab", -15, 0, JoinJob, 6),
        ("ab", -25, 5, JoinJob, 5),
        ("ab", -25, 7, CloseJob, None),
        ("a", 0, 0, CloseJob, None),
        ("abc", -40, 0, CloseJob, None),
        ("", 0, 0, ReuseJob, 4),
    ],
)
def test_the_newest_complete_job_then_the_oldest_on_its_way_then_a_cut(
    sources: str, since: float, floor: int, kind: type, job: int | None
) -> None:
    choice = choose(need(1, sources, since), JobId(floor), OFFERS)
    assert type(choice) is kind
    assert getattr(choice, "job", None) == job
    assert choice.reason


def test_a_query_that_takes_anything_takes_the_newest_complete_job() -> None:
    anything = Need(1, frozenset("ab"), BEGINNING, None)
    assert choose(anything, JobId(0), OFFERS) == ReuseJob(JobId(4), "job 4 is complete and fresh enough")
    assert isinstance(choose(anything, JobId(0), []), CloseJob)


def test_the_state_before_the_first_job_is_no_snapshot() -> None:
    empty = Offer(JobId(0), {"a": BEGINNING}, True)
    assert isinstance(choose(Need(1, frozenset("a"), BEGINNING, None), JobId(0), [empty]), CloseJob)
    assert isinstance(choose(Need(1, frozenset(), BEGINNING, None), JobId(0), [empty]), ReuseJob)


def test_a_cut_for_a_query_names_the_source_that_is_behind() -> None:
    choice = choose(need(1, "ab", -15), JobId(0), [offer(5, True, a=-10, b=-20)])
    assert choice == CloseJob("no job contains everything that b has committed")


as_ofs = st.dictionaries(st.sampled_from("ab"), st.integers(-3, 0).map(at), max_size=2)
offers = st.lists(
    st.builds(Offer, st.integers(0, 4).map(JobId), as_ofs, st.booleans()), max_size=5, unique_by=lambda o: o.job
)


@given(offers, st.sets(st.sampled_from("ab")), st.integers(-3, 0), st.integers(0, 4))
def test_a_choice_satisfies_and_nothing_better_was_there(
    found: list[Offer], sources: set[str], since: int, floor: int
) -> None:
    wanted = need(1, "".join(sources), since)
    fit = [each for each in found if each.job >= floor and each.satisfies(wanted)]
    match choose(wanted, JobId(floor), found):
        case ReuseJob(job=job):
            assert job == max(each.job for each in fit if each.complete)
        case JoinJob(job=job):
            assert not any(each.complete for each in fit)
            assert job == min(each.job for each in fit)
        case CloseJob():
            assert not fit


# cuts

SECONDS = {"a": 1.0, "b": 4.0, "c": 7.0}


def test_who_can_wait_shares_one_cut() -> None:
    (cut,) = plan_cuts([need(1, "a"), need(2, "b"), need(3, "ac", deadline=60)], NOW, SECONDS, {})
    assert cut.sources == frozenset("abc")
    assert [each.query for each in cut.needs] == [3, 1, 2]
    assert "3 waiting" in cut.reason


def test_a_slow_source_does_not_make_a_query_miss_its_deadline() -> None:
    fast, slow = plan_cuts([need(1, "b", deadline=20), need(2, "a", deadline=2)], NOW, SECONDS, {})
    assert (fast.sources, [each.query for each in fast.needs]) == (frozenset("a"), [2])
    assert (slow.sources, [each.query for each in slow.needs]) == (frozenset("b"), [1])


def test_a_cut_is_not_made_longer_than_later_deadlines_allow() -> None:
    first, second = plan_cuts(
        [need(1, "a", deadline=4), need(2, "b", deadline=8), need(3, "c", deadline=8)], NOW, SECONDS, {}
    )
    assert [each.query for each in first.needs] == [1]
    assert [each.query for each in second.needs] == [2, 3]


def test_a_need_that_is_late_anyway_delays_nobody() -> None:
    fast, slow = plan_cuts([need(1, "c", deadline=1), need(2, "a", deadline=2)], NOW, SECONDS, {})
    assert [each.query for each in fast.needs] == [2]
    assert [each.query for each in slow.needs] == [1]


def test_a_source_that_is_captured_far_enough_is_not_asked() -> None:
    captured = {"a": at(-1), "b": at(-10)}
    (cut,) = plan_cuts([need(1, "ab", since=-5), need(2, "a", since=-1)], NOW, SECONDS, captured)
    assert cut.sources == frozenset("b")
    (cut,) = plan_cuts([need(1, "ab", since=-10), need(2, "a", since=-1)], NOW, SECONDS, captured)
    assert cut.sources == frozenset()
    assert "suffices" in cut.reason
    (cut,) = plan_cuts([need(1, "a", since=-5), need(2, "a", since=0)], NOW, SECONDS, captured)
    assert cut.sources == frozenset("a")


def test_no_need_no_cut() -> None:
    assert plan_cuts([], NOW, SECONDS, {}) == ()


def done_at(cuts: Sequence[PlannedCut]) -> dict[int, datetime]:
    """When each query is served, from the cuts' own sources."""
    end, found = NOW, {}
    for cut in cuts:
        end += timedelta(seconds=max((SECONDS[source] for source in cut.sources), default=0.0))
        found.update({each.query: end for each in cut.needs})
    return found


def to_ask(needs: Sequence[Need], captured: Mapping[str, datetime]) -> frozenset[str]:
    return frozenset(s for each in needs for s in each.sources if captured.get(s, BEGINNING) < each.since)


def partitions(needs: Sequence[Need]) -> Iterator[list[list[Need]]]:
    """Every ordered list of groups."""
    if not needs:
        yield []
        return
    first, rest = needs[0], needs[1:]
    for groups in partitions(rest):
        for place, group in enumerate(groups):
            yield [*groups[:place], [first, *group], *groups[place + 1 :]]
        for place in range(len(groups) + 1):
            yield [*groups[:place], [first], *groups[place:]]


def in_time(needs: Sequence[Need], cuts: Sequence[PlannedCut]) -> bool:
    served = done_at(cuts)
    return all(each.deadline is None or served[each.query] <= each.deadline for each in needs)


single_needs = st.builds(
    need,
    st.just(0),
    st.sets(st.sampled_from("abc"), max_size=3).map("".join),
    st.integers(-2, 0),
    st.none() | st.integers(0, 14),
)
needs_of = st.lists(single_needs, min_size=1, max_size=4).map(
    lambda found: [replace(each, query=place) for place, each in enumerate(found)]
)


@given(needs_of, st.dictionaries(st.sampled_from("abc"), st.integers(-3, 0).map(at)))
def test_cuts_are_the_fewest_that_meet_all_deadlines(needs: list[Need], captured: dict[str, datetime]) -> None:
    cuts = plan_cuts(needs, NOW, SECONDS, captured)
    assert sorted(each.query for cut in cuts for each in cut.needs) == [each.query for each in needs]
    for cut in cuts:
        assert cut.needs
        assert cut.sources == to_ask(cut.needs, captured)
        deadlines = [each.deadline or at(1e6) for each in cut.needs]
        assert deadlines == sorted(deadlines)
    tried = [
        [PlannedCut(to_ask(group, captured), tuple(group), "") for group in groups] for groups in partitions(needs)
    ]
    possible = [len(groups) for groups in tried if in_time(needs, groups)]
    if possible:
        assert in_time(needs, cuts)
        assert len(cuts) == min(possible)
        firsts = [min(each.deadline or at(1e6) for each in cut.needs) for cut in cuts]
        assert firsts == sorted(firsts)


@given(needs_of, st.dictionaries(st.sampled_from("abc"), st.integers(-3, 0).map(at)))
def test_the_first_deadline_that_can_be_met_is_met(needs: list[Need], captured: dict[str, datetime]) -> None:
    def alone(each: Need) -> bool:
        return in_time([each], [PlannedCut(to_ask([each], captured), (each,), "")])

    possible = [each for each in needs if each.deadline is not None and alone(each)]
    if possible:
        first = min(possible, key=lambda each: (each.deadline or NOW, each.query))
        assert in_time([first], plan_cuts(needs, NOW, SECONDS, captured))


def test_a_hundred_waiting_queries_are_planned_quickly() -> None:
    sources = {f"s{number}": number / 10 for number in range(10)}
    needs = [
        Need(number, frozenset([f"s{number % 10}"]), NOW, at(1 + number / 20) if number % 2 else None)
        for number in range(100)
    ]
    assert 1 <= len(plan_cuts(needs, NOW, sources, {})) <= 10


# jobs without a query, and materialization

IDLE = Workload(waiting=0, asked_at=at(-60), unprocessed_bytes={"a": 10, "b": 0})
SYSTEM = SystemJobSettings(stream_bytes=1000, idle_after=timedelta(seconds=30))
GOAL = TableGoal("sales", timedelta(minutes=1), at(-50), takes=timedelta(seconds=10))


@pytest.mark.parametrize(
    ("activity", "reason"),
    [
        (IDLE, "no query came for 30s and a has changes"),
        (replace(IDLE, asked_at=at(-29)), None),
        (replace(IDLE, unprocessed_bytes={"a": 0}), None),
        (replace(IDLE, unprocessed_bytes={}), None),
        (replace(IDLE, waiting=1), None),
        (
            replace(IDLE, waiting=1, unprocessed_bytes={"a": 10, "b": 1001}),
            "the stream of b holds 1,001 bytes, more than 1,000",
        ),
        (replace(IDLE, asked_at=NOW, goals=[GOAL]), "sales would fall behind its target_lag of 1m"),
        (
            replace(IDLE, asked_at=NOW, unprocessed_bytes={}, goals=[GOAL]),
            "sales would fall behind its target_lag of 1m",
        ),
        (replace(IDLE, asked_at=NOW, goals=[replace(GOAL, as_of=at(-49))]), None),
        (replace(IDLE, waiting=1, goals=[GOAL]), None),
    ],
)
def test_a_job_runs_without_a_query_for_a_reason(activity: Workload, reason: str | None) -> None:
    found = system_job(activity, SYSTEM, NOW)
    assert (None if found is None else found.reason) == reason


def test_a_job_names_its_tables_apart_from_its_reason() -> None:
    """A table may be named as a part of its source is: the words of a reason choose nothing."""
    goals = [replace(GOAL, table="shop"), replace(GOAL, table="late", as_of=at(-70)), replace(GOAL, as_of=NOW)]
    full = replace(IDLE, unprocessed_bytes={"shop_db": 1001}, goals=goals)
    assert system_job(full, SYSTEM, NOW) == SystemJob("the stream of shop_db holds 1,001 bytes, more than 1,000", None)
    found = system_job(replace(IDLE, goals=goals), SYSTEM, NOW)
    assert found is not None and found.tables == {"shop", "late"}
    assert found.reason == "late would fall behind its target_lag of 1m, and 1 more"


MEMORY = Overlays(bytes=100, oldest_at=at(-60), waiting=0, asked_at=at(-10))
LIMITS = MaterializationSettings(1000, oldest=timedelta(minutes=10), idle_after=timedelta(seconds=30), idle_bytes=50)


@pytest.mark.parametrize(
    ("overlays", "reason"),
    [
        (MEMORY, None),
        (replace(MEMORY, bytes=1001), "1,001 bytes of changes are in memory, more than 1,000"),
        (replace(MEMORY, bytes=1001, waiting=3), "1,001 bytes of changes are in memory, more than 1,000"),
        (replace(MEMORY, oldest_at=at(-600)), "changes are in memory for 10m"),
        (replace(MEMORY, asked_at=at(-30)), "no query came for 30s"),
        (replace(MEMORY, asked_at=at(-30), waiting=1), None),
        (replace(MEMORY, asked_at=at(-30), bytes=49), None),
        (Overlays(0, None, 0, at(-1000)), None),
        (replace(MEMORY, has_files=True), "a bulk load is to be folded"),
        (replace(MEMORY, has_files=True, waiting=1), None),
        (replace(MEMORY, has_files=True, asked_at=at(-1)), None),
        (replace(MEMORY, has_files=True, waiting=1, oldest_at=at(-600)), "changes are in memory for 10m"),
    ],
)
def test_tables_are_materialized_by_size_age_and_idleness(overlays: Overlays, reason: str | None) -> None:
    assert materialization(overlays, LIMITS, NOW) == reason
