"""Everything about a project that can be checked without its warehouse: the file, the sources, the flows. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import NullType, StructType

from headgate.capture.source import SourceTable
from headgate.cli.flow_check import CheckedFlow, NamesOnly, SparkTypes, Types, check_flows
from headgate.config.files import FilesSourceSettings
from headgate.config.project import load_project
from headgate.config.settings import Project
from headgate.config.sources import MemorySourceSettings, PostgresSourceSettings, ProducerSourceSettings
from headgate.errors import EnvironmentProblem, HeadgateError, Problems
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.definitions import read_statements
from headgate.runtime.flows.flows import Planner
from headgate.runtime.sources.sources import declared_schema
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.tables.catalog import WarehouseCatalog, source_entry

Tables = Mapping[str, SourceTable | None]
"""A source's tables; None for one that could not be looked at."""


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """A source and the columns of its tables; a table without columns could not be looked at."""

    name: str
    kind: str
    tables: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CheckedProject:
    """A checked project."""

    name: str | None
    sources: tuple[CheckedSource, ...]
    flows: tuple[CheckedFlow, ...]
    problems: tuple[HeadgateError, ...]
    warnings: tuple[str, ...]


def check_project(file: Path, *, with_spark: bool = True) -> CheckedProject:
    """Checks all that there is; what is wrong in one place does not hide what is wrong in another."""
    problems = Problems()
    read: list[Project] = []
    with problems.collected():
        read.append(load_project(file))
    if not read:
        return CheckedProject(None, (), (), tuple(problems), ())
    (project,) = read
    _check_storage(project.storage, problems)
    statements = read_statements(project.flow_files, problems)
    sources, warnings = list[CheckedSource](), list[str]()
    catalog, unknown = WarehouseCatalog(), list[str]()
    with _types(project, catalog, problems, with_spark) as types:
        for name, settings in project.sources.items():
            kind: str = settings.type
            if isinstance(settings, PostgresSourceSettings):
                kind = f"postgres by {settings.capture}"
                tables = _at_server(project.name, name, settings, problems, warnings)
            elif isinstance(settings, FilesSourceSettings):
                tables = _in_files(name, settings, types, problems, warnings)
            else:
                tables = _declared(name, settings, types, problems)
            for table, found in tables.items():
                if found is None:
                    unknown.append(f"{name}.{table}")
                else:
                    catalog.add(source_entry(f"{name}.{table}", found))
            columns = {table: tuple(found.schema.names) if found else () for table, found in tables.items()}
            sources.append(CheckedSource(name, kind, columns))
        flows = check_flows(statements, catalog, unknown, types, problems, project.platforms)
    return CheckedProject(project.name, tuple(sources), tuple(flows), tuple(problems), tuple(warnings))


@contextmanager
def _types(project: Project, catalog: WarehouseCatalog, problems: Problems, with_spark: bool) -> Iterator[Types]:
    """Spark's types where it starts; else columns have names alone, and why is among the problems."""
    sessions = None
    if with_spark:
        with problems.collected():
            sessions = SparkSessions(project.spark, f"headgate check {project.name}")
    try:
        yield NamesOnly() if sessions is None else SparkTypes(_planner(sessions.small, catalog))
    finally:
        if sessions is not None:
            sessions.stop()


def _planner(session: SparkSession, catalog: WarehouseCatalog) -> Planner:
    return Planner(Analyses(lambda: session), catalog, lambda flow: None)


def _at_server(
    project: str, name: str, settings: PostgresSourceSettings, problems: Problems, warnings: list[str]
) -> Tables:
    from headgate.cli.postgres_source import examine

    examined = examine(project, name, settings)
    problems += examined.problems
    warnings += (f"{name}: {warning}" for warning in examined.warnings)
    found = {table: each.source_table for table, each in examined.tables.items()}
    return {table: found.get(table) for table in settings.tables}


def _in_files(
    name: str, settings: FilesSourceSettings, types: Types, problems: Problems, warnings: list[str]
) -> Tables:
    from headgate.cli.files_source import examine

    declared: dict[str, StructType | None] = {}
    for table, columns in settings.tables.items():
        schema = _schema(f"{name}.{table}", columns.columns, types, problems)
        declared[table] = schema if columns.columns else None
    examined = examine(name, settings, declared)
    problems += examined.problems
    warnings += (f"{name}: {warning}" for warning in examined.warnings)
    return examined.tables


def _declared(
    name: str, settings: MemorySourceSettings | ProducerSourceSettings, types: Types, problems: Problems
) -> Tables:
    tables: dict[str, SourceTable | None] = {}
    for table, declared in settings.tables.items():
        before = len(problems)
        schema = _schema(f"{name}.{table}", declared.columns, types, problems)
        tables[table] = SourceTable(table, schema, declared.key) if len(problems) == before else None
    return tables


def _schema(table: str, columns: Mapping[str, str], types: Types, problems: Problems) -> StructType:
    """Declared columns; a type that is none is among the problems."""
    schema, is_typed = StructType(), isinstance(types, SparkTypes)
    for column, text in columns.items():
        with problems.collected():
            schema.add(column, declared_schema(table, {column: text})[0].dataType if is_typed else NullType())
    return schema


def _check_storage(storage: str, problems: Problems) -> None:
    """Whether the storage folder could be written, or made."""
    place = Path(storage)
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        problems.append(
            EnvironmentProblem(
                f"the storage folder {storage} cannot be written: {place} is not a folder that this user may write to",
                hint="change its permissions, or choose another folder as storage",
            )
        )
