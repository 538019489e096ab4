"""Files that are not as they should be: each has a clear answer."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.capture.events_file import EventsFileWriter
from headgate.capture.files import method
from headgate.capture.files.listing import FolderUnreachable
from headgate.capture.files.part import FilePart, PartOutcome
from headgate.errors import ConfigError, TransientError
from tests.files.conftest import Open
from tests.waiting import eventually


def test_a_file_counts_once_it_has_not_changed_for_a_while(landing: Open) -> None:
    shop = landing()
    shop.settings["settle"] = "1h"
    shop.reopen()
    shop.put("new.csv", "1,one,1")
    shop.put("old.csv", "2,two,2", at=time.time() - 7200)
    shop.catch_up()
    assert [row["id"] for row in shop.events("orders")] == [2]


@pytest.mark.parametrize(
    "name", ["_temporary/a.csv", ".a.csv", "a.csv.tmp", "a.csv.part", "_a.csv", "readme.md", "a.json"]
)
def test_what_is_being_written_or_of_another_kind_is_left_alone(landing: Open, name: str) -> None:
    shop = landing()
    shop.put(name, "1,one,1")
    shop.catch_up()
    assert shop.events("files") == []


def test_a_file_that_changes_while_it_is_read_is_taken_when_it_is_whole(
    landing: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = landing()
    path = shop.put("a.csv", "1,one,1")
    changed = threading.Event()
    read = method.read_part

    def write_more(part: FilePart, folder: str | None) -> object:
        found = read(part, folder)
        if not changed.is_set():
            changed.set()
            with path.open("a") as file:
                file.write("2,two,2\n")
            # Looked at again by the reader, as if the rows had come between.
            return read(part, folder)
        return found

    monkeypatch.setattr(method, "read_part", write_more)
    shop.catch_up()
    eventually(lambda: len(shop.events("orders")) == 2 or not shop.catch_up())
    assert [row["id"] for row in shop.events("orders")] == [1, 2]
    assert dict(shop.source.problems) == {}


def test_a_file_that_is_gone_before_it_is_read_never_was(landing: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = landing()
    path = shop.put("a.csv", "1,one,1")
    read = method.read_part

    def remove(part: FilePart, folder: str | None) -> object:
        path.unlink(missing_ok=True)
        return read(part, folder)

    monkeypatch.setattr(method, "read_part", remove)
    shop.catch_up()
    assert shop.events("files") == [] and dict(shop.source.problems) == {}


def test_a_folder_that_is_away_is_told_and_nothing_is_lost(landing: Open) -> None:
    shop = landing()
    shop.put("a.csv", "1,one,1")
    shop.catch_up()
    shop.folder.rename(shop.home / "unmounted")
    with pytest.raises(FolderUnreachable, match="no such folder"):
        shop.source.sample()
    (shop.home / "unmounted").rename(shop.folder)
    shop.put("b.csv", "2,two,2")
    shop.catch_up()
    assert [row["id"] for row in shop.events("orders")] == [1, 2]


BROKEN = {
    "number": (["1,one,x"], "row 2: amount: 'x' is not bigint"),
    "too few values": (["1,one,1", "2,two"], "row 3: it has 2 values, not 3"),
    "too many values": (["1,one,1,2"], "row 2: it has 4 values, not 3"),
    "too large": (["1,one,99999999999999999999"], "is not bigint"),
    "no key": ([",one,1"], "row 2: id: it is NULL or missing"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_row_stops_the_table_and_a_corrected_file_goes_on(landing: Open, kind: str) -> None:
    rows, what = BROKEN[kind]
    shop = landing(key=["id"])
    shop.put("a.csv", "7,seven,7")
    shop.catch_up()
    path = shop.put("b.csv", *rows)
    shop.put("c.csv", "8,eight,8")
    shop.catch_up()
    problem = shop.source.problems["orders"]
    assert str(path) in problem.what and what in problem.what
    assert "correct or remove the file" in (problem.hint or "")
    assert shop.source.status.problems == {"orders": problem}
    assert set(shop.amounts()) == {7}, "nothing of it, and nothing behind it, is taken"
    (refused,) = [row for row in shop.events("files") if row["problem"] is not None]
    assert refused["path"] == str(path) and what in str(refused["problem"])
    shop.put("b.csv", "9,nine,9")
    shop.catch_up()
    assert dict(shop.source.problems) == {}
    assert set(shop.amounts()) == {7, 8, 9}


@pytest.mark.parametrize("rows", [['1,"one,1', "2,two,2"], ["1,one,1", '2,"two,2', "3,three,3"]])
def test_a_quotation_mark_that_is_never_closed_puts_no_rows_aside(landing: Open, rows: list[str]) -> None:
    shop = landing(key=["id"], bad_rows="quarantine")
    shop.put("a.csv", *rows)
    shop.catch_up()
    assert "a quotation mark is opened and never closed" in shop.source.problems["orders"].what


def test_a_table_that_is_stopped_keeps_nobody_from_the_others(landing: Open, tmp_path: Path) -> None:
    columns = {"id": "bigint", "name": "string", "amount": "bigint"}
    tables = {
        name: {"path": str(tmp_path / "in" / name), "format": "csv", "key": ["id"], "columns": columns}
        for name in ("orders", "prices")
    }
    for name in tables:
        (tmp_path / "in" / name).mkdir(parents=True)
    shop = landing(tables=tables)
    shop.put("orders/a.csv", "1,one,x")
    shop.put("prices/a.csv", "1,one,1")
    shop.catch_up()
    assert set(shop.source.problems) == {"orders"}
    assert set(shop.rows("prices")) == {1}


def test_broken_rows_can_be_put_aside(landing: Open) -> None:
    shop = landing(key=["id"], bad_rows="quarantine")
    path = shop.put("a.csv", "1,one,1", "2,two,x", "3", ",four,4", "5,five,5", "6,six,")
    with path.open("ab") as file:
        file.write(b"7,\xff\xfe,7\n8,eight,8\n")
    assert shop.amounts() == {1: 1, 5: 5, 6: None, 8: 8}
    bad = shop.events("bad_rows")
    assert [(row["row"], row["column"]) for row in bad] == [(3, "amount"), (4, None), (5, "id"), (8, "name")]
    assert {row["file"] for row in bad} == {str(path)} and {row["table"] for row in bad} == {"orders"}
    assert bad[0]["text"] == "2,two,x" and "'x' is not bigint" in str(bad[0]["reason"])
    (file_row,) = shop.events("files")
    assert (file_row["rows"], file_row["bad_rows"], file_row["problem"]) == (4, 4, None)


def test_a_file_with_another_schema_is_refused(landing: Open) -> None:
    shop = landing(key=["id"])
    shop.put("a.csv", "1,2", header="number,value")
    shop.catch_up()
    problem = shop.source.problems["orders"]
    assert "another schema: it has no column id" in problem.what and "number, value" in problem.what


def test_columns_are_read_from_files_and_new_ones_are_added(landing: Open, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,Unit Price,day,code\n1,1.5,2024-01-02,007\n")
    shop = landing(columns={}, key=["id"])
    schema = shop.source.tables["orders"].schema
    assert schema.simpleString() == "struct<id:bigint,Unit_Price:double,day:date,code:string>"
    assert shop.rows()[1]["code"] == "007"
    shop.put("b.csv", "2024-05-06,2,new", header="day,id,more")
    found = shop.rows()[2]
    assert (found["more"], found["Unit_Price"], str(found["day"])) == ("new", None, "2024-05-06")
    shop.reopen()
    assert shop.source.tables["orders"].schema.names == ["id", "Unit_Price", "day", "code", "more"]


def test_a_parquet_file_that_is_cut_short_or_of_another_type_is_refused(landing: Open) -> None:
    shop = landing(format="parquet", key=["id"])
    whole = shop.home / "whole.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": ["one"], "amount": [1]}), whole)
    (shop.folder / "a.parquet").write_bytes(whole.read_bytes()[:-20])
    shop.catch_up()
    assert "not a whole Parquet file" in shop.source.problems["orders"].what
    whole.replace(shop.folder / "a.parquet")
    assert shop.amounts() == {1: 1}
    pq.write_table(pa.table({"id": [2], "name": ["two"], "amount": ["many"]}), shop.home / "b")
    (shop.home / "b").replace(shop.folder / "b.parquet")
    shop.catch_up()
    assert "the column amount is string in the file and bigint in the table" in shop.source.problems["orders"].what


def test_an_empty_file_has_no_rows_and_is_no_snapshot(landing: Open) -> None:
    shop = landing(key=["id"])
    (shop.folder / "a.csv").touch()
    shop.put("b.csv")
    assert shop.amounts() == {} and dict(shop.source.problems) == {}
    assert len(shop.events("files")) == 2
    shop.reopen(mode="snapshot")
    shop.put("c.csv", "1,one,1")
    assert shop.amounts() == {1: 1}
    (shop.folder / "d.csv").touch()
    shop.catch_up()
    assert "it is empty" in shop.source.problems["orders"].what
    (shop.folder / "d.csv").unlink()
    shop.put("e.csv")
    assert shop.amounts() == {}, "a header alone is a snapshot without rows"


def test_what_is_missing_in_a_later_snapshot_is_deleted(landing: Open) -> None:
    shop = landing(key=["id"], mode="snapshot")
    shop.put("all.csv", "1,one,1", "2,two,2")
    assert shop.amounts() == {1: 1, 2: 2}
    shop.put("all.csv", "2,two,5", "3,three,3")
    assert shop.amounts() == {2: 5, 3: 3}
    (shop.folder / "all.csv").unlink()
    assert shop.amounts() == {2: 5, 3: 3}, "no file is not an empty one"


MISTAKES = {
    "no files and no columns": ({"columns": {}}, "no file to read them from"),
    "a key that is no column": ({"key": ["none"]}, "the key column none"),
    "no format": ({"columns": {}, "format": None}, "the format"),
    "no folder": ({"path": "/nowhere/at/all", "columns": {}}, "no such folder"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_table_that_cannot_be_opened_says_why(landing: Open, mistake: str) -> None:
    settings, what = MISTAKES[mistake]
    with pytest.raises((ConfigError, ValueError), match=what):
        landing(**settings)


def test_a_disk_that_is_full_is_no_reason_to_refuse_a_file(landing: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = landing(key=["id"])
    monkeypatch.setattr(method, "SMALL_BYTES", 0)
    shop.put("a.csv", "1,one,1")
    add, tries = EventsFileWriter.add, iter(range(10))

    def full(writer: EventsFileWriter, rows: pa.Table) -> None:
        if next(tries) < 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(writer, rows)

    monkeypatch.setattr(EventsFileWriter, "add", full)
    run = shop.source._method.run_parts  # type: ignore[union-attr]

    def as_spark(parts: Sequence[FilePart], folder: str) -> list[PartOutcome]:
        try:
            return run(parts, folder)
        except OSError as error:
            raise TransientError("Spark did not read the files to the end") from error

    shop.source._method.run_parts = as_spark  # type: ignore[union-attr]
    assert shop.amounts() == {1: 1}
    assert dict(shop.source.problems) == {}
