"""One Spark context, three sessions with their own fixed settings."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.capture.events import row_schema
from headgate.capture.locallog import LocalLog
from headgate.delta.changes import BEGINNING
from headgate.errors import ConfigError
from headgate.runtime.spark import sessions
from headgate.runtime.spark.sessions import SparkSessions


def test_each_session_has_its_own_settings(
    spark_sessions: SparkSessions, interpreted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LARGE", interpreted)
    opened = SparkSessions({}, "as users have it")
    small, bulk, query = opened.small, opened.bulk, opened.query
    assert small.conf.get("spark.sql.codegen.wholeStage") == "false"
    assert small.conf.get("spark.sql.adaptive.enabled") == "false"
    assert small.conf.get("spark.sql.shuffle.partitions") == "1"
    for session in (bulk, query):
        assert session.conf.get("spark.sql.codegen.wholeStage") == "true"
        assert session.conf.get("spark.sql.adaptive.enabled") == "true"
    for session in (small, bulk, query):
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
        assert session.conf.get("spark.sql.ansi.enabled") == "true"
        assert session.sparkContext is spark_sessions.context


def test_an_active_context_is_shared_and_left_running(spark_sessions: SparkSessions) -> None:
    other = SparkSessions({"spark.sql.shuffle.partitions": "3"}, "other")
    assert other.context is spark_sessions.context
    assert other.query.conf.get("spark.sql.shuffle.partitions") == "3"
    assert other.small.conf.get("spark.sql.shuffle.partitions") == "1"
    other.stop()
    assert spark_sessions.small.range(3).count() == 3


def test_settings_that_results_depend_on_cannot_be_changed(spark_sessions: SparkSessions) -> None:
    with pytest.raises(ConfigError, match=r"session\.timeZone cannot be Europe/Paris .*headgate needs UTC"):
        SparkSessions({"spark.sql.session.timeZone": "Europe/Paris"}, "other")


def test_a_setting_that_spark_refuses_is_named(spark_sessions: SparkSessions) -> None:
    with pytest.raises(ConfigError, match=r"Spark refuses the setting spark\.sql\.shuffle\.partitions: many"):
        SparkSessions({"spark.sql.shuffle.partitions": "many"}, "other")


def test_spark_reads_the_files_of_a_large_transaction(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    log = LocalLog(tmp_path, transaction_bytes=1)
    schema = row_schema(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]))
    at = datetime(2024, 1, 1, tzinfo=UTC)
    log.append(
        3, at, {"t": pa.table([[1, 2], [BEGINNING, at], [1, 1], [[], ["at"]], [0, 1]], schema=schema)}, initial=True
    )
    frame = spark_sessions.small.read.parquet(*(file.path for file in log.read("t", 0, 3).files))
    assert dict(frame.dtypes)["__unchanged"] == "array<string>"
    frame.createOrReplaceTempView("events")
    rows = spark_sessions.small.sql(
        "SELECT id, CAST(at AS STRING) AS at, __unchanged, __position, CAST(__commit_at AS STRING) AS t FROM events"
    ).collect()
    assert [tuple(row) for row in sorted(rows)] == [
        (1, "1900-01-01 00:00:00", [], 3, "1900-01-01 00:00:00"),
        (2, "2024-01-01 00:00:00", ["at"], 3, "1900-01-01 00:00:00"),
    ]
    log.close()


@pytest.mark.slow
def test_starting_and_stopping_says_nothing() -> None:
    script = (
        "from headgate.runtime.spark.sessions import SparkSessions\n"
        "sessions = SparkSessions({'spark.master': 'local[1]'}, 'quiet')\n"
        "assert sessions.small.range(3).count() == 3\n"
        "sessions.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_files_that_spark_writes_are_for_its_user_alone(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(f"file://{tmp_path}/rows")
    found = [tmp_path / "rows", *(tmp_path / "rows").rglob("*")]
    assert {f"{path.stat().st_mode & 0o777:o}" for path in found} == {"700", "600"}
