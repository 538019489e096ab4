"""COPY: its statement, and rows in its text, CSV and binary forms."""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.gateway.answers import CopyOptions, Fetched, RowCursor
from headgate.gateway.parameters import decode, from_text
from headgate.gateway.problems import INVALID_PARAMETER, NOT_SUPPORTED, WireProblem
from headgate.gateway.rows import COPY_HEADER, COPY_TRAILER, MESSAGE_HEAD, copy_binary_rows, copy_data, copy_text_rows
from headgate.gateway.statements import Statement
from headgate.gateway.types import WireColumn
from headgate.gateway.words import Words

BAD_COPY = "22P04"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY (query) TO STDOUT, or COPY table (columns) TO STDOUT | FROM STDIN."""

    query: str | None
    table: tuple[str, ...]
    columns: tuple[str, ...]
    is_in: bool
    options: CopyOptions


def parse_copy(statement: Statement) -> Copy:
    words = Words(statement, 1)
    query: str | None = None
    table: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    if words.at("("):
        query = _parenthesized(words)
    else:
        table = words.names("a table")
        if words.take("("):
            found = [words.name("a column")]
            while words.take(","):
                found.append(words.name("a column"))
            words.expect(")")
            columns = tuple(found)
    is_in = words.take("FROM")
    if not is_in:
        words.expect("TO")
    if is_in and query is not None:
        raise words.error("a query cannot be copied into")
    if not (words.take("STDIN") if is_in else words.take("STDOUT")):
        raise WireProblem(
            NOT_SUPPORTED, "COPY reads and writes no files here", hint="use STDIN and STDOUT; in psql: \\copy"
        )
    words.take("WITH")
    return Copy(query, table, columns, is_in, _options(words))


def _parenthesized(words: Words) -> str:
    start, depth = words.index + 1, 0
    while not words.is_at_end:
        depth += words.at("(") - words.at(")")
        words.index += 1
        if depth == 0:
            statement = words.statement
            return statement.text[statement.place(start) : statement.place(words.index - 1)]
    raise words.error("expected )")


def _options(words: Words) -> CopyOptions:
    given: dict[str, str] = {}
    if words.take("("):
        while True:
            name = words.name("an option")
            given[name] = "true" if words.at(",") or words.at(")") else _option(words)
            if not words.take(","):
                break
        words.expect(")")
    else:
        while not words.is_at_end:
            name = words.name("an option")
            if name in ("csv", "binary"):
                given["format"] = name
            elif name == "header":
                given["header"] = "true"
            else:
                words.take("AS")
                given[name] = _option(words)
    words.end()
    form = given.pop("format", "text").lower()
    if form not in ("text", "csv", "binary"):
        raise WireProblem(INVALID_PARAMETER, f"COPY has no format {form!r}", hint="it is text, csv or binary")
    is_csv = form == "csv"
    delimiter = given.pop("delimiter", "," if is_csv else "\t")
    null, quote = given.pop("null", "" if is_csv else "\\N"), given.pop("quote", '"')
    header = given.pop("header", "false").lower() in ("true", "on", "1", "match")
    if given.pop("encoding", "utf8").lower().replace("-", "") not in ("utf8", "unicode"):
        raise WireProblem(NOT_SUPPORTED, "COPY is in UTF8 only")
    if given:
        raise WireProblem(NOT_SUPPORTED, f"COPY's option {next(iter(given))} is not supported")
    if len(delimiter) != 1 or len(quote) != 1:
        raise WireProblem(INVALID_PARAMETER, "COPY's delimiter and quote are single characters")
    return CopyOptions(form, delimiter, null, header, quote)


def _option(words: Words) -> str:
    token = words.token
    if token is None:
        raise words.error("expected a value")
    words.index += 1
    return token.text


def copy_out(fetched: Fetched, options: CopyOptions) -> Iterator[memoryview]:
    """The rows as CopyData messages, part after part."""
    cursor = RowCursor(fetched)
    if options.form == "binary":
        # Clients expect the header in one message with what follows it.
        first = cursor.take(1)
        begun = COPY_TRAILER if first is None else copy_binary_rows(first, fetched.columns)[MESSAGE_HEAD:]
        yield copy_data(pa.array([COPY_HEADER + begun], pa.binary()))
        while (batch := cursor.take(fetched.rows)) is not None:
            yield copy_binary_rows(batch, fetched.columns)
        if first is not None:
            yield copy_data(pa.array([COPY_TRAILER], pa.binary()))
        return
    if options.header:
        names = [column.name for column in fetched.columns]
        yield copy_data(pa.array([_header(names, options)]))
    while (batch := cursor.take(fetched.rows)) is not None:
        yield copy_lines(batch, fetched.columns, options)


def copy_lines(batch: pa.RecordBatch, columns: Sequence[WireColumn], options: CopyOptions) -> memoryview:
    """Rows as CopyData messages in the form of text or CSV."""
    is_csv = options.form == "csv"
    return copy_data(copy_text_rows(batch, columns, options.delimiter, options.null, is_csv, options.quote))


def _header(names: Sequence[str], options: CopyOptions) -> str:
    if options.form != "csv":
        return options.delimiter.join(names) + "\n"
    line = io.StringIO()
    csv.writer(line, delimiter=options.delimiter, quotechar=options.quote, lineterminator="\n").writerow(names)
    return line.getvalue()


def copied_rows(data: bytes, columns: Sequence[WireColumn], options: CopyOptions) -> list[tuple[Any, ...]]:
    """The rows that a client sent."""
    if options.form == "binary":
        return list(_binary_rows(data, columns))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise WireProblem("22021", "the rows are not in UTF8") from None
    fields = _csv_fields(text, options) if options.form == "csv" else _text_fields(text, options)
    rows = []
    for number, values in enumerate(fields, 1):
        if options.header and number == 1:
            continue
        if len(values) != len(columns):
            raise WireProblem(BAD_COPY, f"row {number} has {len(values)} columns, expected {len(columns)}")
        rows.append(tuple(_value(value, column, number) for value, column in zip(values, columns, strict=True)))
    return rows


def _value(text: str | None, column: WireColumn, number: int) -> Any:
    if text is None:
        return None
    try:
        return from_text(text, column.oid)
    except (ValueError, ArithmeticError):
        raise WireProblem("22P02", f"row {number}, column {column.name}: invalid input {text[:50]!r}") from None


def _text_fields(text: str, options: CopyOptions) -> Iterator[list[str | None]]:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    for line in lines:
        line = line.removesuffix("\r")
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


def _csv_fields(text: str, options: CopyOptions) -> Iterator[list[str | None]]:
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=options.delimiter, quotechar=options.quote, strict=True
    )
    try:
        for row in reader:
            if row == ["\\."]:
                return
            yield [None if value == options.null else value for value in row]
    except csv.Error as error:
        raise WireProblem(BAD_COPY, f"line {reader.line_num} is not CSV: {error}") from None


def _binary_rows(data: bytes, columns: Sequence[WireColumn]) -> Iterator[tuple[Any, ...]]:
    if data[:11] != COPY_HEADER[:11]:
        raise WireProblem(BAD_COPY, "COPY file signature not recognized")
    try:
        (extension,) = struct.unpack_from("!i", data, 15)
        offset = 19 + extension
        while True:
            (count,) = struct.unpack_from("!h", data, offset)
            offset += 2
            if count == -1:
                return
            if count != len(columns):
                raise WireProblem(BAD_COPY, f"a row has {count} columns, expected {len(columns)}")
            values = []
            for column in columns:
                (length,) = struct.unpack_from("!i", data, offset)
                offset += 4
                body = None if length < 0 else data[offset : offset + length]
                offset += max(0, length)
                values.append(decode(body, column.oid, True))
            yield tuple(values)
    except struct.error:
        raise WireProblem(BAD_COPY, "unexpected end of the rows") from None
