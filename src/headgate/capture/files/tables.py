"""The tables of a source of files: what is declared of them, completed with what their files and the last time tell."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headgate.capture.files.inference import infer
from headgate.capture.files.layout import FileLayout, Unreadable, format_of, plain_names
from headgate.capture.files.listing import FolderUnreachable, FoundFile, list_files
from headgate.capture.files.part import BAD_ROWS
from headgate.capture.files.rows import FileShape
from headgate.capture.files.taken import TakenFiles, TakenTable
from headgate.capture.shape import Shape as Checked
from headgate.capture.source import SourceTable
from headgate.config.files import FilesTableSettings
from headgate.errors import ConfigError

FILES = "files"
"""The table of the files that were taken or refused."""
BAD = "bad_rows"

FILES_TABLE = SourceTable(
    FILES,
    StructType(
        [
            StructField("path", StringType(), nullable=False),
            StructField("table", StringType()),
            StructField("bytes", LongType()),
            StructField("modified_at", TimestampType()),
            StructField("taken_at", TimestampType()),
            StructField("rows", LongType()),
            StructField("bad_rows", LongType()),
            StructField("problem", StringType()),
        ]
    ),
    ("path",),
)
BAD_TABLE = SourceTable(BAD, from_arrow_schema(BAD_ROWS), ())


@dataclass(frozen=True, slots=True)
class FilesTable:
    """One table, ready to be read."""

    name: str
    settings: FilesTableSettings
    layout: FileLayout
    table: SourceTable
    is_inferred: bool
    names: Mapping[str, str] = field(default_factory=dict)
    """By the columns their names in the files, as far as those were read from files."""

    def find(self) -> dict[str, FoundFile]:
        return list_files(self.settings.path, lambda path: format_of(path) == self.layout.format)

    def in_order(self, files: list[FoundFile]) -> list[FoundFile]:
        """Files that are found together, the latest last."""
        if self.settings.order == "name":
            return sorted(files, key=lambda each: each.path)
        return sorted(files, key=lambda each: (each.modified, each.path))

    def shape_of(self, path: str) -> FileShape:
        """The columns as they are called in one file. Raises `Unreadable` when it lacks what it needs."""
        schema = to_arrow_schema(self.table.schema, timezone="UTC")
        required = tuple(each.name for each in self.table.schema if not each.nullable or each.name in self.table.key)
        header = self.layout.header_of(path)
        if header == []:
            return FileShape(schema, required, {})
        if header is None:
            names = {name: self.names.get(name, name) for name in schema.names}
            return FileShape(schema, required, names)
        found = plain_names(header)
        names = {name: found[name] for name in schema.names if name in found}
        if missing := [name for name in required if name not in names]:
            have = ", ".join(header[:20])
            raise Unreadable(f"another schema: it has no column {', '.join(missing)}; its columns are {have}")
        if not names:
            raise Unreadable(f"another schema: it has none of the table's columns, but {', '.join(header[:20])}")
        return FileShape(schema, required, names)

    def widened_by(self, path: str) -> FilesTable:
        """The table with the columns that a file has more, if its columns are read from files."""
        if not self.is_inferred:
            return self
        if self.layout.format != "json" and set(plain_names(self.layout.header_of(path) or [])) <= set(
            self.table.schema.names
        ):
            return self
        schema, names = infer(self.layout, [path])
        added = [each for each in schema if each.name not in self.table.schema.names]
        if not added:
            return self
        fields = [*self.table.schema.fields, *spark_schema(pa.schema(added)).fields]
        wider = replace(self.table, schema=StructType(fields))
        Checked(self.name, wider)
        return replace(self, table=wider, names={**names, **self.names})


def layout_of(name: str, settings: FilesTableSettings) -> FileLayout:
    """How the table's files are written. Raises `ConfigError` where neither the project nor a file tells the format."""
    found = settings.format
    if found is None:
        candidates = {format_of(path) for path in settings.path if format_of(path) is not None}
        if not candidates:
            candidates = {format_of(path) for path in list_files(settings.path)} - {None}
        if len(candidates) != 1:
            what = "no file tells" if not candidates else "the files do not agree on"
            raise ConfigError(f"{what} the format of {name}", hint="declare it: format: csv, json or parquet")
        found = candidates.pop()
    assert found is not None
    if found != "csv" or settings.columns or settings.header:
        return FileLayout(
            found,
            settings.header,
            settings.delimiter,
            settings.quote,
            settings.escape,
            settings.null,
            settings.multiline,
            settings.encoding,
            settings.compression,
        )
    raise ConfigError(f"the files of {name} have no header", hint="declare columns, in their order")


def open_table(
    source: str, name: str, settings: FilesTableSettings, declared: StructType | None, taken: TakenFiles
) -> FilesTable:
    """The table as it is declared, or as it was read from its files before, or as it is read from them now."""
    full = f"{source}.{name}"
    try:
        layout = layout_of(full, settings)
        known = taken.tables.get(name)
        names: dict[str, str] = {} if known is None else known.names
        if declared is not None:
            schema = declared
        elif known is not None:
            schema = StructType.fromJson(known.schema)
        else:
            schema, names = _read_schema(full, settings, layout)
    except FolderUnreachable as error:
        raise ConfigError(f"{full}: {error.what}", hint=error.hint) from None
    except Unreadable as error:
        raise ConfigError(
            f"the columns of {full} cannot be read from its files: {error}", hint="declare columns"
        ) from None
    key_fields = [
        StructField(each.name, each.dataType, each.nullable and each.name not in settings.key) for each in schema
    ]
    for column in settings.key:
        if column not in schema.names:
            raise ConfigError(
                f"the key column {column} of {full} is not one of its columns",
                hint=f"they are {', '.join(schema.names)}",
            )
    table = SourceTable(name, StructType(key_fields), settings.key)
    Checked(source, table)
    found = FilesTable(name, settings, layout, table, declared is None, names)
    if known is None:
        taken.tables[name] = TakenTable(table.schema.jsonValue(), dict(names), time.time())
    return found


def _read_schema(full: str, settings: FilesTableSettings, layout: FileLayout) -> tuple[StructType, dict[str, str]]:
    files = list_files(settings.path, lambda path: format_of(path) == layout.format)
    if not files:
        raise ConfigError(
            f"the columns of {full} are not declared, and there is no file to read them from",
            hint=f"put a first {layout.format} file into {settings.path[0]}, or declare columns: {{id: bigint, …}}",
        )
    newest = sorted(files.values(), key=lambda each: -each.modified)
    schema, names = infer(layout, [each.path for each in newest])
    if not schema.names:
        raise ConfigError(f"the files of {full} are empty", hint="declare columns: {id: bigint, …}")
    return spark_schema(schema), names


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark has them."""
    if private := [name for name in schema.names if name.startswith("__")]:
        raise ConfigError(f"the column {private[0]} begins with two underscores", hint="declare columns without it")
    return from_arrow_schema(schema)
