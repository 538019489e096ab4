"""The elastic queue against a Delta table that is used as a queue: enqueueing, dequeueing, what is written, and many writers.

Rows have about 1 KB and cannot be compressed. The queue syncs every batch to the disk, the Delta table none.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.queue_balance import balance_figures
from benchmarks.queue_plot import draw_balance, draw_latency
from benchmarks.queue_sides import DeltaQueue, Elastic, rows_of, stored, written
from benchmarks.queue_writers import writers_figures
from benchmarks.report import OUTPUT, SCALES, in_turns, median, publish, say, seconds

Sides = dict[str, Elastic | DeltaQueue]

PARTS = ("enqueue", "dequeue", "writers", "balance")
BATCHES = {"tiny": 60, "small": 400, "full": 2000}
ROWS = {"tiny": 100, "small": 250, "full": 1000}
PENDING = {"tiny": 20, "small": 60, "full": 200}
COMMITS = {"tiny": 10, "small": 60, "full": 200}
WRITER_ROWS = {"tiny": 2000, "small": 4000, "full": 4000}
OTHER_ROWS = (1000, 16_000)
"""Of commits, to see how the owner's share depends on their size."""
BALANCE = {"tiny": (15, 64), "small": (60, 160), "full": (150, 400)}
ROUNDS = {"tiny": 1, "small": 3, "full": 5}
TARGETS = {
    "enqueue_vs_delta": (">=", 1.2),
    "bytes_written_per_byte.elastic": ("<=", 1.1),
    "dequeue_growth.elastic": ("<=", 1.2),
    "owner_cpu_share": ("<=", 0.1),
    "lock_wait": ("<=", 0.05),
    "deviation.zipf.elastic.average": ("<=", 25),
    "deviation.zipf.elastic.end": ("<=", 10),
    "deviation.sequential.elastic.average": ("<=", 25),
    "deviation.sequential.elastic.end": ("<=", 10),
}


def sides(folder: Path, segment_bytes: int = 8 << 20) -> Sides:
    return {"elastic": Elastic(folder / "elastic", segment_bytes), "delta": DeltaQueue(folder / "delta")}


def enqueue_figures(folder: Path, batches: int, rows: int) -> tuple[dict[str, object], dict[str, list[float]]]:
    """Batch after batch into both in turns; a quarter is dequeued at the end, five at a time."""
    found = sides(folder, batches * rows * 1024 // 25)
    times: dict[str, list[float]] = {name: [] for name in found}
    bytes_written = dict.fromkeys(found, 0)
    payload = 0
    for number in range(batches):
        given = rows_of(np.arange(number * rows, (number + 1) * rows))
        payload += given.nbytes
        for name, side in found.items():
            before = written()
            times[name].append(seconds(partial(side.enqueue, given)))
            bytes_written[name] += written() - before
    disk = {}
    quarter = batches // 4 // 5 * 5
    for name, side in found.items():
        before = written()
        for after in range(0, quarter, 5):
            if side.dequeue(after, after + 5) != 5 * rows:
                raise SystemExit(f"{name} lost rows")
        side.tidy()
        bytes_written[name] += written() - before
        disk[name] = stored(side.folder) / payload
        side.close()
    ordered = {name: sorted(each) for name, each in times.items()}
    results = {
        "enqueue_vs_delta": sum(times["delta"]) / sum(times["elastic"]),
        "enqueue_ms": {
            name: {"p50": 1e3 * each[len(each) // 2], "p99": 1e3 * each[int(0.99 * len(each))]}
            for name, each in ordered.items()
        },
        "bytes_written_per_byte": {name: size / payload for name, size in bytes_written.items()},
        "disk_at_quarter_dequeued": disk,
    }
    return results, times


def dequeue_figures(folder: Path, pending: int, rows: int, rounds: int) -> dict[str, object]:
    """The time to read one batch of five with so many pending, and with ten times as many."""
    medians: dict[int, dict[str, float]] = {}
    for factor in (1, 10):
        found = sides(folder / str(factor))
        for number in range(pending * factor):
            given = rows_of(np.arange(number * rows, (number + 1) * rows))
            for side in found.values():
                side.enqueue(given)

        def read(side: Elastic | DeltaQueue) -> Callable[[], float]:
            return lambda: seconds(lambda: side.read(0, 5))

        actions = {name: read(side) for name, side in found.items()}
        in_turns(actions, 2)
        medians[factor] = {name: median(each) for name, each in in_turns(actions, 7 * rounds).items()}
        for side in found.values():
            side.close()
    return {
        "dequeue_growth": {name: medians[10][name] / medians[1][name] for name in medians[1]},
        "dequeue_ms": {name: 1e3 * medians[1][name] for name in medians[1]},
    }


def all_writers_figures(folder: Path, scale: str) -> dict[str, object]:
    """Producers in other processes, with commits of the usual size and of others."""
    rows, rounds = WRITER_ROWS[scale], ROUNDS[scale]
    results: dict[str, object] = {}
    for size in (rows, *OTHER_ROWS):
        place = folder / str(size)
        place.mkdir(parents=True)
        found = writers_figures(place, COMMITS[scale] * rows // size, size, rounds)
        if size == rows:
            results |= found
        else:
            names = ("owner_cpu_share", "owner_cpu_ms_per_commit")
            results |= {f"{name}_with_{size}_rows": found[name] for name in names}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    scale = given.scale
    rows, rounds = ROWS[scale], ROUNDS[scale]
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        folder = Path(place)
        for part in given.parts:
            say(part)
            match part:
                case "enqueue":
                    found, times = enqueue_figures(folder / part, BATCHES[scale], rows)
                    draw_latency(OUTPUT / "queue_latency.png", times)
                case "dequeue":
                    found = dequeue_figures(folder / part, PENDING[scale], rows, rounds)
                case "writers":
                    found = all_writers_figures(folder / part, scale)
                case _:
                    found, course, load = balance_figures(folder / part, *BALANCE[scale])
                    draw_balance(OUTPUT / "queue_balance.png", course, load)
            results |= found
    publish("queue", scale, results, TARGETS)


if __name__ == "__main__":
    main()
