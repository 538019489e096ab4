"""The project file: what it may say, and where it is wrong."""

from headgate.config.durations import format_duration, parse_duration
from headgate.config.project import load_project
from headgate.config.settings import (
    FreshnessSettings,
    Library,
    Project,
    ProjectLimits,
    Retention,
    WhenStale,
)
from headgate.config.sources import MemorySourceSettings, MemoryTable, PostgresSourceSettings, PostgresTableSettings

__all__ = [
    "FreshnessSettings",
    "Library",
    "MemorySourceSettings",
    "MemoryTable",
    "PostgresSourceSettings",
    "PostgresTableSettings",
    "Project",
    "ProjectLimits",
    "Retention",
    "WhenStale",
    "format_duration",
    "load_project",
    "parse_duration",
]
