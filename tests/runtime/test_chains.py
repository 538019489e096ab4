"""Changes as spans say the same as the changes themselves."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from headgate.dataflow.relation import UNTIL
from headgate.delta.changes import JOB, WEIGHT
from headgate.runtime.rows.chains import spans


def _changes(*rows: tuple[int | None, str, int, int]) -> pa.Table:
    names = ("key", "value", JOB, WEIGHT)
    kinds = pa.schema([("key", pa.int64()), ("value", pa.string()), (JOB, pa.int64()), (WEIGHT, pa.int64())])
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], kinds)


def test_a_row_that_comes_and_goes_is_one_span_and_an_old_one_ends() -> None:
    found = spans(
        _changes((1, "a", 4, -1), (1, "b", 4, 1), (None, "n", 4, 1), (1, "b", 6, -1), (1, "c", 6, 1)), ("key",)
    )
    assert found is not None
    rows = {(row["key"], row["value"], row[JOB], row[UNTIL], row[WEIGHT]) for row in found.to_pylist()}
    assert rows == {(1, "a", 0, 4, 1), (1, "b", 4, 6, 1), (1, "c", 6, None, 1), (None, "n", 4, None, 1)}


def test_changes_stay_as_they_are_when_no_row_comes_and_goes() -> None:
    assert spans(_changes((1, "a", 4, -1), (1, "b", 4, 1), (2, "c", 5, 1)), ("key",)) is None
    assert spans(_changes((1, "a", 4, -1), (1, "a", 5, -1), (1, "b", 6, 1), (1, "b", 7, -1)), ("key",)) is None


def test_the_beginnings_and_ends_of_spans_are_the_changes() -> None:
    chance = random.Random(3)
    there: dict[int, str] = dict.fromkeys(range(4), "old")
    rows: list[tuple[int | None, str, int, int]] = []
    for job in range(1, 40):
        for key in chance.sample(range(8), 3):
            if key in there:
                rows.append((key, there.pop(key), job, -1))
            if chance.random() < 0.7:
                there[key] = f"v{chance.randrange(3)}"
                rows.append((key, there[key], job, 1))
    found = spans(_changes(*rows), ("key",))
    assert found is not None
    told: Counter[tuple[int, str, int, int]] = Counter()
    for row in found.to_pylist():
        assert row[UNTIL] is None or row[JOB] < row[UNTIL]
        told.update([(row["key"], row["value"], row[JOB], 1)] if row[JOB] else [])
        told.update([(row["key"], row["value"], row[UNTIL], -1)] if row[UNTIL] is not None else [])
    assert told == Counter(rows)
