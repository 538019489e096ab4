"""Texts of a CSV or JSON file as values of a column's type; texts that are none of the type are told apart.

Numbers may have spaces around them and a plus sign. Times without a zone are UTC; dates and times are ISO 8601.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_ZONE = r"([Zz]|[+-]\d\d(:?\d\d)?)$"
_DATED = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d"


def parsed(texts: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """The values, NULL where a text is none, and which those are; None when there are none of them."""
    if pa.types.is_string(wanted):
        return texts, None
    if not pa.types.is_binary(wanted):
        texts = pc.utf8_trim_whitespace(texts)
    if pa.types.is_integer(wanted) or pa.types.is_decimal(wanted) or pa.types.is_floating(wanted):
        texts = pc.replace_substring_regex(texts, r"^\+(\d|\.)", r"\1")
    if pa.types.is_integer(wanted):
        # Arrow takes 0x10 as sixteen.
        texts = pc.replace_substring_regex(texts, "^-?0[xX].*$", "?")
    values = _cast(texts, wanted)
    wrong = pc.and_(pc.is_null(values), pc.is_valid(texts))
    return values, wrong if pc.any(wrong).as_py() else None


def _cast(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """By halving: what does not fit is NULL, and few casts are tried where few texts do not fit."""
    try:
        return _times(texts, wanted) if pa.types.is_timestamp(wanted) else texts.cast(wanted)
    except pa.ArrowException:
        if len(texts) == 1:
            return pa.nulls(1, wanted)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], wanted), _cast(texts[half:], wanted)])


def _times(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    zoned = pc.and_(pc.match_substring_regex(texts, _DATED), pc.match_substring_regex(texts, _ZONE))
    plain = pa.timestamp("us")
    if wanted.tz is None:
        return texts.cast(plain)
    without = pc.if_else(zoned, pa.scalar(None, pa.string()), texts).cast(plain).cast(wanted)
    return pc.coalesce(pc.if_else(zoned, texts, pa.scalar(None, pa.string())).cast(wanted), without)
