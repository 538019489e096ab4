"""What a project file may say about a source whose tables are files.

landing:
  type: files
  tables:
    orders: {path: landing/orders, format: csv, key: [id], delimiter: ";"}
    prices: {path: landing/prices/*.parquet, mode: snapshot, key: [item]}
"""

from __future__ import annotations

import codecs
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from headgate.config.fields import Duration, Name, Settings, Size, SparkType, differ_without_case, refuse
from headgate.config.gears import GearSettings
from headgate.config.ranges import RangeSettings
from headgate.config.streams import StreamSettings

FileFormat = Literal["csv", "json", "parquet"]
RESERVED = ("files", "bad_rows")
"""Tables that every such source has: what was taken, and the rows that could not be."""

_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)
_CSV_ONLY = ("header", "delimiter", "quote", "escape", "null", "multiline")
_TEXT_ONLY = ("encoding", "compression")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _one_sign(value: str, what: str) -> str:
    if len(value) != 1 or ord(value) > 127 or value in "\r\n":
        raise refuse(f"{value!r} is not a {what}", 'give one ASCII character, such as ";" or "\\t"')
    return value


class FilesTableSettings(Settings):
    """A table whose rows come in files."""

    path: Annotated[tuple[str, ...], BeforeValidator(_as_list)]
    """A folder, a pattern (`**` crosses folders), a file, or a list of these."""
    format: FileFormat | None = None
    """By default as the names of the files end."""
    mode: Literal["append", "snapshot"] = "append"
    """Whether a file adds rows (with a key: replaces those with the same key), or holds all rows there are."""
    key: tuple[Name, ...] = ()
    columns: dict[Name, SparkType] = Field(default_factory=dict)
    """By default read from the first files."""
    order: Literal["modified", "name"] = "modified"
    """Of files that are found together; the latest has the last word."""
    bad_rows: Literal["fail", "quarantine"] = "fail"
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    """Empty: no quotes."""
    escape: str = ""
    null: tuple[str, ...] = ("",)
    """Texts that stand for NULL, unless they are quoted."""
    multiline: bool = True
    """Whether a quoted text may hold line breaks; without, several tasks read a large file."""
    encoding: str = "utf-8"
    compression: Literal["auto", "none", "gzip", "bz2", "zstd", "lz4"] = "auto"
    """`auto`: as the file's name ends."""
    ranges: RangeSettings | None = None
    """With ranges, a table whose files are large at first contact answers while it is loaded."""

    @field_validator("path")
    @classmethod
    def _are_paths(cls, paths: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not paths:
            raise refuse("no path is given", "name a folder, a pattern or files: path: landing/orders")
        for path in paths:
            if _URI.match(path):
                raise refuse(f"{path} is not a path", "mount the storage, and give the folder where it is mounted")
        folder = Path((info.context or {}).get("folder", "."))
        return tuple(os.path.normpath(folder.absolute() / Path(path).expanduser()) for path in paths)

    @field_validator("delimiter")
    @classmethod
    def _delimits(cls, value: str) -> str:
        return _one_sign(value, "delimiter")

    @field_validator("quote", "escape")
    @classmethod
    def _quotes(cls, value: str) -> str:
        return value and _one_sign(value, "quote or escape character")

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError:
            raise refuse(f"{value!r} is not an encoding", "use a name such as utf-8, latin-1 or cp1252") from None

    @model_validator(mode="after")
    def _fits(self) -> FilesTableSettings:
        differ_without_case(dict(self.columns))
        if self.mode == "snapshot" and not self.key:
            raise refuse("a table of snapshots needs a key", "name the columns that tell its rows apart: key: [id]")
        for place, column in enumerate(self.key):
            if column in self.key[:place]:
                raise refuse(f"the key names the column {column} twice", "name each column once")
            if self.columns and column not in self.columns:
                raise refuse(f"the key column {column} is not a column", f"the columns are {', '.join(self.columns)}")
        if self.ranges is not None and self.ranges.column.casefold() not in map(str.casefold, self.key):
            have = f"the key is {', '.join(self.key)}" if self.key else "declare a key: key: [id]"
            raise refuse(f"the range column {self.ranges.column} is not a column of the key", have)
        if not self.header and not self.columns:
            raise refuse("files without a header say nothing about their columns", "declare columns, in their order")
        alien = [name for name in self.model_fields_set if name in self._alien()]
        if alien:
            raise refuse(f"{', '.join(sorted(alien))} is not for {self.format} files", "remove it")
        return self

    def _alien(self) -> tuple[str, ...]:
        """Settings that the format has no use for."""
        match self.format:
            case "json":
                return _CSV_ONLY
            case "parquet":
                return (*_CSV_ONLY, *_TEXT_ONLY)
            case _:
                return ()


class FilesSourceSettings(StreamSettings):
    """Tables whose rows come in files: Parquet, CSV or JSON lines."""

    type: Literal["files"]
    tables: dict[Name, FilesTableSettings]
    settle: Duration = timedelta(seconds=1)
    """A file counts once it has not changed for so long; 0 where files are renamed into place."""
    remember: Duration = timedelta(days=30)
    """How long a file that is gone is known, should it come back."""
    load_rate: Size | None = None
    """How many bytes a second are read at most while a large table with ranges is loaded; by default as many as can be."""
    pace: GearSettings = GearSettings()

    @property
    def capture(self) -> Literal["files"]:
        """The method, whose gears are the default."""
        return "files"

    @field_validator("tables")
    @classmethod
    def _are_tables(cls, tables: dict[str, FilesTableSettings]) -> dict[str, FilesTableSettings]:
        if not tables:
            raise refuse("the source has no tables", "declare at least one: tables: {orders: {path: landing/orders}}")
        differ_without_case(dict(tables))
        for name in tables:
            if name.lower() in RESERVED:
                what = "the files that were taken" if name.lower() == "files" else "the rows that could not be"
                raise refuse(f"every source of files has a table {name} already: {what}", "choose another name")
        return tables
