"""The columns of a table from its files: of Parquet the types of the files, of text what all values of a sample can be."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.json as pjson

from headgate.capture.files.layout import FileLayout, parquet_file, plain_names, what_is_unreadable

_SAMPLE_BYTES = 1 << 20
_SAMPLE_FILES = 3


def infer(layout: FileLayout, paths: Sequence[str]) -> tuple[pa.Schema, dict[str, str]]:
    """The columns by plain names, with what each is called in the files; of more files than a few, the first are read."""
    fields: dict[str, pa.DataType] = {}
    names: dict[str, str] = {}
    for path in islice(paths, _SAMPLE_FILES):
        schema = _schema(layout, path)
        for plain, name in plain_names(list(schema.names)).items():
            names.setdefault(plain, name)
            found = schema.field(name).type
            fields[plain] = found if plain not in fields else _both(fields[plain], found)
    return pa.schema([pa.field(name, _stored(kind)) for name, kind in fields.items()]), names


def _schema(layout: FileLayout, path: str) -> pa.Schema:
    if layout.format == "parquet":
        return parquet_file(path).schema_arrow
    with what_is_unreadable():
        sample = _sample(layout, path)
        return (
            pa.schema([]) if not sample.strip() else _csv(layout, sample) if layout.format == "csv" else _json(sample)
        )


def _sample(layout: FileLayout, path: str) -> bytes:
    with layout.open(path) as stream:
        sample = bytes(stream.read(_SAMPLE_BYTES))
    whole, newline, _ = sample.rpartition(b"\n")
    return whole + newline if newline and len(sample) == _SAMPLE_BYTES else sample


def _csv(layout: FileLayout, sample: bytes) -> pa.Schema:
    options = {"parse_options": layout.parsing(lambda row: "skip")}
    known = pcsv.ConvertOptions(null_values=list(layout.null), strings_can_be_null=True)
    table = pcsv.read_csv(io.BytesIO(sample), convert_options=known, **options)
    texts = pcsv.read_csv(
        io.BytesIO(sample),
        convert_options=pcsv.ConvertOptions(column_types=dict.fromkeys(table.column_names, pa.string())),
        **options,
    )
    fields = []
    for field in table.schema:
        kind = field.type
        # A number with a leading zero is a code.
        if pa.types.is_integer(kind) and pc.any(pc.match_substring_regex(texts[field.name], r"^\s*[+-]?0\d")).as_py():
            kind = pa.string()
        fields.append(field.with_type(kind))
    return pa.schema(fields)


def _json(sample: bytes) -> pa.Schema:
    return pjson.read_json(
        io.BytesIO(sample), read_options=pjson.ReadOptions(use_threads=False, block_size=len(sample) + 1)
    ).schema


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return one if one.bit_width >= other.bit_width else other
    numbers = all(pa.types.is_integer(each) or pa.types.is_floating(each) for each in (one, other))
    return pa.float64() if numbers else pa.string()


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that a table has for values of a file's type."""
    test = pa.types
    if test.is_dictionary(kind):
        return _stored(kind.value_type)
    if test.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if test.is_uint64(kind):
        return pa.decimal128(20, 0)
    if test.is_unsigned_integer(kind):
        return pa.int64()
    if test.is_float16(kind):
        return pa.float32()
    if test.is_null(kind) or test.is_time(kind) or test.is_large_string(kind) or test.is_string_view(kind):
        return pa.string()
    if test.is_large_binary(kind) or test.is_fixed_size_binary(kind) or test.is_binary_view(kind):
        return pa.binary()
    if test.is_date(kind):
        return pa.date32()
    if test.is_list(kind) or test.is_large_list(kind) or test.is_fixed_size_list(kind):
        return pa.list_(_stored(kind.value_type))
    if test.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if test.is_struct(kind):
        return pa.struct([pa.field(field.name, _stored(field.type)) for field in kind])
    return kind
