"""Rows of CSV, JSON lines and Parquet files, whole or in parts."""

from __future__ import annotations

import bz2
import gzip
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.capture.files.inference import infer
from headgate.capture.files.layout import FileLayout, Unreadable
from headgate.capture.files.rows import BadRow, FileShape, read_rows
from headgate.capture.files.texts import parsed
from tests.seed import SEED

TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
    ]
)


def read(
    layout: FileLayout, path: Path, schema: pa.Schema = TYPES, **part: Any
) -> tuple[list[dict[str, Any]], list[BadRow]]:
    header = layout.header_of(str(path))
    names = {name: name for name in schema.names if header is None or name in header}
    shape = FileShape(schema, (), names)
    rows: list[dict[str, Any]] = []
    bad: list[BadRow] = []
    for found in read_rows(layout, shape, str(path), part.get("first", 0), part.get("end")):
        rows += pa.Table.from_arrays(found.columns, schema=schema).to_pylist()
        bad += found.bad
    return rows, bad


ROW = {
    "id": 1,
    "name": 'Zürich; "x"\nB',
    "price": Decimal("-1.50"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 10, 30, tzinfo=UTC),
    "ok": True,
}
CSV = 'id;name;price;day;at;ok\n 1 ;"Zürich; ""x""\nB";-1.5;2024-02-29;2024-02-29T12:30:00+02:00;true\n;;;;;\n'
LINES = (
    '{"id": 1, "name": "Zürich; \\"x\\"\\nB", "price": -1.5, "day": "2024-02-29", "at": "2024-02-29 10:30:00", "ok": true, "more": [1]}\n'
    "\n{}\n"
)
NOTHING = dict.fromkeys(TYPES.names)


@pytest.mark.parametrize("encoding", ["utf-8", "iso8859-1", "utf-16"])
@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
def test_a_csv_file_in_any_encoding_and_compression(tmp_path: Path, encoding: str, ending: str) -> None:
    path = tmp_path / f"a.csv{ending}"
    content = CSV.encode(encoding)
    path.write_bytes({"": content, ".gz": gzip.compress(content), ".bz2": bz2.compress(content)}[ending])
    rows, bad = read(FileLayout("csv", delimiter=";", encoding=encoding), path)
    assert rows == [ROW, NOTHING] and bad == []


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(LINES)
    rows, bad = read(FileLayout("json"), path)
    assert rows == [ROW, NOTHING] and bad == []


def test_parquet_with_other_widths_and_units(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1], pa.int16()),
            "name": pa.array([ROW["name"]]).dictionary_encode(),
            "price": pa.array([Decimal("-1.5")], pa.decimal128(5, 1)),
            "day": [ROW["day"]],
            "at": pa.array([ROW["at"]], pa.timestamp("ms", tz="UTC")),
            "ok": [True],
            "more": [1],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(FileLayout("parquet"), tmp_path / "a.parquet") == ([ROW], [])


def test_quoted_texts_are_never_null_and_a_bom_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffid,name\n1,""\n2,\n3,NA\n'.encode())
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    rows, _ = read(FileLayout("csv", null=("", "NA")), path, schema)
    assert [row["name"] for row in rows] == ["", None, None]


def test_without_a_header_columns_are_taken_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1\tx\n2\ty\n")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert read(FileLayout("csv", header=False, delimiter="\t"), path, schema)[0] == [
        {"id": 1, "name": "x"},
        {"id": 2, "name": "y"},
    ]


TEXTS = {
    pa.int64(): ({"1": 1, " -2 ": -2, "+3": 3, "007": 7}, ["x", "1.5", "0x10", "1e3", "", "9" * 30]),
    pa.int8(): ({"-128": -128}, ["128"]),
    pa.float64(): ({"1.5": 1.5, "+1e3": 1000.0, ".5": 0.5}, ["1,5", "x"]),
    pa.decimal128(5, 2): ({"1.5": Decimal("1.50"), "1e2": Decimal(100)}, ["1.555", "1000", "x"]),
    pa.bool_(): ({"true": True, "False": False, "0": False}, ["yes", "2"]),
    pa.date32(): ({"2024-02-29": date(2024, 2, 29)}, ["2023-02-29", "29.2.2024"]),
    pa.timestamp("us", tz="UTC"): (
        {
            "2024-01-02": datetime(2024, 1, 2, tzinfo=UTC),
            "2024-01-02 03:04:05": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
            "2024-01-02T03:04:05Z": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
            "2024-01-02T03:04:05-01:00": datetime(2024, 1, 2, 4, 4, 5, tzinfo=UTC),
        },
        ["now", "2024-13-01"],
    ),
}


@pytest.mark.parametrize("wanted", TEXTS, ids=str)
def test_texts_are_values_of_a_type_or_none(wanted: pa.DataType) -> None:
    good, bad = TEXTS[wanted]
    texts = [*good, *bad, None] * 5
    random.Random(SEED).shuffle(texts)
    values, wrong = parsed(pa.array(texts), wanted)
    assert wrong is not None
    assert wrong.to_pylist() == [text in bad if text is not None else False for text in texts]
    assert values.to_pylist() == [good.get(str(text)) if text is not None else None for text in texts]
    assert parsed(pa.array([*good]), wanted)[1] is None


@pytest.mark.parametrize("turn", range(4))
def test_parts_of_a_file_are_the_whole_of_it(tmp_path: Path, turn: int) -> None:
    chance = random.Random(f"{SEED}{turn}")
    values = [{"id": number, "name": "é" * chance.randint(0, 30)} for number in range(chance.randint(0, 200))]
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    csv, lines, parquet = tmp_path / "a.csv", tmp_path / "a.jsonl", tmp_path / "a.parquet"
    csv.write_text("id,name\n" + "".join(f'{row["id"]},"{row["name"]}"\n' for row in values))
    lines.write_text("\n".join(f'{{"id": {row["id"]}, "name": "{row["name"]}"}}' for row in values))
    pq.write_table(pa.Table.from_pylist(values, schema), parquet, row_group_size=7)
    for layout, path in (
        (FileLayout("csv", multiline=False), csv),
        (FileLayout("json"), lines),
        (FileLayout("parquet"), parquet),
    ):
        parts = layout.cut(str(path), path.stat().st_size, chance.choice([10, 37, 300, 100_000]))
        found: list[dict[str, Any]] = []
        numbers: list[int] = []
        for first, end, before in parts:
            names = {name: name for name in schema.names}
            for rows in read_rows(layout, FileShape(schema, (), names), str(path), first, end):
                found += pa.Table.from_arrays(rows.columns, schema=schema).to_pylist()
                numbers += [before + int(number) for number in rows.numbers]
                assert not rows.bad
        assert found == values
        assert numbers == sorted(set(numbers)), "rows are numbered in their order"


def test_broken_lines_of_json_are_found_among_many(tmp_path: Path) -> None:
    lines = [f'{{"id": {number}}}' for number in range(1000)]
    for number in (0, 500, 999):
        lines[number] = "{" if number else '{"id": "one"}'
    path = tmp_path / "a.json"
    path.write_text("\n".join(lines))
    rows, bad = read(FileLayout("json"), path, pa.schema([("id", pa.int64())]))
    assert [each.number for each in bad] == [1, 501, 1000]
    assert [row["id"] for row in rows] == [number for number in range(1000) if number not in (0, 500, 999)]


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00garbage", b""])
def test_what_cannot_be_decompressed_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(content)
    if content:
        with pytest.raises(Unreadable):
            read(FileLayout("csv"), path)


def test_types_are_what_all_values_of_a_sample_can_be(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c,d,e,f\n1,1.5,x,2024-01-01,01,\n2,2,,2024-01-02,2,\n")
    schema, names = infer(FileLayout("csv"), [str(tmp_path / "a.csv")])
    assert [str(field.type) for field in schema] == ["int64", "double", "string", "date32[day]", "string", "string"]
    (tmp_path / "a.json").write_text('{"a b": 1, "n": null}\n{"a b": 2.5, "l": [1], "s": {"x": "y"}}\n')
    schema, names = infer(FileLayout("json"), [str(tmp_path / "a.json")])
    assert names["a_b"] == "a b"
    assert {field.name: str(field.type) for field in schema} == {
        "a_b": "double",
        "n": "string",
        "l": "list<item: int64>",
        "s": "struct<x: string>",
    }
