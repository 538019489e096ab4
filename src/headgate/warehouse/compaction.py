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

from headgate.warehouse.index import FileIndex, Places

DEPTH = 8
SMALL_RUN = 4
BYTES_AT_ONCE = 256 * 2**20


def plan(files: FileIndex, rows_per_file: int, limit: int = BYTES_AT_ONCE) -> list[Places]:
    """Disjoint groups of files to merge, together at most about `limit` bytes."""
    groups = _deep(files, limit)
    left = np.ones(len(files), dtype=bool)
    for group in groups:
        left[group] = False
    spent = sum(int(files.bytes_of[group].sum()) for group in groups)
    for group in _small_runs(files, left, rows_per_file):
        if spent < limit:
            groups.append(group)
            spent += int(files.bytes_of[group].sum())
    return groups


def joined(groups: Sequence[Places]) -> Places:
    """The files of all groups."""
    return np.concatenate([np.array([], np.int64), *groups])


def _deep(files: FileIndex, limit: int) -> list[Places]:
    left, lows, highs = files.ranged, files.lows, files.highs
    groups: list[Places] = []
    spent = 0
    while len(left) > DEPTH and spent < limit:
        by_low, by_high = np.sort(lows), np.sort(highs)
        depth = np.searchsorted(by_low, lows, side="right") - np.searchsorted(by_high, lows, side="right")
        deepest = int(np.argmax(depth))
        if depth[deepest] <= DEPTH:
            break
        point = lows[deepest]
        over = np.flatnonzero(np.asarray(lows <= point, dtype=np.bool_) & np.asarray(highs > point, dtype=np.bool_))
        width = np.searchsorted(by_low, highs[over], side="right") - np.searchsorted(by_low, lows[over], side="left")
        widest = over[np.argsort(-width, kind="stable")[:DEPTH]]
        groups.append(left[widest])
        spent += int(files.bytes_of[left[widest]].sum())
        left, lows, highs = (np.delete(values, widest) for values in (left, lows, highs))
    return groups


def _small_runs(files: FileIndex, left: np.ndarray, rows_per_file: int) -> list[Places]:
    ranged = files.ranged[np.argsort(files.lows, kind="stable")]
    others = np.setdiff1d(np.arange(len(files)), ranged)
    groups: list[Places] = []
    for ordered in (ranged, others):
        run: list[int] = []
        rows = 0
        for place in (*ordered[left[ordered]].tolist(), None):
            size = None if place is None else int(files.rows_of[place])
            small = size is not None and size * 2 < rows_per_file
            if not small or rows >= rows_per_file:
                if len(run) >= SMALL_RUN:
                    groups.append(np.array(run))
                run, rows = [], 0
            if small and place is not None and size is not None:
                run.append(place)
                rows += size
    return groups
