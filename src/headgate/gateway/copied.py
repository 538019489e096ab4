"""The rows of COPY … FROM STDIN, which wait in a scratch file as the client sent them.

CopyData ─▶ scratch file ─▶ rows of values, one after another, as often as they are asked for

One row at a time is in memory, and a row is bounded: what a client sends does not add to the memory of the service.
"""

from __future__ import annotations

import csv
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from headgate.gateway.answers import CopyIn, CopyOptions
from headgate.gateway.parameters import decode, from_text
from headgate.gateway.problems import WireProblem
from headgate.gateway.rows import COPY_HEADER
from headgate.gateway.types import WireColumn
from headgate.warehouse.problems import format_size

BAD_COPY = "22P04"
TOO_LARGE = "54000"
_MOST_BYTES = 16 << 30
"""Of one COPY, on the disk."""
_MOST_ROW_BYTES = 64 << 20
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}

Values = tuple[Any, ...]


class CopiedRows:
    """Rows that a client sends, of the columns of its COPY. Closed once nobody needs them."""

    def __init__(self, copy: CopyIn) -> None:
        self._columns = copy.columns
        self._options = copy.options
        self._file = tempfile.TemporaryFile(prefix="headgate-copy-")  # noqa: SIM115
        self._size = 0

    def add(self, data: bytes | bytearray) -> None:
        self._size += len(data)
        if self._size > _MOST_BYTES:
            raise WireProblem(TOO_LARGE, f"one COPY takes at most {format_size(_MOST_BYTES)}", hint="copy in parts")
        self._file.write(data)

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Values]:
        self._file.seek(0)
        return self._binary() if self._options.form == "binary" else self._textual()

    def _textual(self) -> Iterator[Values]:
        options, columns = self._options, self._columns
        is_csv = options.form == "csv"
        # A reader of its own file, which those who stop early leave behind.
        with os.fdopen(os.dup(self._file.fileno()), encoding="utf-8", newline="" if is_csv else "\n") as text:
            fields = _csv_fields(text, options) if is_csv else _text_fields(text, options)
            try:
                for number, values in enumerate(fields, 1):
                    if options.header and number == 1:
                        continue
                    if len(values) != len(columns):
                        raise WireProblem(BAD_COPY, f"row {number} has {len(values)} columns, expected {len(columns)}")
                    yield tuple([_value(value, column, number) for value, column in zip(values, columns, strict=True)])
            except UnicodeDecodeError:
                raise WireProblem("22021", "the rows are not in UTF8") from None

    def _binary(self) -> Iterator[Values]:
        head = self._file.read(19)
        if head[:11] != COPY_HEADER[:11]:
            raise WireProblem(BAD_COPY, "COPY file signature not recognized")
        try:
            self._read(*struct.unpack_from("!i", head, 15))
            while (count := struct.unpack("!h", self._read(2))[0]) != -1:
                if count != len(self._columns):
                    raise WireProblem(BAD_COPY, f"a row has {count} columns, expected {len(self._columns)}")
                yield tuple([decode(self._binary_value(), column.oid, True) for column in self._columns])
        except struct.error:
            raise _ended_early() from None

    def _binary_value(self) -> bytes | None:
        (length,) = struct.unpack("!i", self._read(4))
        return None if length < 0 else self._read(length)

    def _read(self, length: int) -> bytes:
        if not 0 <= length <= _MOST_ROW_BYTES:
            raise _too_long()
        found = self._file.read(length)
        if len(found) < length:
            raise _ended_early()
        return found


def _ended_early() -> WireProblem:
    return WireProblem(BAD_COPY, "unexpected end of the rows")


def _too_long() -> WireProblem:
    return WireProblem(TOO_LARGE, f"a row of COPY has at most {format_size(_MOST_ROW_BYTES)}")


def _lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(_MOST_ROW_BYTES):
        if len(line) == _MOST_ROW_BYTES:
            raise _too_long()
        yield line


def _value(text: str | None, column: WireColumn, number: int) -> Any:
    if text is None:
        return None
    try:
        return from_text(text, column.oid)
    except (ValueError, ArithmeticError):
        raise WireProblem("22P02", f"row {number}, column {column.name}: invalid input {text[:50]!r}") from None


def _text_fields(text: TextIO, options: CopyOptions) -> Iterator[Sequence[str | None]]:
    for line in _lines(text):
        line = line.removesuffix("\n").removesuffix("\r")
        if line == "\\.":
            return
        yield [None if field == options.null else _unescaped(field) for field in line.split(options.delimiter)]


def _unescaped(field: str) -> str:
    if "\\" not in field:
        return field
    parts, position = [], 0
    while (found := field.find("\\", position)) >= 0 and found + 1 < len(field):
        parts += [field[position:found], _ESCAPES.get(field[found + 1], field[found + 1])]
        position = found + 2
    return "".join([*parts, field[position:]])


def _csv_fields(text: TextIO, options: CopyOptions) -> Iterator[Sequence[str | None]]:
    reader = csv.reader(_lines(text), delimiter=options.delimiter, quotechar=options.quote, strict=True)
    try:
        for row in reader:
            if row == ["\\."]:
                return
            yield [None if value == options.null else value for value in row]
    except csv.Error as error:
        raise WireProblem(BAD_COPY, f"line {reader.line_num} is not CSV: {error}") from None
