"""How evenly readers share the rows of a batch while the load triples and goes back, by salt and by fixed ranges of keys.

There are eight readers. The elastic queue starts with one partition and splits by its policy; the fixed partitions are eight
equal ranges of all keys that will come, read batch by batch at the same times.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.queue_sides import rows_of
from headgate.capture.block_writer import BlockWriter
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.elastic.policy import deviation
from headgate.clock import SystemClock

READERS = 8
ROWS = 4
"""Of a transaction."""
Course = dict[str, dict[str, list[float]]]
"""By kind of keys and of queue, the deviation in each batch."""


def balance_figures(folder: Path, batches: int, transactions: int) -> tuple[dict[str, object], Course, list[int]]:
    load = [transactions * (3 if batches // 3 <= number < 2 * batches // 3 else 1) for number in range(batches)]
    course: Course = {}
    figures: dict[str, object] = {}
    for kind in ("zipf", "sequential"):
        total = ROWS * sum(load)
        keys = np.arange(total)
        if kind == "zipf":
            keys = np.minimum(np.random.default_rng(3).zipf(1.2, total) - 1, total - 1)
        elastic, working, ends = _elastic(folder / kind, keys, load, transactions)
        places = [keys[ROWS * sum(load[:number]) : ROWS * sum(load[: number + 1])] for number in range(batches)]
        shares = [np.bincount(each * READERS // total, minlength=READERS) for each in places]
        fixed = [deviation(each.tolist()) for each in shares]
        course[kind] = {"elastic": elastic, "fixed": fixed}
        all_work = {
            "elastic": next((number for number, count in enumerate(working) if count >= READERS), None),
            "fixed": next((number for number, each in enumerate(shares) if (each > 0).all()), None),
        }
        figures[kind] = {
            name: {"average": float(np.mean(found)), "end": float(np.mean(found[-max(1, batches // 10) :]))}
            | {
                "batches_until_all_readers_work": None if all_work[name] is None else all_work[name] + 1,
                "seconds_until_all_readers_work": None if all_work[name] is None else ends[all_work[name]],
            }
            for name, found in course[kind].items()
        }
    return {"deviation": figures}, course, load


def _elastic(
    folder: Path, keys: np.ndarray, load: list[int], transactions: int
) -> tuple[list[float], list[int], list[float]]:
    """The deviation of rows per reader in each batch, how many readers had some, and the seconds until it was read."""
    began = time.perf_counter()
    ends = []
    log = ElasticLog(folder, partition_bytes=transactions * ROWS * 1024 // (2 * READERS), most_partitions=READERS)
    writers = [BlockWriter(log.open_segment) for _ in range(2)]
    clock = SystemClock()
    found, working = [], []
    first = 0
    for number, count in enumerate(load):
        after = log.end
        for each in range(count):
            writer = writers[each % len(writers)]
            writer.put("t", rows_of(keys[first : first + ROWS]))
            log.append_blocks(log.end + 1, clock.now(), [writer.finish(durable=False)])
            first += ROWS
        batch = log.next_batch("t", after, log.end)
        of_partition = Counter[int]()
        for place in batch.frames:
            of_partition[place.partition] += int(place.stamps.counts.sum())
        sizes = [0] * READERS
        for reader, partition in enumerate(sorted(of_partition)):
            sizes[reader % READERS] += of_partition[partition]
        if sum(sizes) != ROWS * count:
            raise SystemExit(f"batch {number} has {sum(sizes)} rows instead of {ROWS * count}")
        found.append(deviation(sizes))
        working.append(sum(size > 0 for size in sizes))
        ends.append(time.perf_counter() - began)
        log.trim(log.end)
    for writer in writers:
        writer.close()
    log.close()
    return found, working, ends
