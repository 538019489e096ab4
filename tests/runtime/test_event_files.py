"""Events in the frames of a stream log are read by executors: the same events, and damage is told as the log tells it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from headgate.capture.events import event_schema, row_schema
from headgate.capture.locallog import LocalLog
from headgate.capture.places import conform_events, spool
from headgate.capture.segments import list_segments
from headgate.dataflow.rules.replica import Kinds
from headgate.delta.events import DELETE, OBSERVED, TRUNCATE, UPSERT
from headgate.errors import HistoryLost
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.event_files import EventFiles
from tests.seed import SEED

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = row_schema(COLUMNS)
EVENTS = event_schema(ROWS)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    found = LocalLog(tmp_path / "log", segment_bytes=4_000, transaction_bytes=4_000)
    yield found
    found.close()


def rows(ids: list[int], op: int = UPSERT, unchanged: tuple[str, ...] = ()) -> pa.Table:
    names = [f"name {number}" for number in ids]
    return pa.table([ids, names, [op] * len(ids), [list(unchanged)] * len(ids), list(range(len(ids)))], schema=ROWS)


def fill(log: LocalLog, chosen: random.Random, count: int) -> None:
    """Transactions alone, in groups, in memory and in files; some without rows of the table."""
    while log.end < count:
        position = log.end + 1
        at = NOON + timedelta(seconds=position)
        ids = [chosen.randint(0, 99) for _ in range(chosen.choice([0, 1, 5]))]
        match chosen.choice(["alone", "group", "memory", "file"]):
            case "alone":
                log.append(position, at, {"t": rows(ids), "u": rows([1])}, initial=chosen.random() < 0.2)
            case "group":
                members = [(position + step, at + timedelta(seconds=step)) for step in range(3)]
                counts = [len(ids), 0, 2]
                log.append_group(members, {"t": rows([*ids, 7, 8]), "u": rows([1])}, {"t": counts, "u": [1, 0, 0]})
            case "memory":
                log.keep(position, at, {"t": rows([*ids, 3])})
            case "file":
                log.append(position, at, {"t": rows(list(range(200)))})


def taken(found: EventFiles) -> pa.Table:
    tables = [conform_events(pq.read_table(file), EVENTS) for file in found.files]
    return pa.concat_tables(tables).sort_by([("__position", "ascending"), ("__sequence", "ascending")])


def test_executors_give_the_events_that_the_log_gives(
    spark_sessions: SparkSessions, log: LocalLog, tmp_path: Path
) -> None:
    chosen = random.Random(SEED)
    fill(log, chosen, 40)
    for number, (after, upto) in enumerate([(0, log.end), (9, 31)]):
        size, events = log.size("t", after, upto), log.read("t", after, upto)
        assert (size.rows, size.in_files) == (events.rows, sum(file.rows for file in events.files))
        parts = [pq.read_table(file.path) for file in events.files]
        parts += [] if events.table is None else [events.table]
        expected = pa.concat_tables([conform_events(part, EVENTS) for part in parts])
        found = EventFiles(log, "t", after, upto)
        found.spool(EVENTS, spark_sessions, tmp_path / f"spooled{number}")
        order = [("__position", "ascending"), ("__sequence", "ascending")]
        assert taken(found).equals(expected.sort_by(order))
        assert found.kinds == Kinds()
    assert log.durable == log.end


def test_footers_tell_what_the_events_are(spark_sessions: SparkSessions, log: LocalLog, tmp_path: Path) -> None:
    contents = {
        1: (rows([1, 2], DELETE), Kinds()),
        2: (rows([1], UPSERT, ("name",)), Kinds(partial=True)),
        3: (rows([1], TRUNCATE), Kinds(truncated=True)),
        4: (rows([1], OBSERVED), Kinds(truncated=True, observed=True)),
        5: (rows(list(range(300)), UPSERT, ("name",)), Kinds(partial=True)),
    }
    null = rows([1]).set_column(0, ROWS.field("id"), pa.nulls(1, pa.int64()))
    for position, (content, kinds) in contents.items():
        log.append(position, NOON + timedelta(seconds=position), {"t": content})
        found = EventFiles(log, "t", position - 1, position)
        found.spool(EVENTS, spark_sessions, tmp_path / str(position))
        assert found.kinds == kinds
        assert found.range_of("id") == (min(content["id"].to_pylist()), max(content["id"].to_pylist()))
    log.append(6, NOON + timedelta(seconds=6), {"t": pa.concat_tables([rows([1]), null])})
    found = EventFiles(log, "t", 5, 6)
    found.spool(EVENTS, spark_sessions, tmp_path / "6")
    assert found.range_of("id") is None


def test_a_file_in_the_order_of_its_key_has_one_event_per_key(log: LocalLog) -> None:
    ids = list(range(1_000))
    contents = [ids, [*ids[:-1], 998], [*ids[500:], *ids[:500]], [*ids, *ids]]
    for position, content in enumerate(contents, 1):
        with log.begin(position, NOON) as writer:
            for start in range(0, len(content), 200):
                writer.write("t", rows(content[start : start + 200]))
            writer.commit()
    found = [EventFiles(log, "t", position - 1, position) for position in range(1, 5)]
    assert [each.are_distinct(("name", "id")) for each in found] == [True, False, False, False]
    assert not found[0].are_distinct(("name",))
    assert not EventFiles(log, "t", 0, 2).are_distinct(("id",))


def test_events_from_before_a_column_was_added_or_widened_are_brought_to_the_columns_of_now(
    spark_sessions: SparkSessions, log: LocalLog, tmp_path: Path
) -> None:
    narrow = row_schema(pa.schema([("id", pa.int32())]))
    log.append(1, NOON, {"t": pa.table([[1], [UPSERT], [[]], [0]], schema=narrow)})
    log.append(2, NOON, {"t": rows([2])})
    found = EventFiles(log, "t", 0, 2)
    found.spool(EVENTS, spark_sessions, tmp_path / "spooled")
    assert taken(found).select(["id", "name"]).to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "name 2"}]


def test_a_damaged_frame_is_a_loss(spark_sessions: SparkSessions, log: LocalLog, tmp_path: Path) -> None:
    for position in range(1, 9):
        log.append(position, NOON, {"t": rows([position] * 10)})
    segment = list_segments(log.folder)[0]
    content = bytearray(segment.read_bytes())
    content[-9] ^= 0xFF
    segment.write_bytes(content)
    found = EventFiles(log, "t", 0, 8)
    with pytest.raises(HistoryLost, match=rf"{segment.name}: .*damaged at byte \d+: .*checksum"):
        found.spool(EVENTS, spark_sessions, tmp_path / "spooled")
    assert log.loss is not None


def test_a_damaged_file_of_a_large_transaction_is_a_loss(log: LocalLog) -> None:
    log.append(1, NOON, {"t": rows(list(range(300)))})
    file = next(log.files_folder.iterdir())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(HistoryLost, match=file.name):
        _ = EventFiles(log, "t", 0, 1).kinds
    assert log.loss is not None and log.loss.upto == 1


def test_workers_need_no_package(log: LocalLog, tmp_path: Path) -> None:
    log.append(1, NOON, {"t": rows([1, 2])})
    share = (3, log.next_batch("t", 0, 1).frames)
    script = (
        "import pickle, sys\n"
        "sys.modules['headgate'] = None\n"
        "task, share = pickle.load(sys.stdin.buffer)\n"
        "print(*task(share))\n"
    )
    content = cloudpickle.dumps((partial(spool, str(tmp_path), EVENTS), share))
    done = subprocess.run([sys.executable, "-c", script], input=content, check=True, capture_output=True)
    assert done.stdout.decode().split() == [f"{tmp_path}/3-0.parquet", "None"]
    assert pq.read_table(tmp_path / "3-0.parquet").column("id").to_pylist() == [1, 2]
