"""Loading: a first load of links like LinkBench's, from PostgreSQL (`benchmarks.loading_postgres`) and from files.

    make bench NAME=loading SCALE=tiny|small|full

    files       CSV files are moved into the folder, COUNT(*) has them all at bound 0, then the table is stored;
                baseline: pyarrow reads the same files, sorts by the key, and writes one Parquet file; copy: the files are copied

`load_vs_baseline` is the baseline's time over headgate's: 1 is as fast. `bytes_written_per_byte` is what headgate's processes wrote
to the disk over the size of the stored table.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv

import headgate
from benchmarks.loading_postgres import COLUMNS, KEY, LINKS, ROUNDS, TARGETS, Written, measure, write_sorted
from benchmarks.report import median, parse_scale, publish, say, seconds
from benchmarks.spark import spark_settings
from headgate.runtime.spark.sessions import SparkSessions

FILES = 8


def project(folder: Path, scale: str, sources: dict[str, object]) -> dict[str, object]:
    return {
        "name": "loading",
        "storage": str(folder / "warehouse"),
        "spark": spark_settings(scale, "1g"),
        "sources": sources,
        # Every load is a large one.
        "limits": {"spark_load_bytes": "1MiB" if scale != "tiny" else "64KiB"},
    }


def count(warehouse: headgate.Warehouse, table: str, rows: int) -> None:
    found = warehouse.sql(f"SELECT COUNT(*) AS n FROM {table}").collect()[0]["n"]
    if found != rows:
        raise SystemExit(f"{table} has {found} rows, not {rows}")


def stored(warehouse: headgate.Warehouse, table: str, before: int, written: Written) -> float:
    """Stores the table; bytes that were written since over its size."""
    warehouse.materialize()
    return (written.bytes() - before) / warehouse.replica(table).main.newest_index.bytes


def main() -> None:
    scale = parse_scale(__doc__ or "")
    rows, rounds = LINKS[scale], ROUNDS[scale]
    postgres = measure(scale)
    times: dict[str, list[float]] = defaultdict(list)
    written = Written()
    # Spark's start is no part of a load.
    sessions = SparkSessions(spark_settings(scale, "1g"), "loading")
    try:
        for number in range(rounds):
            with tempfile.TemporaryDirectory() as name:
                one_round(Path(name), scale, rows, written, times)
            say(f"  round {number + 1}: " + ", ".join(f"{key} {each[-1]:.2f}" for key, each in times.items()))
    finally:
        sessions.stop()
        written.close()

    def ratio(over: str, under: str) -> float:
        return median([one / other for one, other in zip(times[over], times[under], strict=True)])

    results = {
        "rows": rows,
        "postgres": postgres,
        "files": {
            "load_vs_baseline": ratio("files baseline", "files"),
            "load_vs_copy": ratio("files", "copy"),
            "bytes_written_per_byte": median(times["files bytes"]),
            "seconds": median(times["files"]),
            "baseline_seconds": median(times["files baseline"]),
            "copy_seconds": median(times["copy"]),
        },
    }
    publish("loading", scale, results, TARGETS)


def one_round(folder: Path, scale: str, rows: int, written: Written, times: dict[str, list[float]]) -> None:
    made, landing = folder / "made", folder / "landing"
    made.mkdir()
    landing.mkdir()
    for number in range(FILES):
        first, end = rows * number // FILES, rows * (number + 1) // FILES
        pcsv.write_csv(links(range(first + 1, end + 1)), made / f"{number}.csv")
    times["copy"].append(seconds(lambda: shutil.copytree(made, folder / "copied")))

    def read_files() -> None:
        parts = [pcsv.read_csv(path) for path in sorted(made.glob("*.csv"))]
        write_sorted(pa.concat_tables(parts), folder / "files.parquet")

    times["files baseline"].append(seconds(read_files))
    table = {"path": str(landing), "format": "csv", "key": KEY, "columns": COLUMNS, "multiline": False}
    before = written.bytes()
    with headgate.open(
        project(folder, scale, {"landing": {"type": "files", "settle": "0s", "tables": {"links": table}}})
    ) as warehouse:

        def take() -> None:
            for path in made.glob("*.csv"):
                path.rename(landing / path.name)
            count(warehouse, "landing.links", rows)

        times["files"].append(seconds(take))
        times["files bytes"].append(stored(warehouse, "landing.links", before, written))


def links(numbers: range) -> pa.Table:
    """The same links as those of the PostgreSQL table."""
    return pa.table(
        {
            "id1": [i // 5 for i in numbers],
            "link_type": [123456789 + i % 2 for i in numbers],
            "id2": [i * 7919 % 1000003 for i in numbers],
            "visibility": [1 for _ in numbers],
            "data": [hashlib.md5(str(i).encode(), usedforsecurity=False).hexdigest() for i in numbers],
            "time": [1700000000 + i for i in numbers],
            "version": [0 for _ in numbers],
        }
    )


if __name__ == "__main__":
    main()
