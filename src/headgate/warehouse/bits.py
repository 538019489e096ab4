"""Dead rows as bits, one per value from the lowest dead key to the highest: for keys that are whole numbers and lie close.

    lowest 6   bits 1 0 0 1 …       the rows with keys 6 and 9 are dead

A filter that looks at a bit costs a fraction of a probe into a hash table, and needs no broadcast before the scan begins.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, LongType, StructType

from headgate.warehouse.local import local_frame

MOST_BYTES = 8 << 20
BYTES_PER_ROW = 64
"""Keys that lie further apart than this many bytes of bits are better looked up."""


def bits_of(keys: pa.ChunkedArray) -> tuple[int, pa.Array] | None:
    """The lowest key and the bits of all from there on, by words; None when there are none or they lie too far apart."""
    values = keys.drop_null().cast(pa.int64()).to_numpy()
    if not len(values):
        return None
    lowest, highest = int(values.min()), int(values.max())
    if (highest - lowest) // 8 > min(MOST_BYTES, BYTES_PER_ROW * len(values)):
        return None
    places = values - lowest
    words = np.zeros(((highest - lowest) >> 6) + 1, dtype=np.uint64)
    np.bitwise_or.at(words, places >> 6, np.uint64(1) << (places & 63).astype(np.uint64))
    return lowest, pa.array(words.view(np.int64))


def is_dead(session: SparkSession, key: Column, lowest: int, words: pa.Array, *, null_is_dead: bool) -> Column:
    """Whether the row with this key is dead."""
    stored = pa.table({"words": pa.ListArray.from_arrays(pa.array([0, len(words)], pa.int32()), words)})
    held = local_frame(session, stored, StructType().add("words", ArrayType(LongType()))).scalar()
    place = key.cast("long") - lowest
    bit = sf.getbit(sf.get(held, sf.shiftright(place, 6).cast("int")), place.bitwiseAND(63).cast("int"))
    within = key.between(lowest, lowest + 64 * len(words) - 1)
    return sf.when(within, bit == 1).otherwise(key.isNull() if null_is_dead else sf.lit(False))
