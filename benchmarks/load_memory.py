"""Loads one table of a given number of rows and prints the peak memory of Python and JVM beyond the JVM's heap."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa

import headgate

HEAP_MB = 1024
CHUNK = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    rows = int(parser.parse_args().rows)
    sampler = Sampler()
    sampler.start()
    with tempfile.TemporaryDirectory() as folder:
        project = {
            "name": "load",
            "storage": str(Path(folder) / "warehouse"),
            "spark": {
                "spark.master": "local[2]",
                "spark.driver.memory": f"{HEAP_MB}m",
                # The whole heap is resident from the start, so that what lies beyond it is not hidden in its unused part.
                "spark.driver.extraJavaOptions": f"-Xms{HEAP_MB}m -XX:+AlwaysPreTouch",
            },
            "sources": {
                "shop": {
                    "type": "memory",
                    "tables": {
                        "facts": {
                            "columns": {"id": "bigint", "a": "bigint", "b": "bigint", "c": "double", "d": "string"},
                            "key": ["id"],
                        }
                    },
                }
            },
        }
        with headgate.open(project) as warehouse:
            with warehouse.source("shop").transaction(initial=True) as transaction:
                for start in range(0, rows, CHUNK):
                    transaction.insert_many("facts", _chunk(start, min(CHUNK, rows - start)))
            warehouse.refresh()
            found = warehouse.sql("SELECT COUNT(*) AS n, SUM(a) AS a FROM shop.facts").collect()[0]
    peak = sampler.stop()
    if found["n"] != rows:
        raise SystemExit(f"loaded {found['n']} rows of {rows}")
    sys.stdout.write(json.dumps({"rows": rows, "peak_rss_mb": peak - HEAP_MB}) + "\n")


def _chunk(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "id": numbers,
            "a": numbers % 1_000,
            "b": numbers * 7919 % 1_000_003,
            "c": numbers / 3.0,
            "d": pa.array([f"row {number}" for number in numbers.tolist()]),
        }
    )


class Sampler:
    """The highest sum of resident memory of this process and its children, in MiB; shared pages count once."""

    def __init__(self) -> None:
        self._peak = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self._peak

    def _run(self) -> None:
        while not self._done.wait(0.1):
            self._peak = max(self._peak, sum(_resident(process) for process in _family(os.getpid())) / 1024)


def _family(root: int) -> list[int]:
    """The process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    family = [root]
    for process in family:
        family.extend(child for child, parent in parents.items() if parent == process)
    return family


def _resident(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


if __name__ == "__main__":
    main()
