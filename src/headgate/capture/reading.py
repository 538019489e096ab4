"""Puts the rows of many transactions together, with the columns that all rows of a transaction share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.capture.events import from_micros, to_micros
from headgate.capture.frames import Header
from headgate.capture.places import Stamps, stamped
from headgate.delta.changes import BEGINNING
from headgate.errors import ConfigError

_BEGINNING = to_micros(BEGINNING)
_PORTION_ROWS = 64_000


def stamp_micros(commit_at: int, initial: bool) -> int:
    """The commit time on a transaction's rows: an initial load's are valid from the beginning of time."""
    return _BEGINNING if initial else commit_at


def stamp_of(header: Header) -> datetime:
    """The commit time on the rows of a frame."""
    return from_micros(stamp_micros(header.commit_at, header.initial))


def stamps_of(header: Header, table: str, part: slice) -> Stamps:
    """What some transactions of a frame give to their rows of a table."""
    group = header.group
    times = np.full_like(group.commit_at[part], _BEGINNING) if header.initial else group.commit_at[part]
    return Stamps(group.positions[part], times, group.rows[table][part])


def concatenate_events(
    table: str, parts: Sequence[tuple[Stamps, pa.Table]], keep: pc.Expression | None = None
) -> pa.Table | None:
    """One table of events in the order of the parts, of those to `keep`; None when there are no parts. No work per row in Python."""
    if not parts:
        return None
    if keep is not None:
        # Rows that are not kept leave a few parts at a time: stamps are never made for all.
        kept = [
            found.filter(keep) for some in _portions(parts) if (found := concatenate_events(table, some)) is not None
        ]
        return _concatenate(table, kept).combine_chunks()
    stamps = Stamps(*(np.concatenate(each) for each in zip(*(stamps for stamps, _ in parts), strict=True)))
    return stamped(_concatenate(table, [rows for _, rows in parts]).combine_chunks(), stamps)


def _portions(parts: Sequence[tuple[Stamps, pa.Table]]) -> Iterator[Sequence[tuple[Stamps, pa.Table]]]:
    """The parts a few at a time, so many that filtering them takes longer than starting to."""
    first, rows = 0, 0
    for place, (_, part) in enumerate(parts):
        rows += part.num_rows
        if rows >= _PORTION_ROWS:
            yield parts[first : place + 1]
            first, rows = place + 1, 0
    if first < len(parts):
        yield parts[first:]


def _concatenate(table: str, parts: list[pa.Table]) -> pa.Table:
    """Rows from before a column was added have NULL in it, those from before it was widened get the wider type."""
    first = parts[0].schema
    if all(part.schema.equals(first) for part in parts):
        return pa.concat_tables(parts)
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise ConfigError(
            f"the columns of {table} changed their types while transactions were waiting: {error}",
            hint="process the waiting transactions with the old types first",
        ) from None
