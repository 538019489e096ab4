"""An answer's rows as bytes on the wire: JSON here, files of rows in `headgate.tabular`; made piece by piece, so that
nothing large is held twice.

In JSON a row is a list. Decimals are texts, since a number would lose digits; instants are in ISO 8601, binary values
in base64, maps lists of pairs, and the floating-point values that JSON lacks the texts NaN, Infinity and -Infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from headgate.errors import DefiniteError
from headgate.service.plain import to_plain

Format = Literal["arrow", "json", "csv", "parquet"]

CONTENT_TYPES: Mapping[Format, str] = {
    "arrow": "application/vnd.apache.arrow.stream",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}

_JSON_ROWS = 2_000
"""Rows that are written at once; other threads get their turn in between."""
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def first_rows(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """So many rows of the batches; no further batch is made once they are there."""
    left = count
    for batch in batches if count else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def json_pieces(
    schema: pa.Schema, types: Sequence[str], batches: Iterable[pa.RecordBatch], receipt: Mapping[str, Any] | None
) -> Iterator[bytes]:
    """One object with the columns, the rows and the receipt."""
    columns = [{"name": name, "type": type_} for name, type_ in zip(schema.names, types, strict=True)]
    yield f'{{"columns":{compact_json(columns)},"rows":['.encode()
    comma = ""
    for batch in batches:
        for start in range(0, batch.num_rows, _JSON_ROWS):
            yield (comma + json_rows(batch.slice(start, _JSON_ROWS))).encode()
            comma = ","
    yield f'],"receipt":{compact_json(receipt)}}}'.encode()


def compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def in_parts(pieces: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Pieces put together to parts of at least this size, each with whether more follow."""
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        if length >= size:
            yield b"".join(held), True
            held, length = [], 0
        held.append(piece)
        length += len(piece)
    yield b"".join(held), False


def json_rows(batch: pa.RecordBatch | pa.Table) -> str:
    """The rows as JSON lists, without the brackets around them."""
    try:
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        try:
            text = _dumps(rows)
        except ValueError:
            text = _dumps(_finite(rows))
    except (ValueError, OverflowError) as error:
        raise DefiniteError(f"a value has no form in JSON: {error}", hint='ask for "format": "arrow"') from None
    return text[1:-1]


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=to_plain)


def _finite(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return _NOT_FINITE.get(value, "NaN")
        case list() | tuple():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
    return value
