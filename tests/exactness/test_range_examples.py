"""Ranges spelled out: which of them a query brings forward, what is left behind, and what happens to those that fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.capture.events import Events
from headgate.capture.readable_log import ReadableLog
from headgate.errors import DefiniteError, FlowFailed
from headgate.runtime.rows import chains
from headgate.warehouse.versioned import VersionedTable
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View, World
from tests.waiting import eventually

TABLES = {
    "facts": Table({"k": "bigint", "n": "int", "v": "int"}, ("k", "n")),
    "heads": Table({"k": "bigint", "g": "int"}, ("k",)),
}
RANGES = {"facts": {"column": "k", "bounds": [10, 20]}, "heads": {"column": "k"}}
VIEWS = (
    View("sums", "SELECT h.k, h.g, sum(f.v) AS s FROM s.heads h JOIN s.facts f ON f.k = h.k GROUP BY h.k, h.g"),
    View("inverse", "SELECT k, n, 60 / v AS q FROM s.facts"),
)


@pytest.fixture
def world(oracle: SparkSession, tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, oracle, TABLES, (), VIEWS, {"small_table_rows": 1, "rows_per_file": 4}, RANGES) as found:
        yield found


def fact(k: int, v: int = 1, n: int = 0) -> Insert:
    return Insert("facts", {"k": k, "n": n, "v": v})


def commit(world: World, *changes: Insert | Update | Delete | Truncate) -> None:
    world.commit(*changes)


def ask(world: World, text: str) -> tuple[list[tuple[Any, ...]], Any]:
    with world.warehouse.sql(text, max_staleness="0s") as answer:
        rows = sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())
        return rows, answer.receipt


def jobs(world: World, table: str = "sums") -> list[int]:
    return [int(job) for job in world.stored(table).throughs]


def test_figure_4_3_of_the_thesis(world: World) -> None:
    """Three regions, eight transactions, six scans. There, regions 1 and 2 lie on one server, whose flow refreshes both for S3;
    here only the region that S3 reads comes forward."""
    loaded = [Insert("heads", {"k": k, "g": 0}) for k in (1, 11, 21)]
    commit(world, *loaded, fact(1), fact(11), fact(21))  # T1
    commit(world, fact(1, n=1))  # T2
    rows, _ = ask(world, "SELECT k, s FROM sums")  # S1
    assert rows == [(1, 2), (11, 1), (21, 1)]
    assert jobs(world) == [1, 1, 1]
    rows, receipt = ask(world, "SELECT k, s FROM sums WHERE k < 20")  # S2: nothing was committed since
    assert (rows, receipt.job) == ([(1, 2), (11, 1)], 1)
    commit(world, fact(1, n=2), fact(11, n=1), fact(21, n=1))  # T3
    rows, receipt = ask(world, "SELECT k, s FROM sums WHERE k BETWEEN 10 AND 19")  # S3
    assert (rows, receipt.job) == ([(11, 2)], 2)
    assert jobs(world) == jobs(world, "s.facts") == [1, 2, 1]
    read = {ranges.table: ranges for ranges in receipt.ranges}["sums"]
    assert (read.read, read.brought_forward, read.left_behind) == (("[10, 20)",), 1, 2)
    for n in (3, 4, 5):
        commit(world, fact(1, n=n), fact(11, n=n), fact(21, n=n))  # T4 to T6
    rows, receipt = ask(world, "SELECT k, s FROM sums WHERE k IN (1, 11)")  # S4
    assert (rows, receipt.job) == ([(1, 6), (11, 5)], 3)
    assert jobs(world) == [3, 3, 1]
    rows, receipt = ask(world, "SELECT k, s FROM sums WHERE k >= 20")  # S5: of T3 to T6, which S3 and S4 left aside
    assert (rows, receipt.job) == ([(21, 5)], 3)
    commit(world, fact(21, n=6))  # T7
    rows, receipt = ask(world, "SELECT k, s FROM sums")  # S6
    assert (rows, receipt.job) == ([(1, 6), (11, 5), (21, 6)], 4)
    commit(world, fact(1, n=9))  # T8 waits for whoever asks next
    assert jobs(world) == [4, 4, 4]


def test_a_query_over_one_range_decodes_and_looks_up_no_rows_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = range(0, 30, 3)
    commit(world, *[Insert("heads", {"k": k, "g": 0}) for k in keys], *[fact(k) for k in keys])
    ask(world, "SELECT * FROM sums")
    world.materialize()
    commit(world, *[Update("heads", {"k": k, "g": 1}) for k in keys], *[fact(k, n=1) for k in keys])
    touched: list[int] = []

    def note(table: pa.Table) -> None:
        touched.extend(table.column(next(name for name in table.column_names if name.endswith("k"))).to_pylist())

    decode, lookup, read = chains.transaction_changes, VersionedTable.lookup, ReadableLog.read

    def reading(self: ReadableLog, *arguments: Any) -> Events:
        events = read(self, *arguments)
        assert events.table is not None
        note(events.table)
        assert events.rows == events.table.num_rows
        return events

    def decoding(events: pa.Table, *rest: Any) -> pa.Table:
        note(events)
        return decode(events, *rest)

    def looking(self: VersionedTable, columns: Any, values: pa.Table, *rest: Any) -> pa.Table:
        note(values.rename_columns(list(columns)))
        return lookup(self, columns, values, *rest)

    monkeypatch.setattr(ReadableLog, "read", reading)
    monkeypatch.setattr(chains, "transaction_changes", decoding)
    monkeypatch.setattr(VersionedTable, "lookup", looking)
    rows, _ = ask(world, "SELECT k, g, s FROM sums WHERE k BETWEEN 10 AND 19")
    assert rows == [(12, 1, 2), (15, 1, 2), (18, 1, 2)]
    assert touched
    assert all(10 <= key < 20 for key in touched)


def test_key_changes_and_truncations_concern_each_range_by_itself(world: World) -> None:
    commit(world, *[Insert("heads", {"k": k, "g": 0}) for k in (1, 11, 21)], fact(1), fact(11), fact(21))
    ask(world, "SELECT * FROM sums")
    commit(world, Update("facts", {"k": 11, "n": 1, "v": 5}, {"k": 1, "n": 0}))
    assert ask(world, "SELECT k, s FROM sums WHERE k >= 10")[0] == [(11, 6), (21, 1)]
    commit(world, Truncate("facts"), fact(21, 7))
    assert ask(world, "SELECT k, s FROM sums WHERE k >= 20")[0] == [(21, 7)]
    assert jobs(world) == [1, 2, 3]
    assert ask(world, "SELECT k, s FROM sums")[0] == [(21, 7)]
    with world.warehouse.sql("SELECT k, s FROM sums", job=2) as answer:
        assert sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist()) == [(11, 6), (21, 1)]


def test_a_range_that_fails_keeps_no_other_back(world: World) -> None:
    commit(world, fact(1, 2), fact(11, 3), fact(21, 4))
    ask(world, "SELECT * FROM inverse")
    commit(world, fact(1, 0, n=1), fact(11, 6, n=1))
    assert ask(world, "SELECT k, n, q FROM inverse WHERE k >= 10")[0] == [(11, 0, 20.0), (11, 1, 10.0), (21, 0, 15.0)]
    with pytest.raises(FlowFailed, match="inverse failed in job 2"):
        ask(world, "SELECT * FROM inverse WHERE k = 1")
    commit(world, fact(21, 2, n=1))
    assert len(ask(world, "SELECT * FROM inverse WHERE k >= 20")[0]) == 2
    with pytest.raises(FlowFailed):
        ask(world, "SELECT * FROM inverse")
    assert jobs(world, "inverse")[0] == 1
    commit(world, Update("facts", {"k": 1, "n": 1, "v": 3}))
    assert len(ask(world, "SELECT * FROM inverse")[0]) == 6


def test_ranges_are_split_and_merged_while_answers_are_open(world: World) -> None:
    commit(world, *[Insert("heads", {"k": k, "g": 0}) for k in (1, 11, 21)], fact(1), fact(11), fact(21))
    ask(world, "SELECT * FROM sums")
    commit(world, fact(1, n=1), fact(11, n=1), fact(21, n=1))
    answer = world.warehouse.sql("SELECT k, s FROM sums WHERE k BETWEEN 10 AND 19", max_staleness="0s")
    assert jobs(world) == [1, 2, 1]
    world.warehouse.change_ranges("sums", split="15")
    assert len(jobs(world)) == len(jobs(world, "s.heads")) == 4
    world.warehouse.change_ranges("s.facts", merge=0)
    assert world.stored("sums").range_map.bounds == (15, 20)
    with answer:
        assert answer.to_arrow().to_pylist() == [{"k": 11, "s": 2}]
    commit(world, fact(1, n=2), fact(21, n=2))
    assert ask(world, "SELECT k, s FROM sums WHERE k < 12")[0] == [(1, 3), (11, 2)]
    assert jobs(world) == [3, 2, 1]  # the last one did not change
    world.reopen()
    assert world.stored("sums").range_map.bounds == (15, 20)
    assert ask(world, "SELECT k, s FROM sums")[0] == [(1, 3), (11, 2), (21, 3)]
    world.warehouse.change_ranges("sums", bounds=[])
    assert len(jobs(world)) == 1
    with pytest.raises(DefiniteError, match="'x' is no integer"):
        world.warehouse.change_ranges("sums", split="x")


def test_the_slowest_ranges_come_forward_when_they_hold_back_too_much(world: World) -> None:
    commit(world, *[fact(k) for k in range(30)])
    ask(world, "SELECT * FROM inverse")
    for n, predicate in ((1, "k < 20"), (4, "k < 10")):
        commit(world, *[fact(k, n=n + more) for k in range(30) for more in range(3)])
        ask(world, f"SELECT * FROM inverse WHERE {predicate}")
    world.materialize()
    assert world.stored("inverse").main.base_through == 1  # what Delta clients see is of one job
    assert jobs(world, "inverse") == [3, 2, 1]
    warehouse = world.warehouse
    assert not [action for action in warehouse.status.actions if action.what == "ranges brought forward"]
    # More than half of that is the lead of ranges, and all of it is allowed.
    warehouse.tuning.change("limits.overlay_bytes", int(1.2 * warehouse.status.held_bytes))
    eventually(lambda: jobs(world, "inverse")[2] == 3)
    first = next(action for action in warehouse.status.actions if action.what != "materialization")
    assert first.what == "ranges brought forward"
    assert re.match(r"1 of (inverse|s\.facts): they hold back much of [\d,]+ bytes", first.reason)
    assert warehouse.newest_job == 3
    assert ask(world, "SELECT k, count(*) FROM inverse WHERE k IN (5, 15, 25) GROUP BY k")[0] == [
        (5, 7),
        (15, 7),
        (25, 7),
    ]


def test_explain_tells_why_scans_are_aligned(world: World) -> None:
    text = str(world.warehouse.explain("sums"))
    assert "ranges of k: (, 10) at job" in text
    assert "scan of s.facts: aligned on k" in text
