"""Loading: a first load of links like LinkBench's, from PostgreSQL and from files, until it can be asked and is stored.

    make bench NAME=loading SCALE=tiny|small|full

    postgres    headgate opens over links and a small table, answers from the small one, and COUNT(*) of links, then stores links;
                baseline: COPY piped into a pyarrow sort by the key and one Parquet file
    files       CSV files are moved into the folder, COUNT(*) has them all at bound 0, then the table is stored;
                baseline: pyarrow reads the same files, sorts by the key, and writes one Parquet file; copy: the files are copied

`load_vs_baseline` is the baseline's time over headgate's: 1 is as fast. `bytes_written_per_byte` is what headgate's processes wrote
to the disk over the size of the stored table. `opened_vs_loaded` and `small_table_vs_loaded` are
the times until the warehouse is open, and until the small table is answered, over the time until links are. Ranges of one table that answer
before the rest is loaded do not exist yet: `first_answer_vs_loaded` is 1 by construction and is not reported.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

import headgate
from benchmarks.report import median, parse_scale, publish, say, seconds
from benchmarks.spark import spark_settings
from headgate.capture.postgres.private_server import PostgresServer
from headgate.runtime.spark.sessions import SparkSessions

LINKS = {"tiny": 20_000, "small": 5_000_000, "full": 100_000_000}
ROUNDS = {"tiny": 1, "small": 3, "full": 1}
FILES = 8
COLUMNS = {
    "id1": "bigint",
    "link_type": "bigint",
    "id2": "bigint",
    "visibility": "int",
    "data": "string",
    "time": "bigint",
    "version": "int",
}
KEY = ["id1", "link_type", "id2"]
TARGETS = {
    "postgres.load_vs_baseline": (">=", 0.5),
    "postgres.bytes_written_per_byte": ("<=", 1.3),
}
_TABLE = """
CREATE TABLE links (id1 bigint, link_type bigint, id2 bigint, visibility int NOT NULL, data text NOT NULL, time bigint NOT NULL,
                    version int NOT NULL, PRIMARY KEY (id1, link_type, id2));
INSERT INTO links SELECT i / 5, 123456789 + i % 2, (i * 7919) % 1000003, 1, md5(i::text), 1700000000 + i, 0
FROM generate_series(1, {rows}) i;
CREATE TABLE kinds (link_type bigint PRIMARY KEY, name text); INSERT INTO kinds VALUES (123456789, 'a'), (123456790, 'b');
ANALYZE links;
"""


class Written:
    """Bytes that this process and those that it started have put on the disk, those included that have ended."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def bytes(self) -> int:
        self._look()
        return sum(self._seen.values())

    def close(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self._look()

    def _look(self) -> None:
        children: dict[int, list[int]] = defaultdict(list)
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    fields = (place / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                children[int(fields[1])].append(int(place.name))
        left = [os.getpid()]
        while left:
            process = left.pop()
            left += children[process]
            try:
                known = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
            except OSError:
                continue
            self._seen[process] = int(known["write_bytes"])


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
    return (written.bytes() - before) / warehouse.replica(table).main.bytes


def copy_baseline(dsn: str, target: Path) -> None:
    reader, writer = os.pipe()

    def pump() -> None:
        with (
            os.fdopen(writer, "wb") as sink,
            psycopg.connect(dsn) as connection,
            connection.cursor().copy("COPY links TO STDOUT (FORMAT csv)") as copied,
        ):
            for block in copied:
                sink.write(block)

    thread = threading.Thread(target=pump)
    thread.start()
    with os.fdopen(reader, "rb") as stream:
        write_sorted(pcsv.read_csv(stream, read_options=pcsv.ReadOptions(column_names=list(COLUMNS))), target)
    thread.join()


def write_sorted(rows: pa.Table, target: Path) -> None:
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in KEY])
    pq.write_table(rows.take(order), target, row_group_size=8_000)


def main() -> None:
    scale = parse_scale(__doc__ or "")
    rows, rounds = LINKS[scale], ROUNDS[scale]
    times: dict[str, list[float]] = defaultdict(list)
    written = Written()
    # Spark's start is no part of a load.
    sessions = SparkSessions(spark_settings(scale, "1g"), "loading")
    try:
        with PostgresServer() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(_TABLE.format(rows=rows).encode())
            for number in range(rounds):
                with tempfile.TemporaryDirectory() as name:
                    one_round(Path(name), scale, rows, server.dsn, written, times)
                # The next round begins at first contact.
                connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
                say(f"  round {number + 1}: " + ", ".join(f"{key} {each[-1]:.2f}" for key, each in times.items()))
    finally:
        sessions.stop()
        written.close()

    def ratio(over: str, under: str) -> float:
        return median([one / other for one, other in zip(times[over], times[under], strict=True)])

    results = {
        "rows": rows,
        "postgres": {
            "load_vs_baseline": ratio("postgres baseline", "postgres"),
            "bytes_written_per_byte": median(times["postgres bytes"]),
            "opened_vs_loaded": ratio("opened", "postgres"),
            "small_table_vs_loaded": ratio("small table", "postgres"),
            "seconds": median(times["postgres"]),
            "baseline_seconds": median(times["postgres baseline"]),
        },
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


def one_round(folder: Path, scale: str, rows: int, dsn: str, written: Written, times: dict[str, list[float]]) -> None:
    times["postgres baseline"].append(seconds(lambda: copy_baseline(dsn, folder / "copied.parquet")))
    made, landing = folder / "made", folder / "landing"
    made.mkdir()
    landing.mkdir()
    whole = pq.read_table(folder / "copied.parquet")
    for number in range(FILES):
        part = whole.slice(rows * number // FILES, rows * (number + 1) // FILES - rows * number // FILES)
        pcsv.write_csv(part, made / f"{number}.csv")
    del whole
    times["copy"].append(seconds(lambda: shutil.copytree(made, folder / "copied")))

    def read_files() -> None:
        parts = [pcsv.read_csv(path) for path in sorted(made.glob("*.csv"))]
        write_sorted(pa.concat_tables(parts), folder / "files.parquet")

    times["files baseline"].append(seconds(read_files))
    links = {"path": str(landing), "format": "csv", "key": KEY, "columns": COLUMNS, "multiline": False}
    sources = {
        "db": {"type": "postgres", "dsn": dsn, "tables": {"links": {}, "kinds": {}}},
        "landing": {"type": "files", "settle": "0s", "tables": {"links": links}},
    }
    before = written.bytes()
    opened: list[headgate.Warehouse] = []

    def load() -> None:
        began = time.monotonic()
        opened.append(headgate.open(project(folder, scale, sources)))
        times["opened"].append(time.monotonic() - began)
        count(opened[0], "db.kinds", 2)
        times["small table"].append(time.monotonic() - began)
        count(opened[0], "db.links", rows)

    try:
        times["postgres"].append(seconds(load))
        (warehouse,) = opened
        times["postgres bytes"].append(stored(warehouse, "db.links", before, written))
        before = written.bytes()

        def take() -> None:
            for path in made.glob("*.csv"):
                path.rename(landing / path.name)
            count(warehouse, "landing.links", rows)

        times["files"].append(seconds(take))
        times["files bytes"].append(stored(warehouse, "landing.links", before, written))
    finally:
        for warehouse in opened:
            warehouse.close()


if __name__ == "__main__":
    main()
