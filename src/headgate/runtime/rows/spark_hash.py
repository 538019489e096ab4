"""Spark's `xxhash64` on Arrow columns, for what the driver computes itself: whole numbers and strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_SEED = 42
_MASK = (1 << 64) - 1
_1, _2, _3, _4, _5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def can_hash(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_string(kind))


def xxhash64(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """The hash of each row; a NULL leaves the hash of the columns before it."""
    found = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    for column in columns:
        if pa.types.is_string(column.type):
            pairs = zip(column.to_pylist(), found.tolist(), strict=True)
            found = np.array(
                [seed if text is None else _of_bytes(text.encode(), seed) for text, seed in pairs], np.uint64
            )
        else:
            values = np.asarray(column.fill_null(0), dtype=np.int64).view(np.uint64)
            hashes = _of_longs(values, found) if column.type.bit_width == 64 else _of_integers(values, found)
            found = np.where(np.asarray(column.is_null()), found, hashes)
    return found


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _of_longs(values: Hashes, seeds: Hashes) -> Hashes:
    found = seeds + np.uint64(_5 + 8)
    found ^= _rotated(values * np.uint64(_2), 31) * np.uint64(_1)
    return _mixed(_rotated(found, 27) * np.uint64(_1) + np.uint64(_4))


def _of_integers(values: Hashes, seeds: Hashes) -> Hashes:
    found = seeds + np.uint64(_5 + 4)
    found ^= (values & np.uint64(0xFFFFFFFF)) * np.uint64(_1)
    return _mixed(_rotated(found, 23) * np.uint64(_2) + np.uint64(_3))


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(33))) * np.uint64(_2)
    values = (values ^ (values >> np.uint64(29))) * np.uint64(_3)
    return values ^ (values >> np.uint64(32))


def _of_bytes(text: bytes, seed: int) -> int:
    def rotated(value: int, bits: int) -> int:
        value &= _MASK
        return ((value << bits) | (value >> (64 - bits))) & _MASK

    def rounded(lane: int, value: int) -> int:
        return rotated(lane + value * _2, 31) * _1 & _MASK

    def word(at: int, size: int) -> int:
        return int.from_bytes(text[at : at + size], "little")

    at, size = 0, len(text)
    if size >= 32:
        lanes = [seed + _1 + _2, seed + _2, seed, seed - _1]
        for at in range(0, size - 31, 32):
            lanes = [rounded(lane, word(at + 8 * place, 8)) for place, lane in enumerate(lanes)]
        at = size // 32 * 32
        found = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = ((found ^ rounded(0, lane)) * _1 + _4) & _MASK
    else:
        found = seed + _5
    found = (found + size) & _MASK
    while at + 8 <= size:
        found = (rotated(found ^ rounded(0, word(at, 8)), 27) * _1 + _4) & _MASK
        at += 8
    if at + 4 <= size:
        found = (rotated(found ^ (word(at, 4) * _1 & _MASK), 23) * _2 + _3) & _MASK
        at += 4
    for byte in text[at:]:
        found = rotated(found ^ (byte * _5 & _MASK), 11) * _1 & _MASK
    found = (found ^ (found >> 33)) * _2 & _MASK
    found = (found ^ (found >> 29)) * _3 & _MASK
    return found ^ (found >> 32)
