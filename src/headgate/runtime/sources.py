"""The sources of a project: opening them (each kind is one line in `open_source`), and cuts through what they captured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType, _parse_datatype_string

from headgate.capture.memory import MemorySource
from headgate.capture.source import Source, SourceTable
from headgate.capture.streamlog import StreamLog
from headgate.clock import Clock
from headgate.config.sources import MemorySourceSettings, PostgresSourceSettings, SourceSettings
from headgate.delta.changes import JobId
from headgate.errors import ConfigError, TransientError
from headgate.runtime.jobs import Job, JobChain
from headgate.runtime.progress import OnProgress


class CaptureTimedOut(TransientError):
    """A source did not deliver what it had acknowledged within the time that was given."""


def open_source(
    project: str,
    name: str,
    settings: SourceSettings,
    log: StreamLog,
    clock: Clock,
    progress: OnProgress | None = None,
) -> Source:
    """Opens a source; `progress` hears how far its tables are read when that takes a while."""
    match settings:
        case MemorySourceSettings():
            return MemorySource(name, _declared_tables(name, settings), log, clock)
        case PostgresSourceSettings():
            from headgate.capture.postgres.source import PostgresSource

            heard = None if progress is None else partial(progress, name)
            return PostgresSource(project, name, settings, log, clock, heard)


def capture_all(sources: Mapping[str, Source], window: timedelta) -> datetime | None:
    """Captures what every source has acknowledged by now; gives the instant that this is true for, None without sources.

    All sources are asked first and waited for afterwards, so that they work at the same time.
    """
    samples = {name: source.sample() for name, source in sources.items()}
    for name, source in sources.items():
        if not source.capture(samples[name], window):
            raise CaptureTimedOut(
                f"source {name} did not deliver its newest changes within {window.total_seconds():g} s",
                hint="look at the source's load and connection, or allow a longer deadline",
            )
    return min((sample.at for sample in samples.values()), default=None)


def next_job(sources: Mapping[str, Source], chain: JobChain, at: datetime) -> Job | None:
    """The job that holds all that is captured, for which `at` is true; None when the newest one holds it already."""
    newest = chain.newest
    cut: dict[str, int] = {}
    commits = [chain.newest_commit_at(newest)]
    for name, source in sources.items():
        source.log.sync()
        cut[name] = source.log.durable
        found = source.log.transactions(chain.position(name, newest), cut[name])
        commits += [found[-1].commit_at] if found else []
    if all(position == chain.position(name, newest) for name, position in cut.items()):
        return None
    return Job(JobId(newest + 1), at, cut, max((each for each in commits if each is not None), default=None))


def _declared_tables(source: str, settings: MemorySourceSettings) -> dict[str, SourceTable]:
    return {
        table: SourceTable(table, _schema(f"{source}.{table}", declared.columns), declared.key)
        for table, declared in settings.tables.items()
    }


def _schema(table: str, columns: Mapping[str, str]) -> StructType:
    schema = StructType()
    for name, text in columns.items():
        try:
            schema.add(name, _parse_datatype_string(text))
        except PySparkException as error:
            raise ConfigError(
                f"the column {name} of {table} has the type {text}, which Spark does not know",
                hint=f"use a Spark SQL type such as bigint, string or decimal(10,2): {_first_line(error)}",
            ) from None
    return schema


def _first_line(error: PySparkException) -> str:
    return str(error).strip().partition("\n")[0]
