"""Groups: many small transactions in one frame of a stream log are read, listed and let go as if each had its own."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.capture.events import row_schema
from headgate.capture.locallog import LocalLog
from headgate.delta.events import UPSERT
from headgate.errors import TransactionError
from tests.capture.logs import OpenLog

SCHEMA = row_schema(pa.schema([("id", pa.int64())]))
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
Transactions = list[tuple[int, int]]


def rows(ids: list[int]) -> pa.Table:
    return pa.table([ids, [UPSERT] * len(ids), [[] for _ in ids], list(range(len(ids)))], schema=SCHEMA)


def append_group(log: LocalLog, transactions: Transactions) -> None:
    """Each is a position and a number of rows; every second position has rows of b as well."""
    members = [(position, NOON + timedelta(seconds=position)) for position, _ in transactions]
    a = [count for _, count in transactions]
    b = [1 if position % 2 else 0 for position, _ in transactions]
    tables = {
        "a": rows([position for position, count in transactions for _ in range(count)]),
        "b": rows([position for position, _ in transactions if position % 2]),
    }
    used = {name: table for name, table in tables.items() if table.num_rows}
    log.append_group(members, used, {name: counts for name, counts in (("a", a), ("b", b)) if name in used})


def read(log: LocalLog, table: str, after: int, upto: int) -> list[tuple[int, int]]:
    found = log.read(table, after, upto).table
    return [] if found is None else list(zip(found["id"].to_pylist(), found["__position"].to_pylist(), strict=True))


_group = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=60)
@given(groups=st.lists(_group, min_size=1, max_size=5), cuts=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_any_range_of_any_groups_is_what_single_transactions_give(
    open_log: OpenLog, groups: list[list[tuple[int, int]]], cuts: tuple[int, int]
) -> None:
    after, upto = sorted(cuts)
    position = 0
    expected: Transactions = []
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder))
        for steps in groups:
            transactions = []
            for step, count in steps:
                position += step
                transactions.append((position, count))
            append_group(log, transactions)
            expected += transactions
        log.sync()
        for _ in range(2):
            inside = [(at, count) for at, count in expected if after < at <= upto]
            assert read(log, "a", after, upto) == [(at, at) for at, count in inside for _ in range(count)]
            assert read(log, "b", after, upto) == [(at, at) for at, _ in inside if at % 2]
            listed = log.transactions(after, upto)
            assert [(found.position, found.rows.get("a", 0)) for found in listed] == inside
            assert [found.commit_at for found in listed] == [NOON + timedelta(seconds=at) for at, _ in inside]
            assert (log.end, log.durable) == (position, position)
            log.close()
            log = open_log(Path(folder))
        log.close()


def test_a_group_is_let_go_when_all_of_it_may_go(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_group(log, [(1, 1), (2, 1), (3, 1)])
    append_group(log, [(4, 1), (5, 1)])
    log.sync()
    log.trim(2)
    assert log.trimmed == 0 and read(log, "a", 2, 9) == [(3, 3), (4, 4), (5, 5)]
    log.trim(4)
    assert log.trimmed == 3 and read(log, "a", 4, 9) == [(5, 5)]
    log.close()


@pytest.mark.parametrize("positions", [[2, 2], [3, 2], [0, 1]])
def test_positions_grow_within_a_group_and_from_one_to_the_next(
    open_log: OpenLog, tmp_path: Path, positions: list[int]
) -> None:
    log = open_log(tmp_path)
    append_group(log, [(1, 1)])
    with pytest.raises(TransactionError, match="does not follow"):
        append_group(log, [(position, 1) for position in positions])
    log.append(7, NOON + timedelta(seconds=7), {"a": rows([7])})
    assert [found.position for found in log.transactions(0, 9)] == [1, 7]
    log.close()
