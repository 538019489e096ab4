"""Every file is taken exactly once: over restarts, renames, changes and losses."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from headgate.delta.changes import POSITION
from headgate.delta.events import UPSERT
from headgate.errors import DefiniteError, HistoryLost
from tests.files.conftest import Open
from tests.files.landing import Landing
from tests.seed import SEED


def taken(landing: Landing) -> list[str]:
    return [Path(str(row["path"])).name for row in landing.events("files") if row["problem"] is None]


def test_files_are_taken_in_their_order_and_the_latest_wins(landing: Open) -> None:
    now = time.time() - 100
    shop = landing(key=["id"])
    shop.put("b.csv", "1,one,10", "2,two,20", at=now)
    shop.put("a.csv", "1,one,11", at=now + 1)
    assert shop.amounts() == {1: 11, 2: 20}
    assert taken(shop) == ["b.csv", "a.csv"]
    shop.put("0.csv", "2,two,22", at=now - 1)
    assert shop.amounts() == {1: 11, 2: 22}, "what comes later is later"


def test_files_can_be_ordered_by_name(landing: Open) -> None:
    now = time.time() - 100
    shop = landing(key=["id"], order="name")
    # Both are there when the source looks.
    shop.source.close()
    shop.put("2.csv", "1,one,2", at=now)
    shop.put("1.csv", "1,one,1", at=now + 1)
    shop.open()
    assert shop.amounts() == {1: 2}


def test_within_a_file_the_last_row_of_a_key_wins(landing: Open) -> None:
    shop = landing(key=["id"])
    shop.put("a.csv", "1,one,1", "2,two,2", "1,one,3")
    assert shop.amounts() == {1: 3, 2: 2}


def test_nothing_is_taken_twice_over_restarts_and_renames(landing: Open) -> None:
    shop = landing()
    first = shop.put("a.csv", "1,one,1")
    shop.catch_up()
    first.rename(shop.folder / "renamed.csv")
    shop.catch_up()
    shop.reopen()
    shop.put("b.csv", "2,two,2")
    shop.catch_up()
    (shop.folder / "done").mkdir()
    (shop.folder / "b.csv").rename(shop.folder / "done" / "b.csv")
    (shop.folder / "renamed.csv").rename(shop.folder / "b.csv")
    shop.catch_up()
    shop.reopen()
    shop.catch_up()
    assert [row["id"] for row in shop.events("orders")] == [1, 2]
    assert len(taken(shop)) == 2


def test_a_log_that_is_rotated_is_a_rename_and_a_new_file(landing: Open) -> None:
    shop = landing()
    path = shop.put("app.csv", "1,one,1")
    shop.catch_up()
    path.rename(shop.folder / "app.1.csv")
    shop.put("app.csv", "2,two,2")
    shop.catch_up()
    assert [row["id"] for row in shop.events("orders")] == [1, 2]


def test_a_file_that_is_gone_and_comes_back_is_not_new(landing: Open, tmp_path: Path) -> None:
    shop = landing()
    path = shop.put("a.csv", "1,one,1")
    shop.catch_up()
    shutil.move(path, tmp_path / "elsewhere")
    shop.catch_up()
    shop.reopen()
    shutil.move(tmp_path / "elsewhere", path)
    shop.catch_up()
    assert len(shop.events("orders")) == 1


def test_a_file_that_is_gone_for_long_is_forgotten(landing: Open) -> None:
    shop = landing()
    shop.settings["remember"] = "0s"
    shop.reopen()
    shop.put("a.csv", "1,one,1").rename(shop.home / "gone")
    shop.put("b.csv", "2,two,2")
    shop.catch_up()
    (shop.folder / "b.csv").unlink()
    for _ in range(3):
        time.sleep(0.01)
        shop.catch_up()
    shop.put("c.csv", "3,three,3")
    shop.catch_up()
    assert "b.csv" not in (shop.source.log.folder / "cursor").read_text()


def test_a_changed_file_is_taken_again_where_there_is_a_key(landing: Open) -> None:
    shop = landing(key=["id"])
    shop.put("a.csv", "1,one,1", "2,two,2")
    shop.catch_up()
    shop.put("a.csv", "1,one,11", "3,three,3")
    assert shop.amounts() == {1: 11, 2: 2, 3: 3}


def test_a_changed_file_stops_a_table_without_a_key_until_it_is_back(landing: Open, tmp_path: Path) -> None:
    shop = landing()
    path = shop.put("a.csv", "1,one,1")
    shop.catch_up()
    shutil.copy2(path, tmp_path / "kept")
    shop.put("a.csv", "1,one,1", "2,two,2")
    shop.put("b.csv", "3,three,3")
    shop.catch_up()
    problem = shop.source.problems["orders"]
    assert "a.csv" in problem.what and "changed" in problem.what and "new file" in (problem.hint or "")
    assert problem.position <= shop.source.log.end, "a job comes to it"
    assert "3" not in str([row["id"] for row in shop.events("orders")])
    shutil.copy2(tmp_path / "kept", path)
    shop.catch_up()
    assert dict(shop.source.problems) == {}
    assert [row["id"] for row in shop.events("orders")] == [1, 3]


def test_lost_transactions_are_taken_again_from_the_files_that_are_there(landing: Open) -> None:
    shop = landing()
    for number in range(1, 4):
        shop.put(f"{number}.csv", f"{number},x,{number}")
        shop.catch_up()
    shop.source.close()
    (segment,) = sorted((shop.home / "log").glob("*.segment"))
    content = segment.read_bytes()
    segment.write_bytes(content[: len(content) * 2 // 3])
    shop.open()
    assert set(shop.source.problems) == {"orders", "files", "bad_rows"}
    lost = shop.source.log.loss
    assert lost is not None
    before = len(shop.source.log.transactions(0, lost.after))
    shop.source.resnapshot()
    shop.catch_up()
    assert dict(shop.source.problems) == {} and shop.source.log.loss is None
    found = [row["id"] for row in shop.events("orders") if int(str(row[POSITION])) > lost.after]
    assert sorted(found) == list(range(before + 1, 4))


def test_a_damaged_list_of_files_is_told_and_read_afresh(landing: Open) -> None:
    shop = landing(key=["id"])
    shop.put("a.csv", "1,one,1")
    shop.catch_up()
    shop.source.close()
    (shop.home / "log" / "cursor").write_bytes(b"{}\n00000000")
    shop.open()
    assert isinstance(shop.source.unopened, HistoryLost) and "refresh" in (shop.source.unopened.hint or "")
    with pytest.raises(HistoryLost):
        shop.source.sample()
    shop.source.resnapshot()
    shop.put("b.csv", "2,two,2")
    assert shop.amounts() == {1: 1, 2: 2}


def test_reading_again_finds_what_was_missed_and_needs_a_key(landing: Open) -> None:
    shop = landing(key=["id"])
    shop.put("a.csv", "1,one,1", "2,two,2")
    shop.catch_up()
    (shop.folder / "a.csv").unlink()
    shop.put("b.csv", "1,one,5")
    shop.source.resnapshot(["orders"])
    assert shop.amounts() == {1: 5}
    shop.reopen(key=[])
    with pytest.raises(DefiniteError, match="no key"):
        shop.source.resnapshot(["orders"])


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("mode", ["append", "snapshot"])
def test_random_files_are_what_a_plain_computation_makes_of_them(landing: Open, turn: int, mode: str) -> None:
    chance = random.Random(f"{SEED}{turn}{mode}")
    shop = landing(key=["id"], mode=mode)
    rows: dict[int, int] = {}
    for number in range(25):
        for _ in range(chance.randint(1, 3)):
            found = {chance.randint(1, 30): chance.randint(0, 1000) for _ in range(chance.randint(0, 12))}
            name = chance.choice([f"{number}-{chance.random()}.csv", "same.csv"])
            shop.put(name, *(f"{key},n,{amount}" for key, amount in found.items()))
            shop.catch_up() if chance.random() < 0.7 or name == "same.csv" else None
            rows = {**({} if mode == "snapshot" else rows), **found}
            # Files that are found together are told apart by their times.
            time.sleep(0.002)
        if chance.random() < 0.3:
            paths = sorted(shop.folder.glob("[0-9]*.csv"))
            if paths:
                shop.catch_up()
                moved = chance.choice(paths)
                moved.rename(moved.with_name(f"moved{chance.random()}.csv"))
        if chance.random() < 0.2:
            shop.reopen()
        if chance.random() < 0.2:
            assert shop.amounts() == rows
    assert shop.amounts() == rows
    positions = [int(str(row[POSITION])) for row in shop.events("files")]
    assert len(set(positions)) == len(positions)
    if mode == "append":
        assert {row["__op"] for row in shop.events("orders")} <= {UPSERT}


def test_a_hundred_small_files_are_one_look_and_one_wait_for_the_disk(
    landing: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = landing()
    synced = []
    sync = type(shop.source.log).sync
    monkeypatch.setattr(type(shop.source.log), "sync", lambda log, upto=None: (synced.append(1), sync(log, upto))[1])
    for number in range(100):
        path = shop.home / f"{number}.csv"
        path.write_text(f"id,name,amount\n{number},x,1\n")
    for number in range(100):
        (shop.home / f"{number}.csv").rename(shop.folder / f"{number}.csv")
    shop.catch_up()
    assert len(shop.events("orders")) == 100
    assert len(synced) < 20
