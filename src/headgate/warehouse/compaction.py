"""Which files to merge so that a lookup opens few: a pure function of the files' ranges.

Every fold of scattered new keys adds a run of wide files over the same ranges. Two rules keep this flat:

    depth   more than `DEPTH` files lie over one point    -> merge the widest of them
    small   `SMALL_RUN` neighbours are each below half a file  -> merge them

Merging files that share a point leaves files that share none, so each row is rewritten a logarithmic number of times.
A file with only one value of the leading column never counts for depth: merging could not part it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.warehouse.index import bounds_array
from headgate.warehouse.statistics import DataFile

DEPTH = 8
SMALL_RUN = 4
BYTES_AT_ONCE = 256 * 2**20

Group = tuple[DataFile, ...]


def plan(files: Sequence[DataFile], lead: str, rows_per_file: int, limit: int = BYTES_AT_ONCE) -> list[Group]:
    """Disjoint groups of files to merge, together at most about `limit` bytes."""
    groups = _deep(files, lead, limit)
    taken = {file.path for group in groups for file in group}
    rest = [file for file in files if file.path not in taken]
    spent = sum(file.bytes for group in groups for file in group)
    for group in _small_runs(rest, lead, rows_per_file):
        if spent < limit:
            groups.append(group)
            spent += sum(file.bytes for file in group)
    return groups


def _deep(files: Sequence[DataFile], lead: str, limit: int) -> list[Group]:
    left = [file for file in files if file.range(lead).low is not None and file.range(lead).high is not None]
    groups: list[Group] = []
    spent = 0
    while len(left) > DEPTH and spent < limit:
        lows = bounds_array([file.range(lead).low for file in left])
        highs = bounds_array([file.range(lead).high for file in left])
        by_low, by_high = np.sort(lows), np.sort(highs)
        depth = np.searchsorted(by_low, lows, side="right") - np.searchsorted(by_high, lows, side="right")
        deepest = int(np.argmax(depth))
        if depth[deepest] <= DEPTH:
            break
        point = lows[deepest]
        over = np.flatnonzero(np.asarray(lows <= point, dtype=np.bool_) & np.asarray(highs > point, dtype=np.bool_))
        width = np.searchsorted(by_low, highs[over], side="right") - np.searchsorted(by_low, lows[over], side="left")
        widest = over[np.argsort(-width, kind="stable")[:DEPTH]]
        group = tuple(left[place] for place in widest)
        groups.append(group)
        spent += sum(file.bytes for file in group)
        chosen = set(widest.tolist())
        left = [file for place, file in enumerate(left) if place not in chosen]
    return groups


def _small_runs(files: Sequence[DataFile], lead: str, rows_per_file: int) -> list[Group]:
    ranged = [file for file in files if file.range(lead).low is not None]
    others = [file for file in files if file.range(lead).low is None]
    ranged.sort(key=lambda file: file.range(lead).low)  # type: ignore[arg-type, return-value]
    groups: list[Group] = []
    for ordered in (ranged, others):
        run: list[DataFile] = []
        for file in [*ordered, None]:
            small = file is not None and file.rows * 2 < rows_per_file
            if small and sum(member.rows for member in run) < rows_per_file:
                assert file is not None
                run.append(file)
                continue
            if len(run) >= SMALL_RUN:
                groups.append(tuple(run))
            run = [file] if small and file is not None else []
    return groups
