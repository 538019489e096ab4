"""A receipt, as the service sends it, in words: what was promised and achieved, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rich.table import Table

from headgate.cli.terminal import columns
from headgate.cli.texts import count_text, duration_text

Receipt = Mapping[str, Any]


def receipt_table(receipt: Receipt) -> Table:
    """One row per thing to know."""
    table = columns()
    for title, text in _told(receipt):
        table.add_row(title, text)
    return table


def receipt_summary(receipt: Receipt) -> str:
    """The receipt in a few words."""
    stale = "" if receipt["staleness"] is None else f"{duration_text(receipt['staleness'])} stale, "
    missed = " (bound missed)" if receipt["missed"] else ""
    return f"{stale}job {receipt['job']}, {count_text(receipt['rows_processed'], 'change')} processed{missed}"


def _told(receipt: Receipt) -> Iterator[tuple[str, str]]:
    bound, waited = receipt["bound"], receipt["waited"]
    age = bound["max_staleness"]
    promise = "any age" if age is None else f"at most {duration_text(age)} stale"
    if bound["deadline"] is not None:
        promise += f", within {duration_text(bound['deadline'])}, else {bound['when_stale']}"
    yield "bound", promise
    if receipt["data_timestamp"] is None:
        yield "achieved", "reads no source"
    else:
        at = datetime.fromisoformat(receipt["data_timestamp"]).isoformat(sep=" ", timespec="milliseconds")
        met = "missed" if receipt["missed"] else "met"
        yield "achieved", f"{at}, {duration_text(receipt['staleness'])} stale on arrival: {met}"
    how = (
        "closed for this query"
        if receipt["closed_job"]
        else "shared with other queries"
        if receipt["shared_cut"]
        else "reused"
    )
    yield "job", f"{receipt['job']}, {how}" + (f": {receipt['decision']}" if receipt["decision"] else "")
    for source in receipt["sources"]:
        asked = "asked" if source["sampled"] else "not asked"
        yield "source", f"{source['name']}: lag {duration_text(source['lag'])}, position {source['position']}, {asked}"
        yield from (("", f"{source['name']}: {sentence}") for sentence in source["cannot_promise"])
    places = ", ".join(f"{name} {waited[name]:.3f}" for name in ("capture", "queue", "spark", "read") if waited[name])
    yield "waited", f"{waited['total']:.3f} s" + (f" ({places})" if places else "")
    yield "work", f"{count_text(receipt['jobs_run'], 'job')}, {count_text(receipt['rows_processed'], 'row')}"
    if receipt["missed"]:
        yield "missed", receipt["why_missed"] or "the bound was not met"
    yield from (("warning", warning) for warning in receipt["warnings"])
