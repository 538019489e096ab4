"""Overlays per range against a list of changes: whatever ranges took which jobs, each slice has their rows, in job order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.delta.changes import JOB, WEIGHT, JobId
from headgate.ranges.range_map import RangeMap
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.codes import code
from headgate.warehouse.divided import DividedOverlay, Division
from headgate.warehouse.overlay import Overlay
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.storage import Folder
from tests.seed import SEED

SPEC = TableSpec("t", StructType().add("k", "integer").add("v", "long"), ("k",))


def division(*bounds: int) -> Division:
    return Division("t.k", "k", RangeMap("integer", bounds))


def changes(rows: list[tuple[int | None, int, int]], after: int, upto: int) -> ChangeSet:
    keys, values, jobs = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table({"k": keys, "v": values, JOB: jobs, WEIGHT: [1] * len(rows)}, schema=SPEC.change_arrow_schema)
    return ChangeSet.of_table(SPEC, table, JobId(after), JobId(upto))


def rows_of(found: ChangeSet | None) -> list[tuple[int | None, int, int]]:
    return [] if found is None else [(row["k"], row["v"], row[JOB]) for row in found.read(1_000_000).to_pylist()]


# In the last one a range is cut anew whose newest rows, in memory, are older than files of its neighbours.
@pytest.mark.parametrize("seed", [*(f"{SEED} {number}" for number in range(30)), "f89ccbdf4e4e 2"])
def test_slices_have_the_rows_of_their_ranges_and_jobs(seed: str, tmp_path: str) -> None:
    choice = random.Random(f"divided {seed}")
    cut = division(3, 6)
    overlay = DividedOverlay.of(Overlay(SPEC, JobId(0), JobId(0)), cut)
    known: list[tuple[int | None, int, int]] = []
    throughs = [0, 0, 0]
    for step in range(12):
        after = choice.choice(sorted(set(throughs)))
        group = [each for each in range(3) if throughs[each] == after and choice.random() < 0.8]
        if group:
            upto = after + choice.randint(1, 3)
            fresh = [
                (key, step * 100 + place, job)
                for job in range(after + 1, upto + 1)
                for place, key in enumerate([None, *range(9)])
                if choice.random() < 0.4 and cut.map.of(key) in group
            ]
            overlay = overlay.append(changes(fresh, after, upto), JobId(upto), frozenset(group))
            known += fresh
            for each in group:
                throughs[each] = upto
        if choice.random() < 0.15:
            overlay = overlay.spill(Folder.at(str(tmp_path)))
        if choice.random() < 0.2 and len(set(throughs)) == 1:
            bounds = sorted(choice.sample(range(1, 8), 2))
            cut = division(*bounds)
            overlay = DividedOverlay.of(overlay, cut)
        assert overlay.throughs == tuple(throughs)
        assert overlay.upto == min(throughs)
        some = frozenset(choice.sample(range(3), choice.randint(1, 3)))
        part = overlay.only(some)
        upto = min(throughs[each] for each in some)
        assert part.upto == upto
        start = choice.randint(0, upto)
        found = part.slice(JobId(start), JobId(upto))
        expected = [row for row in known if cut.map.of(row[0]) in some and start < row[2] <= upto]
        assert sorted(rows_of(found), key=repr) == sorted(expected, key=repr)
        assert [row[2] for row in rows_of(found)] == sorted(row[2] for row in expected)
        if found is not None and found.in_memory:
            assert part.code(("k",), JobId(start), JobId(upto)).equals(code(found.table, ("k",)))


def test_ranges_at_different_jobs_are_not_merged() -> None:
    overlay = DividedOverlay.of(Overlay(SPEC, JobId(0), JobId(0)), division(3))
    ahead = overlay.append(changes([(1, 1, 1)], 0, 1), JobId(1), frozenset({0}))
    with pytest.raises(ValueError, match="stand at different jobs"):
        DividedOverlay.of(ahead, division())
    with pytest.raises(ValueError, match="stand at different jobs"):
        ahead.undivided()
    assert DividedOverlay.of(ahead, division(2, 3)).throughs == (1, 1, 0)


def test_changes_of_other_ranges_are_refused() -> None:
    overlay = DividedOverlay.of(Overlay(SPEC, JobId(0), JobId(0)), division(3))
    with pytest.raises(ValueError, match="outside the ranges"):
        overlay.append(changes([(5, 1, 1)], 0, 1), JobId(1), frozenset({0}))
