"""How the files of a table are written, and where in them rows can be read apart.

    file ──► parts: row groups of Parquet, ranges of bytes of uncompressed text, else the whole file

What is here and in the modules beside it that read rows runs in Spark's Python workers too: it is pickled whole, so that
executors need PySpark and the same storage, not this package.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

PART_BYTES = 64 << 20
"""What one task reads of a file."""
_UTF_8 = ("utf-8", "ascii")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_FORMATS: dict[str, Literal["csv", "json", "parquet"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".parq": "parquet",
}


class Unreadable(ValueError):
    """A file, or what it holds, is not as it should be; the text says why."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The settings of a table that say how its files are written."""

    format: Literal["csv", "json", "parquet"]
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    null: tuple[str, ...] = ("",)
    multiline: bool = True
    encoding: str = "utf-8"
    compression: str = "auto"

    def compression_of(self, path: str) -> str | None:
        if self.format == "parquet" or self.compression == "none":
            return None
        return _COMPRESSIONS.get(Path(path).suffix.lower()) if self.compression == "auto" else self.compression

    def can_be_cut(self, path: str) -> bool:
        """Whether rows can be found from any byte on: a line ends only where a row does."""
        if self.compression_of(path) is not None or self.encoding not in _UTF_8:
            return False
        return self.format == "json" or (self.format == "csv" and not self.multiline)

    def open(self, path: str, first: int = 0, end: int | None = None) -> BinaryIO:
        """The bytes of a file as UTF-8, decompressed; of a part, the lines that begin in it."""
        compression = self.compression_of(path)
        if first or end is not None:
            return io.BufferedReader(_LineRange(path, first, end), 1 << 20)
        raw: BinaryIO = pa.input_stream(path, compression=compression)
        if self.encoding in _UTF_8:
            return raw
        decoded: BinaryIO = pa.transcoding_input_stream(raw, self.encoding, "utf8")
        return decoded

    def header_of(self, path: str) -> list[str] | None:
        """The names of a file's columns as it has them; None where it says none."""
        if self.format == "parquet":
            return list(parquet_file(path).schema_arrow.names)
        if self.format == "json" or not self.header:
            return None
        try:
            with what_is_unreadable(), self.open(path) as stream:
                reader = pcsv.open_csv(
                    stream,
                    read_options=pcsv.ReadOptions(use_threads=False, block_size=1 << 20),
                    parse_options=self.parsing(lambda row: "skip"),
                )
                return list(reader.schema.names)
        except Unreadable as error:
            if "Empty CSV file" in str(error):
                return []
            raise

    def parsing(self, invalid: object) -> pcsv.ParseOptions:
        return pcsv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=self.multiline,
            invalid_row_handler=invalid,
        )

    def cut(self, path: str, size: int, part_bytes: int = PART_BYTES) -> list[tuple[int, int | None, int]]:
        """Parts of a file, each with the number that its first row has at least; one (0, None, 0) is the whole file.

        Ends are bytes of text, or row groups of Parquet.
        """
        if self.format == "parquet":
            return _row_groups(path, part_bytes)
        if size <= part_bytes or not self.can_be_cut(path):
            return [(0, None, 0)]
        firsts = range(0, size, part_bytes)
        # A row has at least one byte, so the rows before a byte are no more than that.
        return [(first, first + part_bytes if first + part_bytes < size else size, first) for first in firsts]


def format_of(path: str) -> Literal["csv", "json", "parquet"] | None:
    """The format that a file's name tells."""
    name = Path(path)
    if name.suffix.lower() in _COMPRESSIONS:
        name = name.with_suffix("")
    return _FORMATS.get(name.suffix.lower())


def plain_name(name: str) -> str:
    """A column's name as tables have it: other signs than ASCII letters, digits and underscores become underscores."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.strip())
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def plain_names(path_names: list[str]) -> dict[str, str]:
    """The plain names of a file's columns, and what each is called there."""
    found: dict[str, str] = {}
    for name in path_names:
        plain = plain_name(name)
        if plain in found:
            raise Unreadable(f"two of its columns are {plain}: {found[plain]!r} and {name!r}")
        found[plain] = name
    return found


def parquet_file(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise Unreadable(f"it is not a whole Parquet file: {said(error)}") from None


@contextmanager
def what_is_unreadable() -> Iterator[None]:
    """Arrow's errors about what a file holds as `Unreadable`; those of the system stay as they are."""
    try:
        yield
    except (pa.ArrowException, UnicodeError, EOFError) as error:
        raise Unreadable(said(error)) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise Unreadable(said(error)) from None


def said(error: Exception) -> str:
    """What a library says, on one line."""
    return " ".join(str(error).split())[:300].rstrip(".")


def _row_groups(path: str, part_bytes: int) -> list[tuple[int, int | None, int]]:
    metadata = parquet_file(path).metadata
    parts: list[tuple[int, int | None, int]] = []
    first = rows = before = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        size += group.total_byte_size
        rows += group.num_rows
        if size >= part_bytes or number == metadata.num_row_groups - 1:
            parts.append((first, number + 1, before))
            first, before, size = number + 1, rows, 0
    return parts or [(0, 0, 0)]


class _LineRange(io.RawIOBase):
    """The lines of a file that begin in [first, end): up to the end of the last of them."""

    def __init__(self, path: str, first: int, end: int | None) -> None:
        self._raw = Path(path).open("rb")  # noqa: SIM115
        self._end = end
        self._chunks = self._read(first)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(view), len(self._rest))
        view[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

    def _read(self, first: int) -> Iterator[bytes]:
        raw, end = self._raw, self._end
        place = first
        if first:
            # The line that the byte before belongs to is of the part before.
            raw.seek(first - 1)
            place = first - 1 + len(raw.readline())
        while end is None or place < end:
            chunk = raw.read(1 << 20 if end is None else min(1 << 20, end - place))
            if not chunk:
                return
            place += len(chunk)
            yield chunk
            if end is not None and place >= end and not chunk.endswith(b"\n"):
                yield raw.readline()
                return
