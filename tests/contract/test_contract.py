"""What every source promises, and what only those that declare it do."""

from __future__ import annotations

import shutil
import threading
from datetime import UTC, datetime, timedelta

import pytest

from headgate.capture.postgres.trigger import TriggerMethod
from headgate.delta.changes import POSITION
from headgate.errors import DefiniteError, HeadgateError
from tests.contract.books import ACCOUNTS, EACH, WINDOW, Books, total
from tests.postgres.replaying import events_of
from tests.waiting import PATIENCE


def test_transactions_come_whole_in_commit_order_with_position_and_time(books: Books) -> None:
    began_at = datetime.now(UTC)
    loaded = books.source.log.end
    times = []
    for number in range(1, 6):
        books.move(number, number + 1, number)
        times.append(datetime.now(UTC))
    books.catch_up()
    found = books.source.log.transactions(loaded, books.source.log.end)
    assert [each.position for each in found] == sorted({each.position for each in found})
    assert [each.commit_at for each in found] == sorted(each.commit_at for each in found)
    if books.source.capabilities.transaction_boundaries:
        assert [each.rows for each in found] == [{"accounts": 2, "moves": 1}] * 5
    if books.source.capabilities.commit_times:
        before = [began_at, *times]
        # The source's clock is compared with ours as exactly as its answers are quick.
        close = timedelta(seconds=PATIENCE)
        for place, each in enumerate(found):
            assert before[place] - close <= each.commit_at <= times[place] + close
    assert books.captured() == books.kept()


def test_what_was_acknowledged_before_a_sample_is_in_once_it_is_captured(books: Books) -> None:
    for number in range(1, 8):
        books.move(number, number + 1, 3)
        before = datetime.now(UTC)
        sample = books.catch_up()
        assert sample.at >= before
        assert books.source.log.durable == books.source.log.end
        assert books.captured() == books.kept()


def test_an_idle_source_is_captured_without_new_transactions(books: Books) -> None:
    books.move(1, 2, 5)
    books.catch_up()
    end = books.source.log.end
    for _ in range(5):
        books.catch_up()
    assert books.source.log.end == end


def test_a_window_that_is_over_tells_so_and_loses_nothing(books: Books) -> None:
    books.move(1, 2, 5)
    sample = books.source.sample()
    books.source.capture(sample, timedelta(0))
    assert books.source.capture(sample, WINDOW)
    assert books.captured() == books.kept()


@pytest.mark.parametrize("books", ["memory", "log", "trigger", "timestamp"], indirect=True)
def test_no_cut_splits_a_transaction_over_tables(books: Books) -> None:
    """A file is a transaction, and has rows of one table."""
    cuts = [books.source.log.durable]
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            books.catch_up()
            cuts.append(books.source.log.durable)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(40):
        books.move(number % 9 + 1, number % 9 + 2, number)
    ended.set()
    watcher.join()
    books.catch_up()
    steps = books.steps()
    assert len(steps) > 1
    positions = [each.position for each in books.source.log.transactions(0, books.source.log.end)]
    assert {position for position in cuts if position} <= set(positions)
    noted = 0
    for state in steps:
        # What an account has more or less is in the moves of the same cut.
        assert total(state) == ACCOUNTS * EACH
        assert len(state["moves"]) >= noted
        noted = len(state["moves"])
        if noted:
            balances = [EACH] * ACCOUNTS
            for number in range(noted):
                balances[number % 9] -= number
                balances[number % 9 + 1] += number
            assert [state["accounts"][account] for account in range(1, ACCOUNTS + 1)] == balances
    assert books.captured() == books.kept()


def test_capture_goes_on_where_it_ended(books: Books) -> None:
    for number in range(1, 5):
        books.move(number, number + 1, number)
    books.catch_up()
    for number in range(1, 4):
        # Some of it is captured before the end, some is not.
        books.move(number, number + 1, 1)
        books.close()
        if books.kind != "memory":
            books.move(number + 1, number, 2)
        books.reopen()
        books.move(5, 6, 1)
    books.catch_up()
    assert books.captured() == books.kept()
    moves = [event["id"] for event in events_of(books.source.log, "moves")]
    if books.source.capabilities.transaction_boundaries:
        assert len(moves) == len(set(moves))
    positions = [int(str(event[POSITION])) for event in events_of(books.source.log, "accounts")]
    assert positions == sorted(positions)


def test_deletes_are_seen_where_that_is_declared(books: Books) -> None:
    books.move(1, 2, 5)
    books.move(2, 3, 5)
    books.catch_up()
    books.forget(1)
    books.move(3, 4, 5)
    books.catch_up()
    assert (1 in books.captured()["moves"]) == (not books.source.capabilities.deletes)
    if books.source.capabilities.deletes:
        assert books.captured() == books.kept()


def test_every_version_is_seen_where_that_is_declared(books: Books) -> None:
    for amount in (1, 2, 3):
        books.move(1, 2, amount)
    books.catch_up()
    balances = [event["balance"] for event in events_of(books.source.log, "accounts") if event["id"] == 1]
    assert balances[-1] == EACH - 6
    if books.source.capabilities.intermediate_versions:
        assert balances == [EACH, EACH - 1, EACH - 3, EACH - 6]


@pytest.mark.parametrize("books", ["log", "trigger"], indirect=True)
def test_a_source_that_is_ahead_of_what_is_here_is_an_error_and_a_new_snapshot_the_remedy(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other kinds take nothing from the source, so there is nothing that it could have let go of."""
    monkeypatch.setattr("headgate.capture.postgres.log_reader._TELL_SECONDS", 0.0)
    monkeypatch.setitem(TriggerMethod.__init__.__kwdefaults__, "trim_every", timedelta(0))
    books.move(1, 2, 5)
    books.catch_up()
    books.close()
    copied = books.folder.with_name("copy")
    shutil.copytree(books.folder, copied)
    books.reopen()
    books.move(2, 3, 5)
    books.catch_up()
    # The source lets go of it.
    books.move(3, 4, 5)
    books.catch_up()
    books.close()
    shutil.rmtree(books.folder)
    copied.rename(books.folder)
    books.reopen()
    with pytest.raises(DefiniteError, match="refresh") as lost:
        books.catch_up()
    assert isinstance(lost.value, HeadgateError) and "refresh" in (lost.value.hint or "")
    before = books.source.log.end
    books.source.resnapshot()
    books.move(4, 5, 1)
    books.catch_up()
    assert books.captured() == books.kept()
    assert books.source.log.trimmed < before < books.source.log.end


def test_a_source_without_trouble_has_none_and_can_be_read_afresh(books: Books) -> None:
    books.move(1, 2, 5)
    assert dict(books.source.problems) == {} and books.source.unopened is None
    books.source.resnapshot()
    books.move(2, 3, 5)
    books.catch_up()
    assert books.captured() == books.kept()
    assert set(books.source.tables) >= {"accounts", "moves"}


def test_every_source_tells_how_it_does(books: Books) -> None:
    books.move(1, 2, 5)
    sample = books.catch_up()
    status = books.source.status
    assert status.captured.position >= sample.position
    assert status.log_bytes == books.source.log.held_bytes > 0
    assert dict(status.problems) == {} and status.trouble is None and status.alarms == () and status.waiting == 0
    assert (status.gear is not None) == (books.kind != "memory")
    assert (status.retained_wal is not None) == (books.kind == "log")
