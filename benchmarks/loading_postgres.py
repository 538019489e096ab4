"""Loading from PostgreSQL: links like LinkBench's, while writers write and queries are asked from the first second.

    headgate    opens over links and a small table; five times a second somebody asks for the links of one id, ids with skew;
                the load has ended when every range is durable in the table's base files
    baseline    COPY piped into a pyarrow sort by the key and one Parquet file, while the same writers write

`load_vs_baseline` is the baseline's time over headgate's: 1 is as fast. `first_answer_vs_loaded` is the time until the first answer over
the time until everything is loaded, `opened_vs_loaded` until the warehouse is open. `bytes_written_per_byte` is what headgate's
processes, the server left out, wrote to the disk until the load had ended, over the size of the base files. Afterwards the writers
stop, and the table is compared with the source.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
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
ROUNDS = {"tiny": 1, "small": 1, "full": 1}
QUERIES_A_SECOND = 5.0
WRITES_A_SECOND = 50.0
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
    "postgres.first_answer_vs_loaded": ("<=", 0.2),
    "postgres.bytes_written_per_byte": ("<=", 1.3),
}
_TABLE = """
CREATE TABLE links (id1 bigint, link_type bigint, id2 bigint, visibility int NOT NULL, data text NOT NULL, time bigint NOT NULL,
                    version int NOT NULL, PRIMARY KEY (id1, link_type, id2));
INSERT INTO links SELECT i / 5, 123456789 + i % 2, (i * 7919) % 1000003, 1, md5(i::text), 1700000000 + i, 0
FROM generate_series(1::bigint, {rows}) i;
CREATE TABLE kinds (link_type bigint PRIMARY KEY, name text); INSERT INTO kinds VALUES (123456789, 'a'), (123456790, 'b');
ANALYZE links;
"""
_SUMS = "SELECT count(*), sum(version), sum(id1 * 31 + id2), min(data), max(data) FROM {}"


class Written:
    """Bytes that this process and those that it started have put on the disk, those included that have ended, others left out."""

    def __init__(self, without: int | None = None) -> None:
        """`without`: a process that does not count, nor do those that it started."""
        self._without = without
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
            if process == self._without:
                continue
            left += children[process]
            try:
                known = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
            except OSError:
                continue
            self._seen[process] = int(known["write_bytes"])


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


@contextmanager
def writing(dsn: str, rows: int) -> Iterator[None]:
    """Inside the block somebody changes, adds and deletes links, at a constant rate."""
    done, chance = threading.Event(), random.Random(7)

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not done.wait(1 / WRITES_A_SECOND):
                link = chance.randrange(rows // 5)
                match chance.randrange(4):
                    case 0:
                        new = "INSERT INTO links VALUES (%s, 1, %s, 1, 'new', 0, 0) ON CONFLICT DO NOTHING"
                        connection.execute(new, [link, chance.randrange(1_000_000)])
                    case 1:
                        gone = "DELETE FROM links WHERE id1 = %s AND link_type = 1"
                        connection.execute(gone, [link])
                    case _:
                        connection.execute("UPDATE links SET version = version + 1 WHERE id1 = %s", [link])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Asking:
    """Asks for the links of ids, with skew, at a constant rate whatever the answers take."""

    def __init__(self, warehouse: headgate.Warehouse, rows: int, began: float) -> None:
        self.answered: list[tuple[float, float]] = []
        """When each was asked, since the beginning, and how long it took."""
        self._warehouse = warehouse
        self._began = began
        self._ids = rows // 5
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(64)
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._pool.shutdown()

    def _ask(self) -> None:
        chance, asked = random.Random(3), 0
        while not self._done.is_set():
            self._pool.submit(self._one, int(self._ids * chance.random() ** 4))
            asked += 1
            self._done.wait(max(0.0, self._began + asked / QUERIES_A_SECOND - time.monotonic()))

    def _one(self, link: int) -> None:
        asked = time.monotonic()
        text = f"SELECT id2, data FROM db.links WHERE id1 = {link} AND link_type = 123456789"
        with self._warehouse.session().sql(text, max_staleness="any") as answer:
            answer.to_arrow()
        self.answered.append((asked - self._began, time.monotonic() - asked))


class Started:
    """A Spark that runs before warehouses are opened, and stays between them."""

    def __init__(self, scale: str) -> None:
        self._sessions = SparkSessions(spark_settings(scale, "1g"), "loading")
        self._sessions.wait()

    def close(self) -> None:
        self._sessions.stop()


def measure(scale: str, folder: Path | None = None) -> dict[str, object]:
    """All rounds against one server."""
    rows, times = LINKS[scale], defaultdict[str, list[float]](list)
    with (
        # Spark's start is no part of a load.
        closing(Started(scale)),
        PostgresServer() as server,
        psycopg.connect(server.dsn, autocommit=True) as connection,
    ):
        connection.execute(_TABLE.format(rows=rows).encode())
        for number in range(ROUNDS[scale]):
            with tempfile.TemporaryDirectory(dir=folder) as name:
                one_round(Path(name), scale, rows, server, connection, times)
            # The next round begins at first contact.
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            say(f"  round {number + 1}: " + ", ".join(f"{key} {each[-1]:.2f}" for key, each in times.items()))

    def ratio(over: str, under: str) -> float:
        return median([one / other for one, other in zip(times[over], times[under], strict=True)])

    return {
        "load_vs_baseline": ratio("baseline", "loaded"),
        "first_answer_vs_loaded": ratio("first answer", "loaded"),
        "bytes_written_per_byte": median(times["bytes"]),
        "opened_vs_loaded": ratio("opened", "loaded"),
        "small_table_vs_loaded": ratio("small table", "loaded"),
        "answered_before_loaded": median(times["answered before loaded"]),
        "median_answer_seconds": median(times["median answer"]),
        "seconds": median(times["loaded"]),
        "baseline_seconds": median(times["baseline"]),
    }


def one_round(
    folder: Path,
    scale: str,
    rows: int,
    server: PostgresServer,
    connection: psycopg.Connection,
    times: dict[str, list[float]],
) -> None:
    with writing(server.dsn, rows):
        times["baseline"].append(seconds(lambda: copy_baseline(server.dsn, folder / "copied.parquet")))
    project = {
        "name": "loading",
        "storage": str(folder / "warehouse"),
        "spark": spark_settings(scale, "1g"),
        "sources": {"db": {"type": "postgres", "dsn": server.dsn, "tables": {"links": {}, "kinds": {}}}},
        "limits": {"spark_load_bytes": "1MiB"} if scale == "tiny" else {},
    }
    written = Written(server.pid)
    before = written.bytes()
    with ExitStack() as writers:
        writers.enter_context(writing(server.dsn, rows))
        began = time.monotonic()
        with headgate.open(project) as warehouse:
            opened = time.monotonic()
            asking = Asking(warehouse, rows, opened)
            warehouse.sql("SELECT COUNT(*) AS n FROM db.kinds").collect()
            times["small table"].append(time.monotonic() - began)
            while warehouse.loads:
                time.sleep(0.02)
            ended = time.monotonic()
            times["bytes"].append((written.bytes() - before) / warehouse.replica("db.links").main.newest_index.bytes)
            asking.close()
            written.close()
            writers.close()
            compare(warehouse, connection)
    times["opened"].append(opened - began)
    times["loaded"].append(ended - began)
    answered = asking.answered
    times["first answer"].append(opened - began + min(asked + took for asked, took in answered))
    times["median answer"].append(median([took for _, took in answered]))
    half = (ended - opened) / 2
    early = [asked + took < 2 * half for asked, took in answered if asked < half]
    times["answered before loaded"].append(sum(early) / max(len(early), 1))


def compare(warehouse: headgate.Warehouse, connection: psycopg.Connection) -> None:
    """The table and the source, once nobody writes any more."""
    (source,) = connection.execute(_SUMS.format("links").encode()).fetchall()
    with warehouse.sql(_SUMS.format("db.links"), max_staleness="0s") as answer:
        (found,) = answer.to_arrow().to_pylist()
    if tuple(map(str, found.values())) != tuple(map(str, source)):
        raise SystemExit(f"links has {found}, and the source {source}")


if __name__ == "__main__":
    chosen = parse_scale(__doc__ or "")
    publish("loading_postgres", chosen, {"rows": LINKS[chosen], "postgres": measure(chosen)}, TARGETS)
