"""What a project file may say, as frozen models; unknown keys are refused.

Relative paths are completed with the folder of the project file, which validation passes as its context.
"""

from __future__ import annotations

import glob
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from headgate.config.advising import AdvisingSettings
from headgate.config.durations import DURATION_HINT, parse_duration
from headgate.config.fields import Count, CountOrNone, Duration, Name, Settings, Size, differ_without_case, refuse
from headgate.config.gateway import GatewaySettings
from headgate.config.platforms import SPARK, PostgresPlatformSettings
from headgate.config.producers import ProducersSettings
from headgate.config.scaling import ScalingSettings
from headgate.config.service import ServiceSettings
from headgate.config.sources import SourceSettings

WhenStale = Literal["fail", "serve", "wait"]

_PROJECT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)


def _project_name(value: str) -> str:
    if not _PROJECT_NAME.fullmatch(value):
        raise refuse(f"{value!r} is not a project name", "use letters, digits, underscores and hyphens")
    return value


def _spark_setting(value: object) -> str:
    """Spark takes texts; YAML numbers and truth values are written as Spark writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise refuse(f"a Spark setting is a text or a number, not {value!r}", "write it as Spark's configuration does")


def _age(value: object) -> object:
    if isinstance(value, str) and value.strip().lower() == "any":
        return "any"
    try:
        return parse_duration(value)
    except ValueError as error:
        raise refuse(str(error), f"{DURATION_HINT}, or any") from None


class FreshnessSettings(Settings):
    """What a query gets that does not say otherwise."""

    max_staleness: Annotated[timedelta | Literal["any"], BeforeValidator(_age)] = timedelta(0)
    """`any` is no bound: the newest complete snapshot, without waiting."""
    deadline: Duration | None = None
    when_stale: WhenStale = "fail"


class Retention(Settings):
    """How long snapshots stay readable."""

    jobs: Count = 20
    """Complete jobs that can be read."""
    lease: Duration = timedelta(minutes=10)
    """How long an answer holds its snapshot when nobody closes it."""


class ProjectLimits(Settings):
    """How much headgate holds before it does something about it."""

    overlay_bytes: Size = 256 << 20
    """Changes in memory per warehouse before tables are materialized."""
    stream_bytes: Size = 4 << 30
    """Captured but not yet processed changes per source before a system job runs."""
    transaction_bytes: Size = 16 << 20
    """Rows of one source transaction held in memory; more go to files of their own."""
    unwritten_bytes: Size = 256 << 20
    """Commits of producers that need not be durable, per source, before they are written nevertheless."""
    spark_load_bytes: Size = 256 << 20
    """A source table larger than this is loaded by Spark's executors: range by range where it can be, else whole."""
    segment_bytes: Size = 64 << 20
    """Size at which a stream log begins a new segment."""
    rows_per_file: Count = 64_000
    """Rows per data file; within a file, rows lie in groups of 8,000, which a lookup reads one by one."""
    small_table_rows: Count = 4_000
    """Tables up to this size are read whole rather than looked up, and need no arrangement."""
    batch_rows: Count = 250_000
    """Changes up to this many are processed in the driver's memory; of more, rows stay in files."""
    range_rows: Count = 1_000_000
    """Rows of a key range, where a table names its range column but neither bounds nor a count; it then has at most 32 ranges."""
    kept_answers: CountOrNone = 32
    """Answers that are moved on from job to job while they are asked again and again; 0 reads every answer anew."""
    way: Literal["narrow", "wide", "recompute"] | None = None
    """How stages take their batches; by default each batch is taken in the way that costs least."""


class BackgroundSettings(Settings):
    """What headgate does while nobody asks."""

    system_jobs: bool = True
    """Whether changes are processed without a query; a full stream and a table's target_lag ask for it in any case."""
    idle_after: Duration = timedelta(seconds=30)
    """Without a query for this long, changes are processed and tables are materialized."""
    oldest_changes: Duration = timedelta(minutes=10)
    """Changes that are held in memory for this long are materialized."""


class GlobPattern(Settings):
    """Files by pattern; `**` crosses folders, and a pattern that ends with it takes every file below."""

    include: str

    @field_validator("include")
    @classmethod
    def _matches_something(cls, include: str, info: ValidationInfo) -> str:
        pattern = _in_folder(include, info)
        if not matching_files(pattern):
            raise refuse(f"the pattern {include} matches no .sql file", f"it is looked up as {pattern}")
        return pattern


class FilePath(Settings):
    """One file."""

    path: str

    @field_validator("path")
    @classmethod
    def _exists(cls, path: str, info: ValidationInfo) -> str:
        file = _in_folder(path, info)
        if not Path(file).is_file():
            raise refuse(f"there is no file {path}", f"it is looked up as {file}")
        return file


class Library(Settings):
    """Where flows are: `{glob: {include: pattern}}` or `{file: {path: …}}`; paths are absolute once loaded."""

    glob: GlobPattern | None = None
    file: FilePath | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Library:
        if (self.glob is None) == (self.file is None):
            raise refuse(
                "a library is either a glob or a file", "write {glob: {include: flows/**}} or {file: {path: …}}"
            )
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        if self.file is not None:
            return (Path(self.file.path),)
        return matching_files(self.glob.include) if self.glob is not None else ()


class Project(Settings):
    """A whole project; `storage` is an absolute path once loaded."""

    name: Annotated[str, AfterValidator(_project_name)]
    storage: str
    libraries: tuple[Library, ...] = ()
    spark: dict[str, Annotated[str, BeforeValidator(_spark_setting)]] = Field(default_factory=dict)
    freshness: FreshnessSettings = FreshnessSettings()
    sources: dict[Name, SourceSettings] = Field(default_factory=dict)
    platforms: dict[Name, PostgresPlatformSettings] = Field(default_factory=dict)
    """Databases beside Spark that flows may be placed at."""
    retention: Retention = Retention()
    limits: ProjectLimits = ProjectLimits()
    background: BackgroundSettings = BackgroundSettings()
    gateway: GatewaySettings = GatewaySettings()
    service: ServiceSettings = ServiceSettings()
    producers: ProducersSettings | None = None
    """Without it producers connect from this machine only."""
    scaling: ScalingSettings | None = None
    """Without it no part grows or shrinks: each uses the slots that Spark has."""
    advising: AdvisingSettings = AdvisingSettings()

    @field_validator("storage")
    @classmethod
    def _complete_storage(cls, storage: str, info: ValidationInfo) -> str:
        if not storage.strip():
            raise refuse("storage is empty", "give the folder that is to hold the warehouse")
        return _in_folder(_local_path(storage), info)

    @field_validator("sources")
    @classmethod
    def _sources_differ(cls, sources: dict[str, SourceSettings]) -> dict[str, SourceSettings]:
        differ_without_case(dict(sources))
        return sources

    @field_validator("platforms")
    @classmethod
    def _platforms_differ(cls, platforms: dict[str, PostgresPlatformSettings]) -> dict[str, PostgresPlatformSettings]:
        differ_without_case(dict(platforms))
        if any(name.casefold() == SPARK for name in platforms):
            raise refuse("spark is the platform that every warehouse has", "give the database another name")
        return platforms

    @property
    def flow_files(self) -> tuple[Path, ...]:
        """Every file that the libraries name, each once, in their order and then by name."""
        return tuple(dict.fromkeys(file for library in self.libraries for file in library.files))


def matching_files(pattern: str) -> tuple[Path, ...]:
    """The `.sql` files that a pattern matches, by name; hidden ones are left out."""
    if pattern.endswith("**"):
        pattern += "/*"
    found = (Path(path) for path in glob.glob(pattern, recursive=True))
    return tuple(sorted(path for path in found if path.suffix == ".sql" and path.is_file()))


def _local_path(storage: str) -> str:
    """The folder of a storage, which may be given as file:///path; other URIs are refused."""
    scheme = _URI.match(storage)
    if scheme is None:
        return storage
    path = unquote(storage[scheme.end() :])
    if scheme[0].casefold() != "file://" or not path.startswith("/"):
        raise refuse(
            f"{storage} is not a local folder",
            "give the path of a folder on this machine or on a shared file system; object stores are not supported as storage",
        )
    return path


def _in_folder(path: str, info: ValidationInfo) -> str:
    context = info.context or {}
    try:
        whole = Path(path).expanduser()
    except RuntimeError:
        raise refuse(
            f"{path} begins with a user who has no home here", "write ./~… for a folder of that name"
        ) from None
    return os.path.normpath(Path(context.get("folder", ".")).absolute() / whole)
