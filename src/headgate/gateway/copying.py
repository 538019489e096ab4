"""COPY: its statement, and rows out in its text, CSV and binary forms."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.gateway.answers import CopyOptions, Fetched, RowCursor
from headgate.gateway.problems import INVALID_PARAMETER, NOT_SUPPORTED, WireProblem
from headgate.gateway.rows import COPY_HEADER, COPY_TRAILER, MESSAGE_HEAD, copy_binary_rows, copy_data, copy_text_rows
from headgate.gateway.statements import Statement
from headgate.gateway.types import WireColumn
from headgate.gateway.words import Words


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
