"""A source of files looked at from outside: its tables, and whether their files can be read. Nothing is written."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import NullType, StructType

from headgate.capture.files.layout import Unreadable
from headgate.capture.files.tables import BAD_TABLE, FILES_TABLE, FilesTable, open_table
from headgate.capture.files.taken import TakenFiles
from headgate.capture.source import SourceTable
from headgate.config.files import FilesSourceSettings
from headgate.errors import DefiniteError, HeadgateError, Problems

_LOOKED_AT = 20
"""Files whose columns are compared with the table's, of each table the newest."""


@dataclass(frozen=True, slots=True)
class ExaminedFiles:
    """What was found: the tables, what keeps files from being taken, and what works but not well."""

    tables: Mapping[str, SourceTable | None]
    problems: tuple[HeadgateError, ...]
    warnings: tuple[str, ...]


def examine(source: str, settings: FilesSourceSettings, declared: Mapping[str, StructType | None]) -> ExaminedFiles:
    """Lists the files as capture would, and reads the columns of some."""
    problems, warnings = Problems(), list[str]()
    tables: dict[str, SourceTable | None] = dict.fromkeys(settings.tables)
    with problems.collected():
        settings.pace.for_method(settings.capture)
    with tempfile.TemporaryDirectory() as folder:
        taken = TakenFiles(Path(folder), 0, is_begun=False)
        for name, table in settings.tables.items():
            schema = declared[name]
            if schema is not None and any(isinstance(field.dataType, NullType) for field in schema):
                # Without Spark, columns have names alone.
                tables[name] = SourceTable(name, schema, table.key)
                continue
            with problems.collected():
                found = open_table(source, name, table, schema, taken)
                tables[name] = found.table
                _compare(f"{source}.{name}", found, problems, warnings)
    return ExaminedFiles(
        {**tables, FILES_TABLE.name: FILES_TABLE, BAD_TABLE.name: BAD_TABLE}, tuple(problems), tuple(warnings)
    )


def _compare(full: str, table: FilesTable, problems: Problems, warnings: list[str]) -> None:
    files = table.find()
    if not files:
        warnings.append(f"{full} has no files yet in {', '.join(table.settings.path)}")
    for file in table.in_order(list(files.values()))[-_LOOKED_AT:]:
        try:
            if file.size:
                table.shape_of(file.path)
        except (Unreadable, OSError) as error:
            problems.append(DefiniteError(f"{full}: {file.path}: {error}", hint="correct or remove the file"))
