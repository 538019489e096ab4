"""The demo finds out what is wrong with its own numbers, and shows what each reader got."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest
from examples.order_entry.readers import READERS, Reader, Visit
from examples.order_entry.summary import (
    check_bounds,
    check_totals,
    check_versions,
    check_went_through,
    reader_table,
    visit_line,
)
from examples.order_entry.tills import Journal

from headgate.cli.terminal import drawn_lines
from headgate.scheduling.bound import Bound
from headgate.scheduling.receipt import Receipt, Waited

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STRICT = Reader("strict", "0s", 1)
RELAXED = Reader("relaxed", "5s", 1)
HASTY = Reader("hasty", "0s", 1, deadline="500ms")
TOTALS = {("north", 1): (3, 5, Decimal("9.50")), ("south", 2): (1, 1, Decimal("2.00"))}


def visit(
    reader: Reader,
    asked_at: float,
    lines: int,
    *,
    missed: bool = False,
    rows: int = 0,
    shared_cut: bool = False,
    waited: float = 0.25,
) -> Visit:
    receipt = Receipt(
        Bound(reader.allowed, None, "serve"),
        NOW,
        NOW - timedelta(seconds=2),
        job=1,
        waited=Waited(spark=waited),
        rows_processed=rows,
        jobs_run=int(rows > 0),
        shared_cut=shared_cut,
        missed=missed,
        why_missed="the deadline passed" if missed else None,
    )
    return Visit(reader, asked_at, lines, Decimal("1234.50"), receipt)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    """100 line items from before, 2 more at 10 s and 3 more at 20 s."""
    kept = Journal(100)
    for at, lines in ((10.0, 2), (20.0, 3)):
        monkeypatch.setattr("examples.order_entry.tills.time", SimpleNamespace(monotonic=lambda at=at: at))
        kept.note(lines)
    return kept


def test_the_journal_tells_what_was_acknowledged_by_when(journal: Journal) -> None:
    assert [journal.lines_until(at) for at in (-5, 9.9, 10, 19, 20, 99)] == [100, 100, 102, 102, 105, 105]
    assert journal.commits == 2


def test_answers_that_hold_what_their_bound_names_pass(journal: Journal) -> None:
    visits = [visit(STRICT, 21, 105), visit(RELAXED, 21, 102), visit(RELAXED, 25, 105), visit(STRICT, 5, 105)]
    found = check_bounds(visits, [STRICT, RELAXED], journal)
    assert found.problem is None
    assert "4 met, 0 missed" in str(found)


def test_an_answer_that_lacks_a_line_and_does_not_say_so_is_found(journal: Journal) -> None:
    found = check_bounds([visit(STRICT, 21, 105), visit(STRICT, 21, 104)], [STRICT], journal)
    assert found.problem is not None
    assert "strict (bound 0s) has 104 line items, 105 had been acknowledged" in found.problem
    assert str(found).startswith("  WRONG  ")
    late = check_bounds([visit(RELAXED, 25, 104)], [RELAXED], journal)
    assert late.problem is not None


def test_an_answer_that_says_that_it_missed_its_bound_passes(journal: Journal) -> None:
    found = check_bounds([visit(HASTY, 21, 100, missed=True)], [HASTY], journal)
    assert found.problem is None
    assert "0 met, 1 missed" in str(found)


def test_a_reader_without_an_answer_is_found(journal: Journal) -> None:
    assert check_bounds([visit(STRICT, 21, 105)], [STRICT, HASTY], journal).problem == "hasty got no answer"


def test_equal_totals_pass() -> None:
    found = check_totals(dict(TOTALS), TOTALS)
    assert found.problem is None
    assert "2 groups, 4 line items, 11.50" in str(found)


@pytest.mark.parametrize("wrong", [(2, 5, Decimal("9.50")), (3, 4, Decimal("9.50")), (3, 5, Decimal("9.51"))])
def test_wrong_totals_are_found(wrong: tuple[int, int, Decimal]) -> None:
    found = check_totals({**TOTALS, ("north", 1): wrong}, TOTALS)
    assert found.problem is not None
    assert found.problem.endswith("PostgreSQL has 3 line items, quantity 5, revenue 9.50")


def test_a_group_too_few_or_too_many_is_found() -> None:
    fewer = {("north", 1): TOTALS["north", 1]}
    assert check_totals(fewer, TOTALS).problem == (
        "south, item 2: nothing, PostgreSQL has 1 line item, quantity 1, revenue 2.00"
    )
    assert check_totals(TOTALS, fewer).problem == (
        "south, item 2: 1 line item, quantity 1, revenue 2.00, PostgreSQL has nothing"
    )


def test_a_lost_version_of_an_item_is_found() -> None:
    assert check_versions(15, 15, 12).problem is None
    assert check_versions(14, 15, 12).problem == "14 versions instead of 15"


def test_a_reader_or_till_that_failed_is_found() -> None:
    assert check_went_through([]).problem is None
    assert check_went_through([ValueError("no connection")]).problem == "no connection"


def test_an_answer_is_one_line_that_says_what_it_cost() -> None:
    alone = visit_line(visit(STRICT, 12, 1105, rows=38), 10)
    assert alone.split() == [
        *(
            "2.0",
            "s",
            "strict",
            "0s",
            "2",
            "s",
            "1,105",
            "1,234.50",
            "250",
            "ms",
            "38",
            "changes,",
            "for",
            "it",
            "alone",
        )
    ]
    assert visit_line(visit(STRICT, 12, 1, rows=38, shared_cut=True), 10).endswith("38 changes, shared")
    assert visit_line(visit(RELAXED, 12, 1), 10).endswith("none: the snapshot was there")
    assert "MISSED: the deadline passed" in visit_line(visit(HASTY, 12, 1, missed=True), 10)


def test_the_table_has_a_column_for_every_reader() -> None:
    visits = [
        visit(STRICT, 1, 1, rows=3000, waited=1),
        visit(STRICT, 2, 1, rows=5, shared_cut=True, waited=2),
        visit(STRICT, 3, 1, waited=4),
        visit(HASTY, 4, 1, missed=True),
    ]
    heading, *lines = drawn_lines(reader_table(visits, [STRICT, HASTY, RELAXED]), 80)
    assert heading.split() == ["reader", "strict", "hasty", "relaxed"]
    assert [re.split("  +", line) for line in lines] == [
        ["may be stale by", "0s", "0s within 500ms", "5s"],
        ["answers", "3", "1", "0"],
        ["bound met", "3", "0", "0"],
        ["missed", "0", "1", "0"],
        ["stalest", "2 s", "2 s", "–"],
        ["waited, median", "2 s", "250 ms", "–"],
        ["waited, longest", "4 s", "250 ms", "–"],
        ["snapshot was there", "1", "1", "0"],
        ["shared work", "1", "0", "0"],
        ["work alone", "1", "0", "0"],
        ["changes processed", "3,005", "0", "0"],
    ]


def test_the_readers_differ_in_what_they_allow() -> None:
    assert [reader.bound for reader in READERS] == ["0s", "5s", "1m", "0s within 500ms"]
