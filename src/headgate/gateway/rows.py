"""Rows of Arrow as PostgreSQL's messages, a batch at a time.

Each column becomes a column of bytes; Arrow joins these, with the lengths between them, into one buffer that holds all rows of the
batch. No row is a Python object, unless a column has a type that only `values` can write, or there are so few that a call of Arrow
costs more than its rows.

    DataRow       D | length | columns | length value | length value …       a NULL has the length -1
    CopyData      d | length | the same without D and its length (binary), or a line of text
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.gateway.types import (
    BOOL,
    BPCHAR,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NAME,
    NUMERIC,
    OID,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    WireColumn,
)
from headgate.gateway.values import EPOCH_DAYS, EPOCH_MICROSECONDS, offset_text, writer_of

_EMPTY = pa.scalar(b"", pa.binary())
_FIXED = {INT2: ">i2", INT4: ">i4", INT8: ">i8", OID: ">u4", FLOAT4: ">f4", FLOAT8: ">f8"}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970: Arrow writes others in another way."""
_MICROSECONDS_PER_DAY = 86_400_000_000
_FEW_ROWS = 16
"""Up to so many are written value by value: every call of Arrow lets other threads run, and has to wait for its turn again."""
_LENGTH = struct.Struct("!i")
_ROW_HEAD = struct.Struct("!cih")
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"
MESSAGE_HEAD = 5
"""Bytes of a message's kind and length."""


def data_rows(batch: pa.RecordBatch, columns: Sequence[WireColumn], formats: Sequence[int]) -> memoryview:
    """The rows as DataRow messages, one after another."""
    if batch.num_rows <= _FEW_ROWS:
        return memoryview(_few_rows(batch, columns, formats))
    return _messages(b"D", batch, columns, formats)


def _few_rows(batch: pa.RecordBatch, columns: Sequence[WireColumn], formats: Sequence[int]) -> bytes:
    written = list[list[bytes | None]]()
    for array, column, form in zip(batch.columns, columns, formats, strict=True):
        if column.zone is not None and form == 0:
            array = _in_zone(array, column.zone)
        written.append(_values_bytes(array, column.oid, form == 1))
    data = bytearray()
    for place in range(batch.num_rows):
        row = b"".join(
            b"\xff\xff\xff\xff" if body is None else _LENGTH.pack(len(body)) + body
            for body in (values[place] for values in written)
        )
        data += _ROW_HEAD.pack(b"D", len(row) + 6, len(columns)) + row
    return bytes(data)


def copy_binary_rows(batch: pa.RecordBatch, columns: Sequence[WireColumn]) -> memoryview:
    """The rows in COPY's binary form as CopyData messages, one after another."""
    return _messages(b"d", batch, columns, [1] * len(columns))


def copy_text_rows(
    batch: pa.RecordBatch, columns: Sequence[WireColumn], delimiter: str, null: str, is_csv: bool, quote: str = '"'
) -> pa.Array:
    """The rows as lines, each with its end."""
    fields = []
    for array, column in zip(batch.columns, columns, strict=True):
        written = column_bytes(array, column, False).cast(pa.string())
        written = _csv(written, delimiter, null, quote) if is_csv else _escaped(written, delimiter)
        fields.append(written.fill_null(null))
    lines = pc.binary_join_element_wise(*fields, delimiter) if fields else pa.array([""] * batch.num_rows)
    return pc.binary_join_element_wise(lines, "\n", "")


def copy_data(lines: pa.Array) -> memoryview:
    """Each line as a CopyData message."""
    bodies = lines.cast(pa.binary())
    return _joined([_heads(b"d", _lengths(bodies)), bodies])


def column_bytes(array: pa.Array, column: WireColumn, is_binary: bool) -> pa.Array:
    """A column's values in PostgreSQL's text or binary form; nulls stay nulls."""
    oid = column.oid
    if column.zone is not None and not is_binary:
        array = _in_zone(array, column.zone)
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.binary())
    if oid in (TEXT, VARCHAR, BPCHAR, NAME) and pa.types.is_string(array.type):
        return array.cast(pa.binary())
    made = _binary(array, oid) if is_binary else _text(array, oid)
    if made is not None:
        return made
    return pa.array(_values_bytes(array, oid, is_binary), pa.binary())


def _values_bytes(array: pa.Array, oid: int, is_binary: bool) -> list[bytes | None]:
    write, values = writer_of(oid, is_binary), array.to_pylist(maps_as_pydicts="strict")
    return [None if value is None else write(value) for value in values]


def _text(array: pa.Array, oid: int) -> pa.Array | None:
    kind = array.type
    if oid == BOOL:
        return pc.if_else(array, pa.scalar(b"t"), pa.scalar(b"f"))
    if oid in (INT2, INT4, INT8, OID):
        return array.cast(pa.string()).cast(pa.binary())
    if oid in (FLOAT4, FLOAT8) and pc.all(pc.is_finite(array)).as_py():
        text = array.cast(pa.string()).cast(pa.binary())
        return pc.if_else(pc.ends_with(text, ".0"), pc.binary_slice(text, 0, -2), text)
    if oid == NUMERIC and pa.types.is_decimal(kind):
        text = array.cast(pa.string())
        return None if pc.any(pc.match_substring(text, "E")).as_py() else text.cast(pa.binary())
    if oid == DATE and pa.types.is_date32(kind):
        return array.cast(pa.string()).cast(pa.binary()) if _in_range(array.cast(pa.int32()), 1) else None
    if oid in (TIMESTAMP, TIMESTAMPTZ) and pa.types.is_timestamp(kind):
        moments = array.cast(pa.timestamp("us"))
        if not _in_range(moments.cast(pa.int64()), _MICROSECONDS_PER_DAY):
            return None
        offsets: pa.Array | str = "+00"
        if kind.tz not in (None, "UTC"):
            shown = pc.local_timestamp(array)
            moments, offsets = shown, _offsets(_numbers(shown.cast(pa.int64())) - _numbers(moments.cast(pa.int64())))
        text = _clock_text(moments)
        return (pc.binary_join_element_wise(text, offsets, "") if oid == TIMESTAMPTZ else text).cast(pa.binary())
    return None


def _clock_text(moments: pa.Array) -> pa.Array:
    """Times in microseconds, without zeros at the end of a fraction."""
    if not (_numbers(moments.cast(pa.int64())) % 1_000_000).any():
        return moments.cast(pa.timestamp("s")).cast(pa.string())
    return pc.ascii_rtrim(pc.ascii_rtrim(moments.cast(pa.string()), "0"), ".")


def _in_zone(array: pa.Array, zone: str) -> pa.Array:
    """Instants of a zone; other values as they are."""
    kind = array.type
    is_list = pa.types.is_list(kind)
    inner = kind.value_type if is_list else kind
    if not pa.types.is_timestamp(inner) or inner.tz is None:
        return array
    wanted = pa.timestamp("us", zone)
    return array.cast(pa.list_(wanted) if is_list else wanted)


def _offsets(microseconds: np.ndarray) -> pa.Array:
    """Offsets from UTC as PostgreSQL writes them: +02, -03:30."""
    distinct, places = np.unique(microseconds // 1_000_000, return_inverse=True)
    return pa.array([offset_text(int(seconds)) for seconds in distinct]).take(pa.array(places))


def _in_range(array: pa.Array, unit: int) -> bool:
    found = pc.min_max(array).as_py()
    return found["min"] is None or (found["min"] >= _FIRST_DAY * unit and found["max"] < (_LAST_DAY + 1) * unit)


def _binary(array: pa.Array, oid: int) -> pa.Array | None:
    if oid in _FIXED:
        return _fixed(array, _numbers(array).astype(_FIXED[oid]))
    if oid == BOOL:
        return _fixed(array, _numbers(array.cast(pa.uint8())))
    if oid == BYTEA:
        return array.cast(pa.binary())
    if oid == DATE and pa.types.is_date32(array.type):
        return _fixed(array, (_numbers(array.cast(pa.int32())) - EPOCH_DAYS).astype(">i4"))
    if oid in (TIMESTAMP, TIMESTAMPTZ) and pa.types.is_timestamp(array.type):
        moments = _numbers(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()))
        return _fixed(array, (moments - EPOCH_MICROSECONDS).astype(">i8"))
    if oid == NUMERIC and pa.types.is_decimal128(array.type):
        return _numeric(array)
    return None


def _numeric(array: pa.Array) -> pa.Array | None:
    """Decimals of up to 18 digits: four words of head (groups, weight of the first, sign, scale), then groups of four digits without
    those that are zero at either end. As `values.numeric_binary` has it."""
    precision, scale = array.type.precision, array.type.scale
    if precision > 18 or not 0 <= scale <= 16:
        return None
    # The lower half of each number holds all of it.
    lower = np.frombuffer(array.buffers()[1], "<i8")[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    numbers = np.where(array.is_valid().to_numpy(zero_copy_only=False), lower, 0)
    whole, fraction = np.divmod(np.abs(numbers), 10**scale)
    before, behind = -(-(precision - scale) // 4), -(-scale // 4)
    fraction *= 10 ** (4 * behind - scale)
    groups = [whole // 10_000**place % 10_000 for place in reversed(range(before))]
    groups += [fraction // 10_000**place % 10_000 for place in reversed(range(behind))]
    digits = np.stack(groups, axis=1)
    is_digit = digits != 0
    is_kept = np.logical_or.accumulate(is_digit, axis=1) & np.logical_or.accumulate(is_digit[:, ::-1], axis=1)[:, ::-1]
    words = np.empty((len(array), 4 + digits.shape[1]), ">i2")
    words[:, 0] = is_kept.sum(axis=1)
    words[:, 1] = np.where(numbers != 0, before - 1 - is_kept.argmax(axis=1), 0)
    words[:, 2] = np.where(numbers < 0, 0x4000, 0)
    words[:, 3] = scale
    words[:, 4:] = digits
    is_written = np.concatenate([np.ones((len(array), 4), bool), is_kept], axis=1)
    offsets = np.concatenate([[0], np.cumsum(2 * is_written.sum(axis=1))]).astype(np.int32)
    return _null_as(array, _binaries(words[is_written], offsets))


def _numbers(array: pa.Array) -> np.ndarray:
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _fixed(array: pa.Array, numbers: np.ndarray) -> pa.Array:
    """The bytes of numbers as binary values; null where the array is."""
    return _null_as(array, _of_bytes(numbers))


def _null_as(array: pa.Array, made: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), made, pa.scalar(None, pa.binary())) if array.null_count else made


def _of_bytes(numbers: np.ndarray) -> pa.Array:
    size = numbers.dtype.itemsize
    offsets = np.arange(0, (len(numbers) + 1) * size, size, dtype=np.int32)
    return _binaries(numbers, offsets)


def _binaries(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data).view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _messages(
    identifier: bytes, batch: pa.RecordBatch, columns: Sequence[WireColumn], formats: Sequence[int]
) -> memoryview:
    """Each row as a message: the number of its columns, and their lengths and values."""
    parts = list[pa.Array]()
    sizes = np.full(batch.num_rows, 2 + 4 * len(columns), np.int64)
    for array, column, form in zip(batch.columns, columns, formats, strict=True):
        values = column_bytes(array, column, form == 1)
        lengths = _lengths(values)
        sizes += lengths
        if values.null_count:
            lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, -1)
            values = values.fill_null(_EMPTY)
        parts += [_of_bytes(lengths.astype(">i4")), values]
    return _joined([_heads(identifier, sizes, len(columns)), *parts])


def _heads(identifier: bytes, sizes: np.ndarray, columns: int | None = None) -> pa.Array:
    """What each message begins with: its kind and length, and the number of columns if it has any number."""
    fields = [("identifier", "S1"), ("length", ">i4"), ("columns", ">i2")]
    heads = np.empty(len(sizes), np.dtype(fields if columns is not None else fields[:2]))
    heads["identifier"] = identifier
    heads["length"] = sizes + 4
    if columns is not None:
        heads["columns"] = columns
    return _of_bytes(heads)


def _lengths(values: pa.Array) -> np.ndarray:
    """Of binary values, 0 of nulls."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(offsets)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, 0) if values.null_count else lengths


def _joined(parts: Sequence[pa.Array]) -> memoryview:
    """The values of all columns, row after row, as they lie in one buffer."""
    joined = pc.binary_join_element_wise(*parts, _EMPTY)
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(joined.buffers()[2])[offsets[0] : offsets[-1]] if len(joined) else memoryview(b"")


def _escaped(text: pa.Array, delimiter: str) -> pa.Array:
    special = "\\\\" + "\n\r\t" + (f"\\{delimiter}" if delimiter != "\t" else "")
    if not pc.any(pc.match_substring_regex(text, f"[{special}]")).as_py():
        return text
    for plain, escape in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), (delimiter, f"\\{delimiter}")):
        if plain != "\t" or escape == "\\t":
            text = pc.replace_substring(text, plain, escape)
    return text


def _csv(text: pa.Array, delimiter: str, null: str, quote: str) -> pa.Array:
    needs = pc.match_substring_regex(text, f"[{quote}\n\r\\{delimiter}]")
    needs = pc.or_(needs, pc.equal(text, null))
    if not pc.any(needs).as_py():
        return text
    escaped = pc.binary_join_element_wise(quote, pc.replace_substring(text, quote, quote * 2), quote, "")
    return pc.if_else(needs, escaped, text)
