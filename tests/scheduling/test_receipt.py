"""Receipts: derived fields, how they read, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.capture.source import Capabilities
from headgate.scheduling.bound import Bound
from headgate.scheduling.receipt import Receipt, SourceReceipt, Waited, cannot_promise

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FRESH = Bound(timedelta(0), 5 * SECOND, "fail")
SHOP = SourceReceipt("shop", 2 * SECOND, timedelta(0), timedelta(microseconds=300), 4711, (), True)
RECEIPT = Receipt(FRESH, NOW, NOW - 2 * SECOND, 17, (SHOP,), Waited(0.25, 0.125, 0.5, 0.0625), 1234, 2, closed_job=True)


def test_staleness_is_counted_from_the_arrival_and_never_negative() -> None:
    assert RECEIPT.staleness == 2 * SECOND
    assert replace(RECEIPT, data_timestamp=NOW + SECOND).staleness == timedelta(0)
    assert replace(RECEIPT, data_timestamp=None).staleness is None


def test_time_waited_adds_up() -> None:
    assert RECEIPT.waited.total == 0.9375


def test_the_slowest_source_is_named() -> None:
    slow = replace(SHOP, name="crm", lag=3 * SECOND)
    assert replace(RECEIPT, sources=(SHOP, slow)).slowest == slow
    assert replace(RECEIPT, sources=()).slowest is None


def test_every_missing_capability_is_one_sentence() -> None:
    everything = Capabilities(True, True, True, True)
    assert cannot_promise(everything) == ()
    for missing in ("deletes", "transaction_boundaries", "intermediate_versions", "commit_times"):
        assert len(cannot_promise(replace(everything, **{missing: False}))) == 1
    assert len(set(cannot_promise(Capabilities(False, False, False, False)))) == 4


@pytest.mark.parametrize(
    ("bound", "offset", "error", "warnings"),
    [
        (10 * SECOND, 0, 9, 0),
        (10 * SECOND, 0, 11, 1),
        (10 * SECOND, -30, 1, 1),
        (10 * SECOND, 30, 40, 1),
        (10 * SECOND, 50, 40, 2),
        (timedelta(0), 0, 0.001, 0),
        (timedelta(0), 0, 2, 1),
        (timedelta(0), 3600, 0.001, 1),
        (None, 3600, 3600, 0),
    ],
)
def test_a_clock_that_is_off_by_more_than_the_bound_is_a_warning(
    bound: timedelta | None, offset: float, error: float, warnings: int
) -> None:
    source = replace(SHOP, clock_offset=timedelta(seconds=offset), clock_error=timedelta(seconds=error))
    receipt = replace(RECEIPT, bound=Bound(bound, None, "fail"), sources=(source,), notes=("another",))
    assert len(receipt.warnings) == 1 + warnings
    assert all("the source's clock" in warning and "shop" in warning for warning in receipt.warnings[1:])


def test_a_source_that_was_never_asked_has_no_clock() -> None:
    receipt = replace(RECEIPT, sources=(replace(SHOP, clock_offset=None, clock_error=None),))
    assert receipt.warnings == ()
    assert "clock" not in str(receipt)
    assert Receipt.from_json(receipt.to_json()) == receipt


def test_a_receipt_reads_well() -> None:
    missed = replace(
        RECEIPT,
        sources=(replace(SHOP, cannot_promise=("rows deleted at the source may still be here",)),),
        missed=True,
        why_missed="the deadline passed",
        decision="no job is fresh enough",
        notes=("the source shop is down",),
    )
    assert str(missed).splitlines() == [
        "bound     at most 0 s stale, within 5 s, else fail",
        "achieved  2024-01-01 11:59:58.000+00:00, 2 s stale on arrival: missed",
        "job       17, closed for this query: no job is fresh enough",
        "source    shop: lag 2 s, position 4711, asked, clock +0 s ±300 µs",
        "          shop: rows deleted at the source may still be here",
        "waited    0.938 s (capture 0.250, queue 0.125, spark 0.500, read 0.062)",
        "work      2 jobs, 1,234 rows",
        "missed    the deadline passed",
        "warning   the source shop is down",
    ]


durations = st.timedeltas(timedelta(0), timedelta(days=3))
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
texts = st.text(max_size=5)
sources = st.builds(
    SourceReceipt,
    texts,
    durations,
    st.none() | durations,
    st.none() | durations,
    st.integers(0),
    st.tuples(texts),
    st.booleans(),
)
seconds = st.floats(0, 1e6)
receipts = st.builds(
    Receipt,
    st.builds(Bound, st.none() | durations, st.none() | durations, st.sampled_from(["fail", "serve", "wait"])),
    instants,
    st.none() | instants,
    st.integers(0),
    st.lists(sources, max_size=2).map(tuple),
    st.builds(Waited, seconds, seconds, seconds, seconds),
    st.integers(0),
    st.integers(0),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | texts,
    texts,
    st.lists(texts, max_size=2).map(tuple),
)


@given(receipts)
def test_a_receipt_goes_through_json(receipt: Receipt) -> None:
    assert Receipt.from_json(json.loads(json.dumps(receipt.to_json(), allow_nan=False))) == receipt
    assert str(receipt)
