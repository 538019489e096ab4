"""The sources of a project: opening them (each kind is one line in `open_source`), and cuts through what they captured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from headgate.capture.files.method import RunParts, here
from headgate.capture.memory import MemorySource
from headgate.capture.producer import ProducerSource
from headgate.capture.ranges import LargeLoads
from headgate.capture.source import Sample, Source, SourceTable
from headgate.capture.streamlog import StreamLog
from headgate.clock import Clock
from headgate.config.files import RESERVED, FilesSourceSettings
from headgate.config.sources import (
    MemorySourceSettings,
    PostgresSourceSettings,
    ProducerSourceSettings,
    SourceSettings,
)
from headgate.delta.changes import JobId
from headgate.errors import ConfigError, DefiniteError, TransientError
from headgate.runtime.sources.progress import OnProgress
from headgate.runtime.spark.types import parse_type, simple_type
from headgate.runtime.tables.jobs import Job, JobChain


class CaptureTimedOut(TransientError):
    """A source did not deliver what it had acknowledged within the time that was given."""


def open_source(
    project: str,
    name: str,
    settings: SourceSettings,
    log: StreamLog,
    clock: Clock,
    progress: OnProgress | None = None,
    large: LargeLoads | None = None,
    run_parts: RunParts = here,
    on_whole: Callable[[], None] = lambda: None,
) -> Source:
    """Opens a source; `progress` hears how far its tables are read when that takes a while, `large` reads large ones, and
    `run_parts` large files. `on_whole` is told when tables that were read whole again no longer hold jobs back."""
    match settings:
        case MemorySourceSettings():
            return MemorySource(name, _declared_tables(name, settings), log, clock)
        case ProducerSourceSettings():
            return ProducerSource(name, _declared_tables(name, settings), log, clock)
        case PostgresSourceSettings():
            from headgate.capture.postgres.source import PostgresSource

            heard = None if progress is None else partial(progress, name)
            return PostgresSource(project, name, settings, log, clock, heard, large, on_whole)
        case FilesSourceSettings():
            from headgate.capture.files.source import FilesSource

            heard = None if progress is None else partial(progress, name)
            columns, beyond = declared_columns(name, settings), 1 << 30 if large is None else large.beyond
            return FilesSource(name, settings, columns, log, clock, run_parts, heard, beyond)


def own_tables(settings: SourceSettings) -> tuple[str, ...]:
    """Tables that a source has beside those that the project names."""
    return RESERVED if isinstance(settings, FilesSourceSettings) else ()


def declared_columns(name: str, settings: FilesSourceSettings) -> dict[str, StructType | None]:
    """The columns of tables that are files; None where they are read from the files."""
    return {
        table: declared_schema(f"{name}.{table}", declared.columns) if declared.columns else None
        for table, declared in settings.tables.items()
    }


def find_source(sources: Mapping[str, Source], name: str) -> Source:
    found = sources.get(name)
    if found is None:
        raise DefiniteError(f"there is no source {name}", hint=f"the project declares {', '.join(sources) or 'none'}")
    return found


def find_producer_source(sources: Mapping[str, Source], name: str | None) -> ProducerSource:
    """The source of that name, or the only one, that producers write to."""
    known = {source.name: source for source in sources.values() if isinstance(source, ProducerSource)}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is not None and name in known:
        return known[name]
    if not known:
        raise DefiniteError("no source is written by producers", hint="declare one: sources: {etl: {type: producer}}")
    what = (
        "name the source that the producer writes to" if name is None else f"producers do not write to a source {name}"
    )
    raise DefiniteError(what, hint=f"they write to {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Captured:
    """What sources delivered."""

    samples: Mapping[str, Sample]
    """Where each stood; what it had acknowledged by then is in its log."""
    missing: Mapping[str, Exception]
    """Why some did not deliver."""
    seconds: Mapping[str, float]
    """How long each took that did."""


def capture(sources: Mapping[str, Source], window: timedelta, since: datetime | None = None) -> Captured:
    """Captures what the sources have acknowledged by now, or since an instant.

    All sources are asked first and waited for afterwards, so that they work at the same time and share the window.
    """
    samples: dict[str, Sample] = {}
    missing: dict[str, Exception] = {}
    seconds: dict[str, float] = {}
    began = time.monotonic()
    for name, source in sources.items():
        try:
            samples[name] = source.sample(since)
        except Exception as error:
            missing[name] = error
    for name, sample in list(samples.items()):
        try:
            left = window - timedelta(seconds=time.monotonic() - began)
            if not sources[name].capture(sample, max(left, timedelta(0))):
                raise CaptureTimedOut(
                    f"source {name} did not deliver its newest changes within {window.total_seconds():.3g} s",
                    hint="look at the source's load and connection, or allow a longer deadline",
                )
            seconds[name] = time.monotonic() - began
        except Exception as error:
            del samples[name]
            missing[name] = error
    return Captured(samples, missing, seconds)


def next_job(
    sources: Mapping[str, Source], chain: JobChain, samples: Mapping[str, Sample], now: datetime
) -> tuple[Job | None, dict[str, datetime]]:
    """The job that holds all that is captured, None when the newest one holds it already; and as of when per source."""
    newest = chain.newest
    cut: dict[str, int] = {}
    as_of: dict[str, datetime] = {}
    commits = [chain.newest_commit_at(newest)]
    rows = 0
    for name, source in sources.items():
        # The log goes on while it is looked at: the label is read first, so that it is true of the cut.
        captured = source.captured
        cut[name] = source.cut()
        before = chain.position(name, newest)
        as_of[name] = max(chain.as_of(newest, name), captured.at)
        if name in samples:
            as_of[name] = max(as_of[name], samples[name].at)
        found = source.log.transactions(before, cut[name])
        commits += [found[-1].commit_at] if found else []
        rows += sum(sum(each.rows.values()) for each in found)
    if all(position == chain.position(name, newest) for name, position in cut.items()):
        return None, as_of
    at = min(as_of.values(), default=now)
    newest_commit = max((each for each in commits if each is not None), default=None)
    return Job(JobId(newest + 1), at, cut, newest_commit, as_of, max(now, at), rows), as_of


def _declared_tables(source: str, settings: MemorySourceSettings | ProducerSourceSettings) -> dict[str, SourceTable]:
    return {
        table: SourceTable(table, declared_schema(f"{source}.{table}", declared.columns), declared.key)
        for table, declared in settings.tables.items()
    }


def needs_spark(settings: SourceSettings) -> bool:
    """Whether a source's tables have columns whose types only Spark can read."""
    if isinstance(settings, PostgresSourceSettings):
        return False
    return any(simple_type(name) is None for table in settings.tables.values() for name in table.columns.values())


def declared_schema(table: str, columns: Mapping[str, str]) -> StructType:
    schema = StructType()
    for name, text in columns.items():
        try:
            schema.add(name, parse_type(text))
        except PySparkException as error:
            raise ConfigError(
                f"the column {name} of {table} has the type {text}, which Spark does not know",
                hint=f"use a Spark SQL type such as bigint, string or decimal(10,2): {_first_line(error)}",
            ) from None
    return schema


def _first_line(error: PySparkException) -> str:
    return str(error).strip().partition("\n")[0]
