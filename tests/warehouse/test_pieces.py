"""A table's changes job by job, from memory and from files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from headgate.delta.changes import JobId
from headgate.errors import CorruptWarehouse
from headgate.warehouse.changes import ChangeSet
from headgate.warehouse.pieces import job_pieces
from headgate.warehouse.spec import TableSpec

SPEC = TableSpec("t", StructType().add("k", LongType()).add("v", StringType()), ("k",))


def changes(*rows: tuple[int, str, int, int]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SPEC.change_arrow_schema, strict=True)],
        schema=SPEC.change_arrow_schema,
    )


def in_files(folder: Path, after: int, upto: int, *tables: pa.Table) -> ChangeSet:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=1_000)
    return ChangeSet.of_files(SPEC, str(folder), JobId(after), JobId(upto))


def found(parts: list[ChangeSet], known_from: int = 0) -> list[tuple[int, list[tuple[object, ...]], bool]]:
    return [
        (job, [tuple(row.values()) for row in rows.to_pylist()], is_last)
        for job, rows, is_last in job_pieces(parts, ["k", "v"], JobId(known_from))
    ]


def test_jobs_come_in_order_from_files_and_memory(tmp_path: Path) -> None:
    loaded = in_files(tmp_path / "a", 0, 4, changes((1, "a", 3, 1), (2, "b", 1, 1)), changes((3, "c", 1, 1)))
    later = ChangeSet.of_table(SPEC, changes((1, "a", 5, -1), (1, "d", 5, 1), (9, "z", 7, 1)), JobId(4), JobId(7))
    assert found([loaded, later]) == [
        (1, [(2, "b", 1)], False),
        (1, [(3, "c", 1)], True),
        (3, [(1, "a", 1)], True),
        (5, [(1, "a", -1), (1, "d", 1)], True),
        (7, [(9, "z", 1)], True),
    ]
    # A slice of files tells only by its range what counts.
    assert [job for job, _, _ in found([loaded.slice(JobId(1), JobId(4)), later])] == [3, 5, 7]
    assert found([]) == []


def test_jobs_before_the_first_known_one_count_there(tmp_path: Path) -> None:
    part = ChangeSet.of_table(SPEC, changes((1, "a", 2, 1), (2, "b", 3, 1), (3, "c", 6, 1)), JobId(0), JobId(6))
    assert found([part], known_from=4) == [(4, [(1, "a", 1), (2, "b", 1)], True), (6, [(3, "c", 1)], True)]
    assert found([part], known_from=3) == [(3, [(1, "a", 1), (2, "b", 1)], True), (6, [(3, "c", 1)], True)]


def test_no_piece_is_large(tmp_path: Path) -> None:
    wide = [(number, "x" * 1_000, 1, 1) for number in range(5_000)]
    part = ChangeSet.of_table(SPEC, changes(*wide), JobId(0), JobId(1))
    pieces = list(job_pieces([part], ["k", "v"], JobId(0)))
    assert len(pieces) > 4 and all(rows.nbytes < 2 << 20 for _, rows, _ in pieces)
    assert [is_last for _, _, is_last in pieces] == [*[False] * (len(pieces) - 1), True]
    assert sum(rows.num_rows for _, rows, _ in pieces) == 5_000


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    part = in_files(tmp_path / "a", 0, 1, changes(*((number, "v" * 50, 1, 1) for number in range(3_000))))
    file = tmp_path / "a" / "0.parquet"
    content = bytearray(file.read_bytes())
    content[200:1_200] = bytes(1_000)
    file.write_bytes(content)
    with pytest.raises(CorruptWarehouse, match=r"0\.parquet"):
        list(job_pieces([part], ["k", "v"], JobId(0)))
