"""A receipt, as JSON has it, in words: what was promised and achieved, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from headgate.measures import count_text, duration_text

Body = Mapping[str, Any]
_SPARK = "spark"
"""As `config.platforms` has it, which a command line that only asks does not import."""
_MOST_RANGES = 3


def receipt_lines(receipt: Body) -> Iterator[tuple[str, str]]:
    """One line per thing to know, each with its title."""
    yield "bound", bound_text(receipt["bound"])
    yield "achieved", _achieved(receipt)
    how = (
        "closed for this query"
        if receipt["closed_job"]
        else "shared with other queries"
        if receipt["shared_cut"] and receipt["jobs_run"]
        else "reused"
    )
    yield "job", f"{receipt['job']}, {_because(how, receipt['decision'])}"
    platform, why = receipt.get("platform", _SPARK), receipt.get("why_platform", "")
    if platform != _SPARK or why:
        yield "platform", _because(platform, why)
    for source in receipt["sources"]:
        yield "source", _source(source)
    for source in receipt["sources"]:
        yield from (("", f"{source['name']}: {sentence}") for sentence in source["cannot_promise"])
    yield "waited", waited_text(receipt["waited"])
    yield "work", f"{count_text(receipt['jobs_run'], 'job')}, {count_text(receipt['rows_processed'], 'row')}"
    if receipt.get("kept"):
        yield "answer", receipt["kept"]
    yield from (("ranges", _ranges(ranges)) for ranges in receipt.get("ranges", ()))
    if receipt["missed"]:
        yield "missed", receipt["why_missed"] or "the bound was not met"
    yield from (("warning", warning) for warning in receipt["warnings"])


def receipt_summary(receipt: Body) -> str:
    """The receipt in a few words."""
    stale = "" if receipt["staleness"] is None else f"{duration_text(receipt['staleness'])} stale, "
    missed = " (bound missed)" if receipt["missed"] else ""
    return f"{stale}job {receipt['job']}, {count_text(receipt['rows_processed'], 'change')} processed{missed}"


def bound_text(bound: Body) -> str:
    """A query's bound."""
    age = bound["max_staleness"]
    promise = "any age" if age is None else f"at most {duration_text(age)} stale"
    if bound["deadline"] is None:
        return promise
    return f"{promise}, within {duration_text(bound['deadline'])}, else {bound['when_stale']}"


def waited_text(waited: Body) -> str:
    """How long a query waited, and for what."""
    places = ", ".join(f"{name} {waited[name]:.3f}" for name in ("capture", "queue", "spark", "read") if waited[name])
    return f"{waited['total']:.3f} s" + (f" ({places})" if places else "")


def _achieved(receipt: Body) -> str:
    if receipt["data_timestamp"] is None:
        return "reads no source"
    at = datetime.fromisoformat(receipt["data_timestamp"]).isoformat(sep=" ", timespec="milliseconds")
    met = "missed" if receipt["missed"] else "met"
    return f"{at}, {duration_text(receipt['staleness'])} stale on arrival: {met}"


def _source(source: Body) -> str:
    asked = "asked" if source["sampled"] else "not asked"
    line = f"{source['name']}: lag {duration_text(source['lag'])}, position {source['position']}, {asked}"
    offset, error = source["clock_offset"], source["clock_error"]
    # A source in headgate's own process has its clock.
    if offset is None or not error:
        return line
    return f"{line}, clock {'-' if offset < 0 else '+'}{duration_text(abs(offset))} ±{duration_text(error)}"


def _ranges(ranges: Body) -> str:
    read = ranges["read"]
    more = f" and {len(read) - _MOST_RANGES} more" if len(read) > _MOST_RANGES else ""
    return (
        f"{ranges['table']}: {len(read)} of {ranges['of']} read ({', '.join(read[:_MOST_RANGES])}{more}),"
        f" {ranges['brought_forward']} brought forward, {ranges['left_behind']} left behind"
        + (f", not loaded: {', '.join(missing)}" if (missing := ranges.get("missing")) else "")
    )


def _because(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what
