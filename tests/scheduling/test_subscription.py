"""Following a table: what comes adds up to the table at every job, from wherever a reader goes on, or the reader is told."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headgate import Warehouse
from headgate.delta.changes import JobId
from headgate.errors import Cancelled, DefiniteError, FlowFailed, SnapshotGone, UnknownTable
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.subscription import JobChanges, Subscription
from tests.scheduling.bank import deposit, open_bank
from tests.seed import SEED

FLOWS = """
CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;
CREATE MATERIALIZED VIEW branches AS SELECT branch FROM bank.accounts;
CREATE MATERIALIZED VIEW sampled AS SELECT branch, rand() AS r FROM bank.accounts;
CREATE MATERIALIZED VIEW shares AS SELECT id, 1000 DIV balance AS share FROM bank.accounts;
CREATE STREAMING TABLE versions;
CREATE FLOW versions_cdc AS AUTO CDC INTO versions FROM bank.accounts KEYS (id) STORED AS SCD TYPE 2;
"""
FOLLOWED = ("bank.accounts", "totals", "branches", "versions")


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_bank(tmp_path_factory.mktemp("followed"), FLOWS, retention={"jobs": 200}) as warehouse:
        deposit(warehouse, *((number, number % 3, 10 + number) for number in range(1, 7)))
        yield warehouse


Rows = Counter[tuple[object, ...]]


def added(state: Rows, rows: pa.Table) -> None:
    """Adds weighted rows to a state, in which no row is left that is there zero times."""
    for *row, weight in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        state[tuple(row)] += weight
        if not state[tuple(row)]:
            del state[tuple(row)]


def table_at(bank: Warehouse, table: str, job: int) -> Rows:
    with bank.table(table, job) as answer:
        return Counter(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def stored_at(bank: Warehouse, feed: Subscription, job: int) -> Rows:
    """The same without Spark."""
    rows = bank._engine.tables.get(feed.table).main.collected(JobId(job)).select(feed.columns.names)
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def taken(subscription: Subscription, upto: int) -> Iterator[JobChanges]:
    """The pieces up to a job's last one."""
    while True:
        piece = subscription.next(60)
        assert piece is not None, f"nothing came, of {subscription.table}"
        yield piece
        if piece.job >= upto and piece.position is not None:
            return


def test_what_comes_adds_up_to_the_table_at_every_job(bank: Warehouse) -> None:
    choice = random.Random(SEED)
    with bank.subscribe("totals", max_staleness="any") as begun:
        states: dict[str, Rows] = {table: Counter() for table in FOLLOWED}
        positions: dict[str, list[tuple[str, Rows]]] = {table: [] for table in FOLLOWED}
        bank.refresh()
        feeds = {table: bank.subscribe(table, max_staleness="any") for table in FOLLOWED}
        seen: dict[str, dict[int, Rows]] = {table: {} for table in FOLLOWED}
        for round_ in range(4):
            for _ in range(choice.randint(1, 3)):
                with bank.source("bank").transaction() as transaction:
                    account = choice.randint(1, 12)
                    transaction.delete("accounts", {"id": account})
                    if choice.random() < 0.8:
                        transaction.insert(
                            "accounts",
                            {"id": account, "branch": choice.randint(0, 3), "balance": choice.randint(1, 90)},
                        )
                bank.close_job()
            job = bank.refresh()
            if round_ == 2:
                bank.materialize()
            for table, feed in feeds.items():
                for piece in taken(feed, job):
                    added(states[table], piece.rows)
                    if piece.position is not None:
                        seen[table][piece.job] = Counter(states[table])
                        positions[table].append((piece.position, Counter(states[table])))
        for table, states_at in seen.items():
            assert min(states_at) < job == max(states_at)
            for at in range(min(states_at), job + 1):
                # Jobs that changed nothing of the table are not told one by one.
                known = states_at[max(number for number in states_at if number <= at)]
                assert known == stored_at(bank, feeds[table], at), (table, at, SEED)
            assert states_at[job] == table_at(bank, table, job), (table, SEED)
        for feed in feeds.values():
            feed.close()
        for table, given in positions.items():
            position, state = choice.choice(given)
            state = Counter(state)
            with bank.subscribe(table, position, max_staleness="any") as resumed:
                if not position.startswith(f"{job}-"):
                    for piece in taken(resumed, job):
                        assert not piece.is_snapshot
                        added(state, piece.rows)
                assert state == states[table], (table, position, SEED)
                assert resumed.next(0) is None
        whole: Rows = Counter()
        for piece in taken(begun, job):
            added(whole, piece.rows)
        assert whole == states["totals"]
    assert bank.status.subscriptions == 0


def test_many_changes_of_one_job_come_in_pieces(bank: Warehouse) -> None:
    start = bank.refresh()
    with bank.source("bank").transaction() as transaction:
        for number in range(100_000, 109_000):
            transaction.insert("accounts", {"id": number, "branch": 4, "balance": 7})
    job = bank.refresh()
    with bank.subscribe("bank.accounts", start, max_staleness="any") as feed:
        pieces = list(taken(feed, job))
    assert [piece.position is not None for piece in pieces] == [False, True]
    assert sum(piece.rows.num_rows for piece in pieces) == 9_000
    with bank.subscribe("bank.accounts", max_staleness="any") as feed:
        first = list(taken(feed, job))
        assert all(piece.is_snapshot and piece.job == job for piece in first)
        assert sum(piece.rows.num_rows for piece in first) == bank.replica("bank.accounts").count(job)


def test_a_subscription_keeps_its_table_fresh_and_waits_for_changes(bank: Warehouse) -> None:
    with bank.subscribe("totals", max_staleness="1s") as feed:
        assert all(piece.is_snapshot for piece in taken(feed, bank.refresh()))
        deposit(bank, (500, 77, 5))
        state: Rows = Counter()
        # Nobody asks: the background brings the table forward for whoever follows it.
        while (77, 5) not in state:
            piece = feed.next(60)
            assert piece is not None
            added(state, piece.rows)
        assert any("a subscription's bound" in action.reason for action in bank.status.actions)


def test_what_is_not_retained_is_told_with_what_to_do(bank: Warehouse) -> None:
    job = bank.refresh()
    with pytest.raises(SnapshotGone, match=rf"there is no job {job + 5} yet") as problem:
        bank.subscribe("totals", job + 5)
    assert "without AS OF" in str(problem.value.advice)
    with pytest.raises(SnapshotGone, match="built anew"):
        bank.subscribe("totals", f"{job}-00000000")
    for wrong in ("yesterday", "-1", "1" * 30, ""):
        with pytest.raises(DefiniteError, match="cannot begin"):
            bank.subscribe("totals", wrong)
    with pytest.raises(UnknownTable, match="did you mean totals"):
        bank.subscribe("total")
    with pytest.raises(DefiniteError, match="run when it is read"):
        bank.subscribe("sampled")
    with pytest.raises(DefiniteError, match="does not end"):
        bank.sql("SUBSCRIBE TO totals")
    main = bank._engine.tables.get("totals").main
    main.release(job)
    with bank.subscribe("totals", JobId(1), max_staleness="any") as feed:
        with pytest.raises(SnapshotGone, match="since job 1 are no longer kept") as problem:
            feed.next(0)
        assert "retention" in str(problem.value.advice)


def test_a_lagging_reader_keeps_its_changes_for_a_lease_and_no_longer(bank: Warehouse) -> None:
    bank.refresh()
    with bank.subscribe("totals", max_staleness="any") as feed:
        state: Rows = Counter()
        for piece in taken(feed, 0):
            added(state, piece.rows)
        main = bank._engine.tables.get("totals").main
        for number in range(600, 603):
            deposit(bank, (number, number, 1))
            job = bank.refresh()
            bank.materialize()
            main.release(job)
        for piece in taken(feed, job):
            added(state, piece.rows)
        assert state == table_at(bank, "totals", job)
        deposit(bank, (603, 603, 1))
        job = bank.refresh()
        assert feed._pin is not None
        feed._pin.close()  # as the lease does
        bank.materialize()
        main.release(job)
        with pytest.raises(SnapshotGone, match="no longer kept"):
            feed.next(0)


def test_a_subscription_is_cancelled_and_hears_of_failures_and_rebuilds(bank: Warehouse) -> None:
    job = bank.refresh()
    with bank.subscribe("totals", job, max_staleness="any") as feed:
        heard: list[BaseException] = []

        def wait(feed: Subscription = feed) -> None:
            try:
                feed.next()
            except Cancelled as error:
                heard.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        feed.cancel()
        thread.join(60)
        assert len(heard) == 1
    with bank.subscribe("shares", bank.refresh(), max_staleness="any") as feed:
        deposit(bank, (700, 1, 0))
        with pytest.raises(FlowFailed):
            bank.sql("SELECT * FROM shares")
        with pytest.raises(FlowFailed, match="shares failed"):
            feed.next(60)
        state = table_at(bank, "shares", job)
        with bank.source("bank").transaction() as transaction:
            transaction.update("accounts", {"id": 700, "branch": 1, "balance": 50})
        job = bank.refresh()
        for piece in taken(feed, job):
            added(state, piece.rows)
        assert state == table_at(bank, "shares", job)
    with bank.subscribe("branches", job, max_staleness="any") as feed:
        bank.refresh(table="branches")
        deposit(bank, (701, 1, 1))
        bank.refresh()
        with pytest.raises(SnapshotGone, match="built anew"):
            feed.next(60)
    del feed
    gc.collect()
    assert bank.status.subscriptions == 0


def test_a_reader_goes_on_after_the_warehouse_was_opened_again(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path) as bank:
        deposit(bank, (1, 1, 10))
        with bank.subscribe("totals") as feed:
            state: Rows = Counter()
            for piece in taken(feed, 0):
                added(state, piece.rows)
    with open_bank(tmp_path) as bank, bank.subscribe("totals", piece.position, max_staleness="0s") as feed:
        assert feed.next(0) is None
        deposit(bank, (2, 1, 5))
        job = bank.refresh()
        for piece in taken(feed, job):
            added(state, piece.rows)
        assert state == table_at(bank, "totals", job) == Counter({(1, 15): 1})
