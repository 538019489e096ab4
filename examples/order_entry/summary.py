"""What the readers got and what it cost, as tables, and whether the demo's numbers are right.

Bounds are judged from the tills' journal, not from receipts: an answer that says that its bound was met, and lacks a line
item that was acknowledged before the instant that the bound names, is found out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from examples.order_entry.readers import Reader, Visit
from examples.order_entry.tills import Journal, Totals
from headgate.cli.terminal import columns
from headgate.measures import count_text, duration_text
from headgate.scheduling.receipt import Receipt

_VISIT = "{:>7}  {:<10} {:<16} {:>10} {:>7} {:>13} {:>9}  {}"
VISIT_TITLES = (
    _VISIT.format("", "", "may be", "was", "line", "", "", "work for"),
    _VISIT.format("after", "reader", "stale by", "stale by", "items", "revenue", "waited", "this answer"),
)

_MEASURES = (
    *("may be stale by", "answers", "bound met", "missed", "stalest", "waited, median", "waited, longest"),
    *("snapshot was there", "shared work", "work alone", "changes processed"),
)


@dataclass(frozen=True)
class Check:
    """Something that must hold at the end, and what is wrong with it, if anything."""

    what: str
    problem: str | None = None

    def __str__(self) -> str:
        return f"  ok     {self.what}" if self.problem is None else f"  WRONG  {self.what}: {self.problem}"


def visit_line(visit: Visit, began: float) -> str:
    """One answer in one line."""
    receipt = visit.receipt
    return _VISIT.format(
        f"{visit.asked_at - began:.1f} s",
        visit.reader.name,
        visit.reader.bound,
        duration_text(_age(receipt)),
        f"{visit.lines:,}",
        f"{visit.revenue:,}",
        duration_text(receipt.waited.total),
        _work(visit),
    )


def reader_table(visits: Sequence[Visit], readers: Sequence[Reader]) -> Table:
    """One column per reader."""
    table = columns("reader")
    for reader in readers:
        table.add_column(reader.name, justify="right")
    measured = [_measures(reader, [visit for visit in visits if visit.reader == reader]) for reader in readers]
    for title, *values in zip(_MEASURES, *measured, strict=True):
        table.add_row(title, *map(str, values))
    return table


def check_bounds(visits: Sequence[Visit], readers: Sequence[Reader], journal: Journal) -> Check:
    """Every reader was answered, and every bound was met or said to be missed."""
    missed = sum(visit.receipt.missed for visit in visits)
    what = f"every bound is met or said to be missed: {len(visits) - missed} met, {missed} missed"
    silent = [reader.name for reader in readers if not any(visit.reader == reader for visit in visits)]
    if silent:
        return Check(what, f"{', '.join(silent)} got no answer")
    for visit in visits:
        needed = journal.lines_until(visit.asked_at - visit.reader.allowed.total_seconds())
        if visit.lines < needed and not visit.receipt.missed:
            lacking = f"an answer for {visit.reader.name} (bound {visit.reader.bound}) has {visit.lines:,} line items"
            return Check(what, f"{lacking}, {needed:,} had been acknowledged\n{visit.receipt}")
    return Check(what)


def check_totals(found: Totals, expected: Totals) -> Check:
    """The flow's table says the same as SQL on the source."""
    lines, revenue = (sum(values[place] for values in expected.values()) for place in (0, 2))
    what = f"store_sales equals SQL on PostgreSQL: {len(expected)} groups, {count_text(int(lines), 'line item')}, {revenue:,}"
    for group in sorted({*found, *expected}):
        if found.get(group) != expected.get(group):
            store, item = group
            return Check(
                what, f"{store}, item {item}: {_group(found, group)}, PostgreSQL has {_group(expected, group)}"
            )
    return Check(what)


def check_versions(found: int, expected: int, items: int) -> Check:
    """Every change of an item is a version of its own in the dimension."""
    what = f"each of {count_text(expected - items, 'change')} to {items} items is a version of its own"
    return Check(what, None if found == expected else f"{found} versions instead of {expected}")


def check_went_through(problems: Sequence[BaseException]) -> Check:
    """No reader and no till failed."""
    return Check("tills and readers went through", "; ".join(map(str, problems)) or None)


def _work(visit: Visit) -> str:
    receipt = visit.receipt
    if receipt.missed:
        return f"MISSED: {receipt.why_missed}; this is what was there"
    if not receipt.jobs_run:
        return "none: the snapshot was there"
    return f"{count_text(receipt.rows_processed, 'change')}, {'shared' if receipt.shared_cut else 'for it alone'}"


def _age(receipt: Receipt) -> float | None:
    """How stale the answer was, in seconds."""
    return None if receipt.staleness is None else receipt.staleness.total_seconds()


def _measures(reader: Reader, visits: Sequence[Visit]) -> tuple[object, ...]:
    """What `_MEASURES` names, for one reader."""
    receipts = [visit.receipt for visit in visits]
    waits = [receipt.waited.total for receipt in receipts]
    ages = [age for receipt in receipts if (age := _age(receipt)) is not None]
    worked = [receipt for receipt in receipts if receipt.jobs_run]
    missed = sum(receipt.missed for receipt in receipts)
    return (
        reader.bound,
        len(receipts),
        len(receipts) - missed,
        missed,
        duration_text(max(ages, default=None)),
        duration_text(statistics.median(waits) if waits else None),
        duration_text(max(waits, default=None)),
        len(receipts) - len(worked),
        sum(receipt.shared_cut for receipt in worked),
        sum(not receipt.shared_cut for receipt in worked),
        f"{sum(receipt.rows_processed for receipt in worked):,}",
    )


def _group(totals: Totals, group: tuple[str, int]) -> str:
    if group not in totals:
        return "nothing"
    lines, qty, revenue = totals[group]
    return f"{count_text(lines, 'line item')}, quantity {qty:,}, revenue {revenue:,}"
