"""Events of one snapshot are known to be distinct when the files that executors wrote say so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.capture.events import DISTINCT, row_schema
from headgate.capture.events_file import EventsFileWriter
from headgate.capture.frames import SideFile
from headgate.capture.locallog import LocalLog
from headgate.delta.events import UPSERT
from headgate.runtime.stages.event_files import EventFiles

SCHEMA = row_schema(pa.schema([("id", pa.int64()), ("part", pa.int64())]))
AT = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    made = LocalLog(tmp_path)
    yield made
    made.close()


def events(first: int, noted: str | None) -> pa.Table:
    count = 10
    none = pa.array([[]] * count, SCHEMA.field("__unchanged").type)
    numbers = pa.array(np.arange(first, first + count))
    ops = pa.array(np.full(count, UPSERT, dtype=np.int8))
    batch = pa.RecordBatch.from_arrays([numbers, numbers, ops, none, numbers], schema=SCHEMA)
    batch = batch.replace_schema_metadata(None if noted is None else {DISTINCT: noted})
    # As a task does it: numbered anew.
    place = batch.schema.get_field_index("__sequence")
    return pa.Table.from_batches([batch.set_column(place, batch.schema.field(place), numbers)])


def commit(log: LocalLog, position: int, *noted: str | None) -> None:
    with log.begin(position, AT) as writer:
        for number, each in enumerate(noted):
            file = EventsFileWriter(str(log.files_folder / f"{position}-{number}.parquet"), position, 0)
            file.add(events(number * 100, each))
            file.add(events(number * 100 + 10, each))
            made = file.finish()
            assert made is not None
            writer.add_file("t", SideFile(made.name, made.rows, made.bytes))
        writer.commit()
    log.sync()


def test_one_snapshot_whose_files_name_columns_of_the_key(log: LocalLog) -> None:
    commit(log, 1, '["id", "part"]', '["id", "part"]')
    found = EventFiles(log, "t", 0, 1)
    assert found.are_distinct(("id", "part", "more"))
    assert not found.are_distinct(("id",)), "the key alone does not tell them apart"


def test_files_that_say_nothing_and_several_transactions_may_repeat_a_key(log: LocalLog) -> None:
    commit(log, 1, '["id"]', None)
    assert not EventFiles(log, "t", 0, 1).are_distinct(("id",))
    commit(log, 2, '["id"]')
    commit(log, 3, '["id"]')
    assert EventFiles(log, "t", 1, 2).are_distinct(("id",))
    assert not EventFiles(log, "t", 1, 3).are_distinct(("id",))
