"""How many bytes are copied at a time while what was copied before is distributed.

    copy         |-- k --|-- k+1 --|-- k+2 --|
    distribute           |- k -|   |- k+1 -| |- k+2 -|      the table is up

What follows the last copy is the distribution of the last chunk: the smaller it is, the sooner the table is up. A chunk whose
distribution outlasts the next one's copy holds the copy back.
"""

from __future__ import annotations

from collections.abc import Sequence

FIRST_BYTES = 4 << 20
LEAST_BYTES = 1 << 20
FIXED_BYTES = 64 << 20
"""Where distribution is slower than the copy, whatever the chunk: one that keeps tasks busy."""
_RECENT = 8

Took = tuple[int, float]
"""Bytes, and the seconds that they took."""


def choose_chunk(copied: Sequence[Took], distributed: Sequence[Took]) -> int:
    """The smallest chunk whose copy outlasts its distribution, by what the last chunks took; else a fixed size."""
    if not copied or not distributed:
        return FIRST_BYTES
    rate = sum(seconds for _, seconds in copied[-_RECENT:]) / max(sum(size for size, _ in copied[-_RECENT:]), 1)
    start, each = _line(distributed[-_RECENT:])
    if rate <= each:
        return FIXED_BYTES
    return min(max(int(start / (rate - each)), LEAST_BYTES), FIXED_BYTES)


def _line(took: Sequence[Took]) -> tuple[float, float]:
    """Seconds to begin with, and per byte; of chunks of one size nobody can tell them apart, so half counts as each."""
    count = len(took)
    mean_size = sum(size for size, _ in took) / count
    mean_seconds = sum(seconds for _, seconds in took) / count
    spread = sum((size - mean_size) ** 2 for size, _ in took)
    if spread < (0.05 * mean_size) ** 2 * count:
        return mean_seconds / 2, mean_seconds / 2 / max(mean_size, 1)
    each = sum((size - mean_size) * (seconds - mean_seconds) for size, seconds in took) / spread
    each = min(max(each, 0.0), mean_seconds / mean_size)
    return mean_seconds - each * mean_size, each
