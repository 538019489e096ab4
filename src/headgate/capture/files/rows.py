"""The rows of a part of a file as Arrow columns of a table's types, batch by batch; rows that are broken are told apart.

Values are only taken as what they are: a text that is no number, a number that is too large, or a missing key make the row
a broken one. Whether that is a mistake is the caller's decision.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.json as pjson

from headgate.capture.columns import ColumnDoesNotFit, cast_column
from headgate.capture.files.layout import FileLayout, Unreadable, parquet_file, said, what_is_unreadable
from headgate.capture.files.texts import parsed

_BLOCK_BYTES = 8 << 20
"""Of text, held at a time; no row may be longer."""
_BATCH_ROWS = 65_536


class BadRow(NamedTuple):
    """A row that cannot be taken: its number in the part, from 1 on, the header counted, and why."""

    number: int
    column: str | None
    reason: str
    text: str


class PartRows(NamedTuple):
    """Some rows of a part, in order, and which of its rows they are, from 0 on."""

    columns: list[pa.Array]
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    bad: list[BadRow]


@dataclass(frozen=True, slots=True)
class FileShape:
    """A table's columns, and what they are called in a file."""

    schema: pa.Schema
    required: tuple[str, ...]
    """Columns that are never NULL: the key, and those that are declared so."""
    names: Mapping[str, str]
    """By the table's name of a column its name in the file; a column that the file lacks is NULL."""


def read_rows(layout: FileLayout, shape: FileShape, path: str, first: int, end: int | None) -> Iterator[PartRows]:
    """Every row of the part. Raises `Unreadable` where the file makes no sense from some point on."""
    with what_is_unreadable():
        match layout.format:
            case "csv":
                yield from _csv(layout, shape, path, first, end)
            case "json":
                yield from _json(layout, shape, path, first, end)
            case "parquet":
                yield from _parquet(shape, path, first, end)


# CSV


def _csv(layout: FileLayout, shape: FileShape, path: str, first: int, end: int | None) -> Iterator[PartRows]:
    named = layout.header_of(path)
    if named == []:
        return
    names = list(shape.schema.names) if named is None else named
    has_header = named is not None and first == 0
    wrong: list[BadRow] = []

    def refuse(row: pcsv.InvalidRow) -> str:
        wrong.append(BadRow(row.number, None, f"it has {row.actual_columns} values, not {len(names)}", row.text))
        return "skip"

    with layout.open(path, first, end) as stream:
        counted = _QuoteCounter(stream, layout.quote.encode())
        try:
            reader = pcsv.open_csv(
                counted,
                read_options=pcsv.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK_BYTES,
                    column_names=names,
                    skip_rows_after_names=int(has_header),
                ),
                parse_options=layout.parsing(refuse),
                convert_options=pcsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.binary()),
                    null_values=list(layout.null),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise
        taken = told = 0
        last: pa.RecordBatch | None = None
        for batch in reader:
            columns = [
                batch.column(batch.schema.get_field_index(shape.names[field.name]))
                if field.name in shape.names
                else None
                for field in shape.schema
            ]
            skipped = sorted(each.number for each in wrong)
            found = _typed(columns, shape, taken, lambda place, batch=batch: _joined(batch, place, layout.delimiter))
            offset = int(has_header) + 1
            bad = [each._replace(number=_among(each.number + offset, skipped)) for each in found.bad]
            yield found._replace(bad=[*wrong[told:], *bad])
            taken, told = taken + batch.num_rows, len(wrong)
            last = batch if batch.num_rows else last
        if wrong[told:]:
            yield PartRows([pa.nulls(0, field.type) for field in shape.schema], np.empty(0, np.int64), wrong[told:])
        if layout.quote and not layout.escape and end is None and counted.quotes % 2 and _is_open(counted, last, wrong):
            raise Unreadable("a quotation mark is opened and never closed; perhaps the file is not whole")


def _among(number: int, skipped: list[int]) -> int:
    """The number of a row, those counted that were skipped."""
    for each in skipped:
        number += each <= number
    return number


def _is_open(counted: _QuoteCounter, last: pa.RecordBatch | None, wrong: list[BadRow]) -> bool:
    """Whether the last row ends in the middle of a quoted text."""
    if not counted.last.endswith(b"\n") or last is None or any("\n" in each.text for each in wrong[-1:]):
        return True
    return any(b"\n" in (column[-1].as_py() or b"") for column in last.columns)


def _joined(batch: pa.RecordBatch, place: int, delimiter: str) -> str:
    values = (column[place].as_py() for column in batch.columns)
    return delimiter.join("" if each is None else each.decode("utf-8", "replace") for each in values)


class _QuoteCounter(io.RawIOBase):
    """A stream that counts the quotation marks that pass."""

    def __init__(self, stream: BinaryIO, quote: bytes) -> None:
        self._stream = stream
        self._quote = quote
        self.quotes = 0
        self.last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        found = bytes(self._stream.read(-1 if size is None else size))
        if self._quote:
            self.quotes += found.count(self._quote)
        self.last = found[-1:] or self.last
        return found


# JSON lines


def _json(layout: FileLayout, shape: FileShape, path: str, first: int, end: int | None) -> Iterator[PartRows]:
    # Arrow's reader of JSON knows no dates.
    dated = {field.name for field in shape.schema if pa.types.is_date(field.type)}
    wanted = [
        pa.field(shape.names[field.name], pa.string() if field.name in dated else field.type)
        for field in shape.schema
        if field.name in shape.names
    ]
    options = pjson.ParseOptions(explicit_schema=pa.schema(wanted), unexpected_field_behavior="ignore")
    taken = lines_before = 0
    with layout.open(path, first, end) as stream:
        for block in _blocks(stream):
            lines: list[bytes] = []
            try:
                table = _parsed_json(block, options)
                bad: list[BadRow] = []
            except pa.ArrowException:
                lines = block.split(b"\n")
                table, bad = _lines_apart(lines, lines_before, options)
            lines_before += block.count(b"\n")
            columns = [
                table.column(shape.names[field.name]).combine_chunks() if field.name in shape.names else None
                for field in shape.schema
            ]
            chunks = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in columns]
            found = _typed(chunks, shape, taken, lambda place, table=table: _shown(table, place))
            yield found._replace(bad=[*bad, *(each._replace(number=each.number + 1) for each in found.bad)])
            taken += table.num_rows + len(bad)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while chunk := stream.read(_BLOCK_BYTES):
        whole, newline, rest_of = (rest + bytes(chunk)).rpartition(b"\n")
        rest = rest_of
        if newline:
            yield whole + newline
        elif len(rest) > 4 * _BLOCK_BYTES:
            raise Unreadable(f"a line is longer than {4 * _BLOCK_BYTES:,} bytes")
    if rest.strip():
        yield rest


def _parsed_json(block: bytes, options: pjson.ParseOptions) -> pa.Table:
    if not block.strip():
        return pa.table({field.name: pa.nulls(0, field.type) for field in options.explicit_schema})
    table = pjson.read_json(
        io.BytesIO(block),
        read_options=pjson.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=options,
    )
    # A column that no row has is not in the table.
    for field in options.explicit_schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


def _lines_apart(lines: list[bytes], before: int, options: pjson.ParseOptions) -> tuple[pa.Table, list[BadRow]]:
    """The rows of lines some of which are broken, by halving."""
    try:
        return _parsed_json(b"\n".join(lines), options), []
    except pa.ArrowException as error:
        if len(lines) == 1:
            reason = said(error).removesuffix(" in row 0")
            return _parsed_json(b"", options), [BadRow(before + 1, None, reason, lines[0].decode("utf-8", "replace"))]
        half = len(lines) // 2
        one, bad = _lines_apart(lines[:half], before, options)
        other, more = _lines_apart(lines[half:], before + half, options)
        return pa.concat_tables([one, other]), bad + more


# Parquet


def _parquet(shape: FileShape, path: str, first: int, end: int | None) -> Iterator[PartRows]:
    file = parquet_file(path)
    groups = list(range(first, file.metadata.num_row_groups if end is None else end))
    taken = 0
    if not groups:
        return
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=list(shape.names.values())):
        columns = [
            batch.column(batch.schema.get_field_index(shape.names[field.name])) if field.name in shape.names else None
            for field in shape.schema
        ]
        found = _typed(columns, shape, taken, lambda place, batch=batch: _shown(batch, place))
        yield found._replace(bad=[each._replace(number=each.number + 1) for each in found.bad])
        taken += batch.num_rows


# columns


def _typed(columns: list[pa.Array | None], shape: FileShape, taken: int, text_of: Any) -> PartRows:
    """Columns of the table's types without the broken rows; those are numbered from 0 on, after `taken` rows."""
    count = next(len(column) for column in columns if column is not None)
    typed: list[pa.Array] = []
    reasons: dict[int, tuple[str, str]] = {}
    for column, field in zip(columns, shape.schema, strict=True):
        if column is None:
            typed.append(pa.nulls(count, field.type))
            continue
        values, wrong = _converted(column, field)
        if wrong is not None:
            for place in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)):
                what = column[int(place)].as_py()
                said_of = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
                reasons.setdefault(int(place), (field.name, f"{said_of[:80]!r} is not {_called(field.type)}"))
        elif field.name in shape.required and values.null_count:
            for place in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)):
                reasons.setdefault(int(place), (field.name, "it is NULL or missing"))
        typed.append(values)
    numbers = np.arange(taken, taken + count, dtype=np.int64)
    if not reasons:
        return PartRows(typed, numbers, [])
    keep = np.ones(count, dtype=bool)
    keep[list(reasons)] = False
    mask = pa.array(keep)
    bad = [BadRow(taken + place, *reasons[place], text_of(place)) for place in sorted(reasons)]
    return PartRows([pc.filter(each, mask) for each in typed], numbers[keep], bad)


def _converted(column: pa.Array, field: pa.Field) -> tuple[pa.Array, pa.Array | None]:
    """The column as the table's type, NULL where a value does not fit, and which values those are."""
    if pa.types.is_binary(column.type) and not pa.types.is_binary(field.type):
        texts, broken = _decoded(column)
        values, wrong = parsed(texts, field.type)
        if broken is None:
            return values, wrong
        return values, broken if wrong is None else pc.or_(broken, wrong)
    if pa.types.is_string(column.type) and pa.types.is_date(field.type):
        return parsed(column, field.type)
    try:
        return cast_column(column, field.type), None
    except ColumnDoesNotFit as error:
        if error.by_type:
            raise Unreadable(
                f"the column {field.name} is {column.type} in the file and {_called(field.type)} in the table"
            ) from None
    values = pa.concat_arrays(list(_apart(column, field.type)))
    return values, pc.and_(pc.is_null(values), pc.is_valid(column))


def _decoded(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Bytes as text."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowException:
        texts = pa.array(
            [None if each is None or not _is_utf8(each) else each.decode() for each in column.to_pylist()], pa.string()
        )
        return texts, pc.and_(pc.is_null(texts), pc.is_valid(column))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _apart(column: pa.Array, wanted: pa.DataType) -> Iterator[pa.Array]:
    try:
        yield cast_column(column, wanted)
    except ColumnDoesNotFit:
        if len(column) == 1:
            yield pa.nulls(1, wanted)
        else:
            half = len(column) // 2
            yield from _apart(column[:half], wanted)
            yield from _apart(column[half:], wanted)


def _called(wanted: pa.DataType) -> str:
    names = {"int64": "bigint", "int32": "int", "int16": "smallint", "int8": "tinyint", "bool": "boolean"}
    if pa.types.is_timestamp(wanted):
        return "a timestamp"
    if pa.types.is_date(wanted):
        return "a date"
    return names.get(str(wanted), str(wanted).replace("decimal128", "decimal").replace(", ", ","))


def _shown(rows: pa.Table | pa.RecordBatch, place: int) -> str:
    (row,) = rows.slice(place, 1).to_pylist()
    return json.dumps(row, default=str, ensure_ascii=False)
