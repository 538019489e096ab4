"""First loads of large tables range by range: whatever is read, killed, changed or renamed, each key has the row of the latest file."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.capture.files import chunks, copying, distribution, taken
from headgate.capture.files.chunks import FIXED_BYTES, choose_chunk
from headgate.capture.files.layout import FileLayout
from headgate.capture.files.listing import list_files
from headgate.capture.files.part import FilePart, PartOutcome
from headgate.capture.source import DistributingSource
from headgate.capture.writing import TransactionWriter
from headgate.errors import TransientError
from headgate.ranges.key_set import ALL, KeySet, above, below
from headgate.ranges.range_map import RangeMap
from tests.files.conftest import Open
from tests.files.landing import Landing
from tests.seed import SEED

RANGES = {"key": ["id"], "ranges": {"column": "id", "count": 4}, "beyond": 10, "multiline": False}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some lines are cut, as large ones are."""
    monkeypatch.setattr(distribution, "choose_chunk", lambda copied, distributed: 64)
    monkeypatch.setattr(distribution, "_LEAST_PART_BYTES", 16)


def never() -> bool:
    return False


def read(shop: Landing, keys: KeySet = ALL) -> list[dict[str, Any]]:
    with shop.source.read_ranges("orders", "id", never) as reading:
        found = [row for batch in reading.read(keys) for row in batch.to_pylist()]
        reading.verify()
    return found


def load(shop: Landing) -> None:
    assert shop.source.bounds("orders", "id", 4) is not None
    shop.source.distribute("orders", never)


def amounts(shop: Landing) -> dict[int, int]:
    """What the table holds: the load's rows, then what the log has behind it."""
    found = {row["id"]: row["amount"] for row in read(shop)}
    return found | shop.amounts()


def fill(shop: Landing, numbers: range = range(6)) -> dict[int, int]:
    """Files with rows of the same keys; what the latest of them say."""
    expected: dict[int, int] = {}
    for number in numbers:
        rows = {key: number * 100 + key for key in range(number, 40, 1 + number)}
        shop.put(f"{number}.csv", *(f"{key},é{key},{value}" for key, value in rows.items()), at=1000.0 + number)
        expected |= rows
    return expected


def prepared(landing: Open, **more: Any) -> tuple[Landing, dict[int, int]]:
    """Files that are there before the source is opened."""
    first = landing(columns={"id": "bigint", "name": "string", "amount": "bigint"})
    first.source.close()
    expected = fill(first)
    log = first.home / "log"
    log.rename(first.home / "unused")
    return landing(**RANGES, **more), expected


def test_every_key_has_the_row_of_the_latest_file_whatever_the_range(landing: Open) -> None:
    shop, expected = prepared(landing)
    assert isinstance(shop.source, DistributingSource)
    assert set(shop.source.first_loads) == {"orders"} and shop.source.status.unloaded == ("orders",)
    with pytest.raises(TransientError, match="not distributed yet"):
        read(shop)
    load(shop)
    bounds = shop.source.bounds("orders", "id", 4)
    assert bounds is not None and len(bounds) == 3
    ranges = RangeMap("integer", bounds)
    apart = [read(shop, ranges.keys_of([number])) for number in range(4)]
    assert all(apart) and {row["id"]: row["amount"] for found in apart for row in found} == expected
    assert sum(map(len, apart)) == len(expected), "no key is in two ranges"
    # Ranges that were split, or made one, meanwhile.
    assert {row["id"] for row in read(shop, above(5).intersection(below(17)))} == set(range(6, 17)) & set(expected)
    assert {row["id"]: row["amount"] for row in read(shop)} == expected
    (first, *_) = files = sorted(shop.events("files"), key=lambda row: str(row["path"]))
    assert len(files) == 6 and first["rows"] == 40 and first["problem"] is None
    assert shop.events("orders") == [], "no row is in the log"
    shop.put("later.csv", "3,three,7", at=500.0)
    assert amounts(shop) == expected | {3: 7}, "a file that comes later is later"
    shop.source.loaded("orders")
    assert not shop.source.first_loads and not list((shop.home / "log/loads").iterdir())
    shop.reopen()
    assert not shop.source.first_loads and shop.amounts() == {3: 7}, "no file is taken again"


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.with_suffix(".csv").write_text("id,amount\n" + "".join(f"{row['id']},{row['amount']}\n" for row in rows))


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, rows)))


def write_packed(path: Path, rows: list[dict[str, Any]]) -> None:
    text = "".join(f"{row['id']};{row['amount']}\n" for row in rows)
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(text.encode()))


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path.with_suffix(".parquet"), row_group_size=7)


WRITERS: dict[str, tuple[Callable[[Path, list[dict[str, Any]]], None], dict[str, Any]]] = {
    "csv": (write_csv, {"format": "csv", "multiline": False}),
    "lines": (write_json, {"format": "json"}),
    "packed": (write_packed, {"format": "csv", "header": False, "delimiter": ";"}),
    "parquet": (write_parquet, {"format": "parquet"}),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("text_keys", [False, True])
def test_files_of_every_kind_are_distributed_whole(tmp_path: Path, kind: str, text_keys: bool) -> None:
    write, settings = WRITERS[kind]
    choice = random.Random(f"{SEED} {kind}")
    (tmp_path / "in").mkdir()
    expected: dict[Any, int] = {}
    for number in range(4):
        keys = [choice.randint(0, 60) for _ in range(choice.randint(0, 50))]
        rows = [
            {"id": f"k{key}ü" if text_keys else key, "amount": number * 1000 + place} for place, key in enumerate(keys)
        ]
        if rows:
            write(tmp_path / "in" / str(number), rows)
        expected |= {row["id"]: row["amount"] for row in rows}
    for path in (tmp_path / "in").iterdir():
        os.utime(path, (1000 + int(path.name[0]), 1000 + int(path.name[0])))
    columns = {"id": "string" if text_keys else "bigint", "amount": "bigint"}
    shop = Landing(tmp_path, columns=columns, key=["id"], ranges={"column": "id", "count": 5}, beyond=10, **settings)
    try:
        load(shop)
        assert {row["id"]: row["amount"] for row in read(shop)} == expected
    finally:
        shop.source.close()


class Killed(BaseException):
    pass


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, count: int, *, after: bool) -> None:
    done, step = [0], getattr(owner, name)

    def killing(*parts: object, **named: object) -> object:
        done[0] += 1
        if done[0] == count and not after:
            raise Killed
        found = step(*parts, **named)
        if done[0] == count:
            raise Killed
        return found

    monkeypatch.setattr(owner, name, killing)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["save", "read"])
def test_what_was_distributed_before_a_crash_is_not_read_again(
    landing: Open, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    shop, expected = prepared(landing)
    pieces: list[tuple[str, int, int | None]] = []
    again = 0
    while again < 50:
        count = 2 + again % 4
        with monkeypatch.context() as patch:
            method = shop.source._method
            assert method is not None
            run = method.run_parts
            noted: list[FilePart] = []

            def note(parts: Any, folder: str, run: Any = run, noted: Any = noted) -> list[PartOutcome]:
                found: list[PartOutcome] = run(parts, folder)
                noted += parts
                return found

            method.run_parts = note
            if step == "save":
                kill_at(patch, taken.TakenFiles, "save", count, after=after)
            else:
                kill_at(patch, method, "run_parts", count, after=after)
            try:
                load(shop)
                break
            except Killed:
                again += 1
        (loaded,) = [state.load for state in shop.source._taken.tables.values()]
        assert loaded is not None
        pieces += [(part.path, part.first, part.end) for part in noted]
        shop.source.log.close()
        shop.reopen()
    assert again > 2
    load(shop)
    assert {row["id"]: row["amount"] for row in read(shop)} == expected
    assert len(pieces) - len(set(pieces)) <= 4 * again, "at most the chunk that was killed is read again"
    registered = [row["path"] for row in shop.events("files")]
    assert sorted(registered) == sorted(str(path) for path in shop.folder.iterdir())
    assert sum(int(str(row["rows"])) for row in shop.events("files")) == sum(
        len(range(number, 40, 1 + number)) for number in range(6)
    )


def test_that_all_is_distributed_is_written_once(landing: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, expected = prepared(landing, bad_rows="quarantine")
    shop.source.close()
    (shop.home / "log").rename(shop.home / "unused 2")
    shop.put("bad.csv", "x,one,1", "41,one,1", at=900.0)
    shop.open()
    for number in range(3):
        with monkeypatch.context() as patch:
            # Before the transaction is in the log, and after that.
            kill_at(patch, TransactionWriter, "commit", 1, after=number > 0)
            try:
                load(shop)
            except BaseException as error:
                assert not isinstance(error, AssertionError)
        shop.source.close()
        shop.open()
    load(shop)
    assert {row["id"]: row["amount"] for row in read(shop)} == expected | {41: 1}
    assert [(row["row"], row["column"]) for row in shop.events("bad_rows")] == [(2, "id")]
    # As after a restore: backups have no buckets.
    shop.source.close()
    shutil.rmtree(shop.home / "log/loads")
    shop.open()
    with pytest.raises(TransientError, match="not distributed yet"):
        read(shop)
    load(shop)
    assert {row["id"]: row["amount"] for row in read(shop)} == expected | {41: 1}
    assert [(row["row"], row["column"]) for row in shop.events("bad_rows")] == [(2, "id")]


def test_files_that_change_come_or_are_renamed_during_the_load(landing: Open) -> None:
    shop, _ = prepared(landing)
    method = shop.source._method
    assert method is not None
    run, steps = method.run_parts, iter(range(100))

    def meanwhile(parts: Any, folder: str) -> list[PartOutcome]:
        match next(steps):
            case 0:
                (shop.folder / "0.csv").rename(shop.folder / "moved.csv")
                (shop.folder / "1.csv").unlink()
            case 1:
                shop.put("2.csv", "2,two,-2", "1000,new,1")
                shop.put("other.csv", "3,three,-3")
        return run(parts, folder)

    method.run_parts = meanwhile
    load(shop)
    assert next(steps) > 3
    kept: dict[int, int] = {}
    for number in (0, 3, 4, 5):
        kept |= {key: number * 100 + key for key in range(number, 40, 1 + number)}
    assert {row["id"]: row["amount"] for row in read(shop)} == kept, "of a changed file, what it was never counts"
    assert amounts(shop) == kept | {2: -2, 1000: 1, 3: -3}
    shop.put("1.csv", "1,one,-1")
    assert amounts(shop) == kept | {2: -2, 1000: 1, 3: -3, 1: -1}, "a file that comes back is new"
    assert len([row for row in shop.events("files") if row["path"] == str(shop.folder / "moved.csv")]) == 0


def test_a_broken_file_stops_the_load_until_it_is_corrected(landing: Open) -> None:
    shop, expected = prepared(landing)
    shop.source.close()
    (shop.home / "log").rename(shop.home / "unused 2")
    path = shop.put("broken.csv", "50,one,many", at=5000.0)
    shop.open()
    for _ in range(2):
        with pytest.raises(TransientError, match=r"broken\.csv: row 2: amount: 'many' is not bigint"):
            load(shop)
    (alarm,) = shop.source.status.alarms
    assert str(path) in alarm
    assert dict(shop.source.problems) == {}, "it is no reason to stop what comes through the log"
    (told,) = [row for row in shop.events("files") if row["problem"]]
    assert told["path"] == str(path)
    shop.put("broken.csv", "50,one,5")
    load(shop)
    assert shop.source.status.alarms == ()
    assert amounts(shop) == expected | {50: 5}


def test_a_table_that_is_not_loaded_by_range_is_taken_through_the_log(landing: Open) -> None:
    shop, expected = prepared(landing)
    shop.source.load(["orders"], never)
    assert not shop.source.first_loads
    assert shop.amounts() == expected
    shop.reopen()
    assert shop.amounts() == expected and len(shop.events("files")) == 6


def test_few_bytes_are_no_load(landing: Open) -> None:
    shop, expected = prepared(landing, bad_rows="fail")
    shop.source.close()
    (shop.home / "log").rename(shop.home / "unused 2")
    shop.beyond = 1 << 20
    shop.open()
    assert not shop.source.first_loads and shop.amounts() == expected


def test_no_more_bytes_a_second_are_copied_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    class Time:
        monotonic = staticmethod(lambda: now[0])

        @staticmethod
        def sleep(seconds: float) -> None:
            now[0] += seconds

    monkeypatch.setattr(copying, "time", Time)
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n' * 1000)
    (file,) = list_files([str(path)]).values()
    copier = copying.Copier(tmp_path, 1000, never)
    piece = copier.piece(0, str(path), file, FileLayout("json"), 0, 4000)
    assert 4000 <= piece.end < 4020 and now[0] == pytest.approx(100 + piece.end / 1000)
    now[0] += 60
    rest = copier.piece(0, str(path), file, FileLayout("json"), piece.end, 1 << 20)
    assert rest.is_last and now[0] == pytest.approx(170), "what was not read before is not read faster now"
    assert rest.copy.read_bytes() == path.read_bytes()


def test_a_chunk_is_the_smallest_whose_copy_outlasts_its_distribution() -> None:
    second = 1 << 20
    copied = [(4 * second, 4.0)]
    # Half a second to begin with, and half as long as the copy: one second of bytes.
    taking = [(4 * second, 2.5), (8 * second, 4.5)]
    assert choose_chunk(copied, taking) == pytest.approx(second, rel=0.01)
    assert choose_chunk([], []) == chunks.FIRST_BYTES
    assert choose_chunk(copied, [(4 * second, 8.0), (8 * second, 15.0)]) == FIXED_BYTES, "the copy never outlasts it"
    assert choose_chunk([(4 * second, 0.01)], taking) == FIXED_BYTES
    assert choose_chunk(copied, [(4 * second, 0.01)]) == chunks.LEAST_BYTES
