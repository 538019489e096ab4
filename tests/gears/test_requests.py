"""Staleness, latency and expiration of requests are what the definitions say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.capture.gears.requests import NONE, Request, RequestOutcome, measure
from headgate.capture.source import Sample, SourceFreshness

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(unit: float) -> datetime:
    return START + timedelta(seconds=unit)


def units(count: float) -> timedelta:
    return timedelta(seconds=count)


COMMITTED = (10, 12, 15)
RECORDED = {10: 11, 12: 15, 15: 22}


def captured(now: float) -> SourceFreshness:
    """What the staging area holds at an instant of the worked example; a commit's time is its position too."""
    newest = max((commit for commit, recorded in RECORDED.items() if recorded <= now), default=0)
    return SourceFreshness(newest, at(newest))


def run_example(arrived: int, window: int, *, by_time: bool) -> RequestOutcome:
    newest = max(commit for commit in COMMITTED if commit <= arrived)
    need = at(newest) if by_time else Sample(at(newest), newest, NONE, NONE)
    request = Request.of(need, units(window), at(arrived))
    for tick in range(arrived, 30):
        outcome = request.outcome(captured(tick), at(tick))
        if outcome is not None:
            return outcome
        # The last moment of the window, which is when an expired request looks at what there is.
        if (outcome := request.outcome(captured(tick), at(tick + 0.5))) is not None:
            return outcome
    raise AssertionError("the request never ended")


@pytest.mark.parametrize("by_time", [False, True])
def test_the_worked_example(by_time: bool) -> None:
    outcomes = [run_example(arrived, window, by_time=by_time) for arrived, window in ((10, 1), (13, 3), (18, 3))]
    assert [outcome.staleness for outcome in outcomes] == [units(0), units(0), units(3)]
    assert [outcome.latency for outcome in outcomes] == [units(1), units(2), units(3)]
    assert [outcome.met for outcome in outcomes] == [True, True, False]
    measures = measure(outcomes)
    assert measures.requests == 3
    assert measures.staleness == units(1)
    assert measures.latency == units(2)
    assert measures.expired == pytest.approx(1 / 3)


def test_what_is_captured_already_takes_no_time() -> None:
    request = Request.of(Sample(at(5), 7, NONE, NONE), units(1), at(6))
    assert request.outcome(SourceFreshness(7, at(4)), at(6)) == RequestOutcome(
        True, SourceFreshness(7, at(4)), NONE, NONE
    )


def test_a_position_is_met_by_positions_only() -> None:
    request = Request.of(Sample(at(5), 7, NONE, NONE), units(1), at(5))
    # A look that began after the sample's clock reading may have seen less than the sample's position.
    assert request.outcome(SourceFreshness(6, at(6)), at(5.5)) is None


def test_the_deadline_itself_is_in_time() -> None:
    request = Request.of(at(5), units(1), at(5))
    assert request.outcome(SourceFreshness(1, at(4)), at(6)) is None
    met = request.outcome(SourceFreshness(1, at(5)), at(6))
    assert met is not None and met.met and met.latency == units(1)
    late = request.outcome(SourceFreshness(1, at(4)), at(6) + timedelta.resolution)
    assert late is not None and not late.met and late.staleness == units(1) and late.latency == units(1)


def test_no_request_needs_the_future() -> None:
    assert Request.of(at(100), units(1), at(5)).needed_at == at(5)


def test_an_expired_request_is_not_stale_when_only_its_position_is_missing() -> None:
    request = Request.of(Sample(at(5), 7, NONE, NONE), units(1), at(5))
    assert request.expired(SourceFreshness(6, at(5.5))).staleness == NONE


def test_the_longest_window_has_a_deadline() -> None:
    assert Request.of(at(0), timedelta.max, at(0)).deadline.year == 9999


def test_a_clock_that_goes_back_ends_the_wait() -> None:
    request = Request.of(at(5), units(1), at(5))
    outcome = request.outcome(SourceFreshness(1, at(4)), at(3))
    assert outcome is not None and not outcome.met
    served = request.outcome(SourceFreshness(1, at(5)), at(3))
    assert served is not None and served.met and served.latency == NONE


def test_no_requests_have_no_measures_to_speak_of() -> None:
    assert measure([]).requests == 0
    assert measure([]).expired == 0.0
