"""A new project over files: every folder of files, and every kind of file in a folder, is a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.capture.files.inference import infer
from headgate.capture.files.layout import FileLayout, Unreadable, format_of, plain_name
from headgate.capture.files.listing import FoundFile, list_files
from headgate.capture.files.rows import FileShape, PartRows, read_rows
from headgate.capture.files.tables import layout_of, spark_schema
from headgate.cli.proposal import measure_of, moment_of, total_flow
from headgate.cli.starter import HEAD, project_files
from headgate.config.files import RESERVED, FilesTableSettings
from headgate.errors import ConfigError

_NUMBERED = re.compile(r"[-_. ]*\d[-_.\d TZ]*$")
"""What tells the files of one table apart at the end of their names: numbers and dates."""

_LARGE_BYTES = 256 << 20
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True, slots=True)
class TableOfFiles:
    """Files that look like one table."""

    name: str
    path: str
    format: str
    files: int
    bytes: int
    schema: StructType
    key: tuple[str, ...]
    delimiter: str


def propose_files(name: str, folder: Path) -> dict[str, str]:
    """The files of a project over those below a folder, which are only read."""
    found = list(_tables(folder))
    tables = [each for each in found if isinstance(each, TableOfFiles)]
    left_out = [each for each in found if isinstance(each, ConfigError)]
    if left_out and not tables:
        raise left_out[0]
    if not tables:
        raise ConfigError(
            f"there is no CSV, JSON or Parquet file in {folder}",
            hint="their names end in .csv, .tsv, .json, .jsonl, .ndjson or .parquet, perhaps with .gz, .bz2, .zst or .lz4",
        )
    source = plain_name(folder.name).lower() or "files"
    largest = max(tables, key=lambda table: table.bytes)
    flow = total_flow(source, largest.name, measure_of(largest.schema, largest.key), moment_of(largest.schema))
    sql = f"-- A proposal, to be changed: {flow.about}.\n{flow.sql}"
    lines = ["", "sources:", f"  {source}:", "    type: files", "    tables:"]
    for table in tables:
        columns = ", ".join(f"{field.name}: {_quoted(field.dataType.simpleString())}" for field in table.schema)
        lines += [
            f"      {table.name}:                    # {table.files:,} files, {table.bytes:,} bytes",
            f"        path: {json.dumps(table.path, ensure_ascii=False)}",
            f"        format: {table.format}",
            *([f"        delimiter: {json.dumps(table.delimiter)}"] if table.delimiter != "," else []),
            f"        columns: {{{columns}}}",
            f"        key: [{', '.join(table.key)}]"
            + ("  # a guess" if table.key else "  # with a key, later files replace rows; without one, rows are added"),
            "        # mode: snapshot          # a file holds all rows: those that a later one lacks are deleted",
            "        # bad_rows: quarantine    # broken rows go to the table bad_rows; by default they stop the table",
            *(
                [f"        # ranges: {{column: {table.key[0]}}}   # a large table answers while it is loaded"]
                if table.key and table.bytes > _LARGE_BYTES
                else []
            ),
        ]
    lines += [f"      # left out: {error.what}" for error in left_out]
    return project_files(name, HEAD.format(name=name) + "\n".join(lines) + "\n", flow.name, sql)


def _tables(folder: Path) -> Iterator[TableOfFiles | ConfigError]:
    """The tables, and why some files are none."""
    groups: dict[tuple[str, str, str], list[FoundFile]] = {}
    for file in list_files([str(folder)], lambda path: format_of(path) is not None).values():
        kind = str(format_of(file.path))
        place = Path(file.path).relative_to(folder)
        if len(place.parts) > 1:
            group = (place.parts[0], str(folder / place.parts[0]), kind)
        else:
            stem, _, ending = place.name.partition(".")
            begins = _NUMBERED.sub("", stem) or stem
            group = (begins, str(folder / f"{begins}*.{ending}"), kind)
        groups.setdefault(group, []).append(file)
    names: set[str] = set()
    for (called, path, kind), files in sorted(groups.items()):
        table = plain_name(called).lower()
        table = f"{table}_{kind}" if table in names or table in RESERVED else table
        names.add(table)
        try:
            yield _table(table, path, kind, sorted(files, key=lambda each: -each.modified))
        except ConfigError as error:
            yield error


def _table(name: str, path: str, kind: str, files: list[FoundFile]) -> TableOfFiles:
    paths = [each.path for each in files if each.size]
    said = {"path": path, "format": kind}
    delimiter = _delimiter(paths) if kind == "csv" else ","
    settings = FilesTableSettings.model_validate({**said, "delimiter": delimiter} if kind == "csv" else said)
    layout = layout_of(name, settings)
    try:
        schema, names = infer(layout, paths)
        if not schema.names:
            raise Unreadable("they are empty")
        found = spark_schema(schema)
        shape = FileShape(to_arrow_schema(found, timezone="UTC"), (), names)
        rows = next(read_rows(layout, shape, paths[0], 0, None), None)
    except Unreadable as error:
        hint = "move these files elsewhere, or write the project by hand"
        raise ConfigError(f"the columns of {path} cannot be read from its files: {error}", hint=hint) from None
    key = () if rows is None else _key(name, found, rows)
    return TableOfFiles(name, path, kind, len(files), sum(each.size for each in files), found, key, delimiter)


def _delimiter(paths: Sequence[str]) -> str:
    """The sign that the first line of a file has most of."""
    if not paths:
        return ","
    with FileLayout("csv").open(paths[0]) as stream:
        line = bytes(stream.read(1 << 16)).partition(b"\n")[0].decode("utf-8", "replace")
    return max(_DELIMITERS, key=line.count) if any(each in line for each in _DELIMITERS) else ","


def _key(table: str, schema: StructType, rows: PartRows) -> tuple[str, ...]:
    """A column that is called as a key would be, if its values in some rows are different ones."""
    for place, field in enumerate(schema.fields):
        values = rows.columns[place]
        is_called_so = field.name.lower() in ("id", "key", f"{table}_id", f"{table.removesuffix('s')}_id")
        if is_called_so and len(values) and not values.null_count and pc.count_distinct(values).as_py() == len(values):
            return (field.name,)
    return ()


def _quoted(kind: str) -> str:
    return f'"{kind}"' if "," in kind or ":" in kind else kind
