"""Loading from files: links like LinkBench's in CSV files behind a slow network, while five queries a second ask for the links of an id.

    copy         the files are copied, and that is all
    demand       headgate opens over the slow folder: copies, distributes, and loads ranges in the order of who waits
    full         the files are copied, then headgate takes them whole, and then it answers
    duckdb       the files are copied, then DuckDB takes them into a table with the same key
    postgres     the files are copied, then COPY into a table and its primary key

The network is a limit of 12.5 MB/s on reading the files, in every variant; the unthrottled figures are beside. Queries begin with
the copy, open loop: each is asked at its time, whatever became of those before, and in the variants that copy first all that
came during the copy wait for the table. Those copies are the same, so one is measured and counts for all. `up` is when the last
chunk is distributed, `loaded` when every range is in the table's files, or the table answers for all rows. Every answer is compared
with the rows of the files. `answered_before_loaded`: of the queries that came in the first half between up and loaded, those that
were answered before loaded.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.csv as pcsv

import headgate
from benchmarks.loading_plot import draw_latency
from benchmarks.loading_postgres import COLUMNS, KEY, LINKS, QUERIES_A_SECOND
from benchmarks.report import SCALES, publish, say
from benchmarks.spark import spark_settings
from headgate.capture.files.copying import Copier
from headgate.capture.files.layout import FileLayout
from headgate.capture.files.listing import list_files
from headgate.capture.postgres.private_server import PostgresServer
from headgate.runtime.spark.sessions import SparkSessions

RATE = {"tiny": 2_000_000, "small": 12_500_000, "full": 12_500_000}
FILES = 8
RANGES = {"tiny": 4, "small": 32, "full": 128}
SKEW = 3.0
TYPES = (123_456_789, 123_456_790)
QUERY = "SELECT id2, visibility, data, time, version FROM {table} WHERE id1 = {id1} AND link_type = {link_type}"
PLOT = Path(__file__).parent.parent / "docs/img/loading_files.png"
TARGETS = {
    "files.up_vs_copy": ("<=", 1.15),
    "files.up_vs_full_load": ("<=", 0.6),
    "files.answered_before_loaded": (">=", 0.9),
    "files.total_vs_full_load": ("<=", 1.25),
}
PARTS = ("throttled", "unthrottled", "others")
Ask = Callable[[int, int], int]
"""How many links an id has of a type."""


@dataclass
class Links:
    """The rows of the files, and how many each id has of a type."""

    rows: int
    counts: np.ndarray

    @staticmethod
    def make(folder: Path, rows: int) -> Links:
        """Writes files in which ids are mixed, as links come in."""
        folder.mkdir()
        order = np.random.default_rng(7).permutation(rows).astype(np.int64)
        id1, kind = order // 5, order % 2
        for number in range(FILES):
            part = slice(rows * number // FILES, rows * (number + 1) // FILES)
            mine = order[part]
            data = pa.array([f"{each * 2654435761 % (1 << 64):016x}{each:016x}" for each in mine.tolist()])
            table = pa.table(
                {
                    "id1": id1[part],
                    "link_type": kind[part] + TYPES[0],
                    "id2": (mine * 7919) % 1_000_003,
                    "visibility": np.ones(len(mine), np.int32),
                    "data": data,
                    "time": 1_700_000_000 + mine,
                    "version": np.zeros(len(mine), np.int32),
                }
            )
            pcsv.write_csv(table, folder / f"{number}.csv")
        counts = np.zeros((rows // 5 + 1, 2), np.int64)
        np.add.at(counts, (id1, kind), 1)
        return Links(rows, counts)

    def draw(self, chance: random.Random) -> tuple[int, int]:
        """An id, low ones more often, and a type."""
        return int(len(self.counts) * chance.random() ** SKEW) % len(self.counts), chance.randrange(2)


@dataclass
class Queries:
    """Queries that are asked one after the other at a constant rate, from its making until it is closed."""

    links: Links
    began: float = field(default_factory=time.monotonic)
    took: list[tuple[float, float]] = field(default_factory=list)
    """When each came, since the beginning, and how long it took."""
    _ask: Ask | None = None
    _is_there: threading.Condition = field(default_factory=threading.Condition)
    _threads: list[threading.Thread] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._clock = threading.Thread(target=self._run, daemon=True)
        self._clock.start()

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def answer_with(self, ask: Ask) -> None:
        """From now on there is somebody who answers."""
        with self._is_there:
            self._ask = ask
            self._is_there.notify_all()

    def close(self) -> None:
        """No more come; those that wait are answered first."""
        self._done.set()
        self._clock.join()
        for thread in self._threads:
            thread.join(600)
        if self._wrong:
            raise SystemExit("\n".join(self._wrong[:5]))

    def _run(self) -> None:
        chance = random.Random(11)
        for number in range(1_000_000):
            at = number / QUERIES_A_SECOND
            if self._done.wait(max(0.0, at - self.now)):
                return
            thread = threading.Thread(target=self._one, args=(at, *self.links.draw(chance)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _one(self, at: float, id1: int, kind: int) -> None:
        with self._is_there:
            self._is_there.wait_for(lambda: self._ask is not None)
        assert self._ask is not None
        try:
            found = self._ask(id1, TYPES[kind])
        except Exception as error:
            self._wrong.append(f"query at {at:.1f} s: {error}")
            return
        if found != self.links.counts[id1, kind]:
            self._wrong.append(f"id {id1} has {found} links of type {kind}, not {self.links.counts[id1, kind]}")
        self.took.append((at, self.now - at))


@dataclass
class Course:
    """What one variant did, in seconds from its beginning on."""

    loaded: float
    took: list[tuple[float, float]]
    up: float | None = None
    opened: float | None = None


class UpAt(logging.Handler):
    """Notes when files are distributed."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.at: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("files are distributed"):
            self.at = time.monotonic()


def copied(files: Path, target: Path, rate: int | None) -> float:
    """Copies the files as the loader does; the seconds it took."""
    target.mkdir()
    copier, began = Copier(target, rate, lambda: False), time.monotonic()
    for number, (path, file) in enumerate(sorted(list_files([str(files)]).items())):
        copier.piece(number, path, file, FileLayout("parquet"), 0, 0)
    os.sync()
    return time.monotonic() - began


def project(folder: Path, scale: str, landing: Path, rate: int | None, by_range: bool) -> dict[str, object]:
    links: dict[str, object] = {
        "path": str(landing),
        "format": "csv",
        "key": KEY,
        "columns": COLUMNS,
        "multiline": False,
    }
    source: dict[str, object] = {"type": "files", "settle": "0s", "tables": {"links": links}}
    if by_range:
        links["ranges"] = {"column": "id1", "count": RANGES[scale]}
    if rate is not None:
        source["load_rate"] = rate
    return {
        "name": "loading",
        "storage": str(folder / "warehouse"),
        "spark": spark_settings(scale, "1g"),
        "sources": {"landing": source},
        "limits": {"spark_load_bytes": "1MiB" if scale != "tiny" else "64KiB"},
    }


def headgate_asks(warehouse: headgate.Warehouse) -> Ask:
    def ask(id1: int, link_type: int) -> int:
        text = QUERY.format(table="landing.links", id1=id1, link_type=link_type)
        with warehouse.sql(text, max_staleness="10s", deadline="600s") as answer:
            return int(answer.to_arrow().num_rows)

    return ask


def by_demand(folder: Path, scale: str, files: Path, links: Links, rate: int | None) -> Course:
    noted, logger = UpAt(), logging.getLogger("headgate.capture.files.loads")
    logger.addHandler(noted)
    logger.setLevel(logging.INFO)
    queries = Queries(links)
    try:
        with headgate.open(project(folder, scale, files, rate, by_range=True)) as warehouse:
            opened = queries.now
            queries.answer_with(headgate_asks(warehouse))
            while warehouse.loads:
                time.sleep(0.05)
            loaded = queries.now
            queries.close()
            count = warehouse.sql("SELECT COUNT(*) AS n FROM landing.links").collect()[0]["n"]
            if count != links.rows:
                raise SystemExit(f"{count} links are there, not {links.rows}")
    finally:
        logger.removeHandler(noted)
    assert noted.at is not None
    return Course(loaded, queries.took, noted.at - queries.began, opened)


def after_copy(links: Links, copy: float, load: Callable[[], Ask], close: Callable[[], None]) -> Course:
    """What loads after the copy, at whose end the queries are there that came meanwhile."""
    queries = Queries(links, time.monotonic() - copy)
    ask = load()
    loaded = queries.now
    queries.answer_with(ask)
    # Those that waited, and some that come then.
    time.sleep(5)
    queries.close()
    close()
    return Course(loaded, queries.took)


def whole(folder: Path, scale: str, files: Path, links: Links, copy: float) -> Course:
    opened: list[headgate.Warehouse] = []

    def load() -> Ask:
        warehouse = headgate.open(project(folder, scale, files, None, by_range=False))
        opened.append(warehouse)
        count = warehouse.sql("SELECT COUNT(*) AS n FROM landing.links", deadline="600s").collect()[0]["n"]
        if count != links.rows:
            raise SystemExit(f"{count} links are there, not {links.rows}")
        # Until then they are in the load's changes.
        warehouse.materialize()
        return headgate_asks(warehouse)

    return after_copy(links, copy, load, lambda: opened[0].close())


def in_duckdb(folder: Path, files: Path, links: Links, copy: float) -> Course:
    database = duckdb.connect(str(folder / "links.duckdb"))
    database.execute("SET threads = 2")

    def load() -> Ask:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        database.execute(
            f"CREATE TABLE links ({columns.replace(' string', ' varchar')}, PRIMARY KEY ({', '.join(KEY)}))"
        )
        database.execute(f"COPY links FROM '{files}/*.csv' (HEADER)")
        database.execute("CHECKPOINT")
        return ask

    def ask(id1: int, link_type: int) -> int:
        with database.cursor() as cursor:
            text = QUERY.format(table="links", id1=id1, link_type=link_type)
            return len(cursor.execute(text).fetchall())

    return after_copy(links, copy, load, database.close)


def in_postgres(files: Path, links: Links, copy: float) -> Course:
    with PostgresServer() as server:
        lock = threading.Lock()
        connection = psycopg.connect(server.dsn, autocommit=True)

        def load() -> Ask:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()).replace(" string", " text")
            connection.execute(f"CREATE TABLE links ({columns})".encode())
            for path in sorted(files.glob("*.csv")):
                with (
                    connection.cursor().copy("COPY links FROM STDIN (FORMAT csv, HEADER)") as stream,
                    path.open("rb") as file,
                ):
                    while block := file.read(1 << 20):
                        stream.write(block)
            connection.execute(f"ALTER TABLE links ADD PRIMARY KEY ({', '.join(KEY)})".encode())
            return ask

        def ask(id1: int, link_type: int) -> int:
            with lock:
                text = QUERY.format(table="links", id1=id1, link_type=link_type)
                return len(connection.execute(text.encode()).fetchall())

        return after_copy(links, copy, load, connection.close)


def answered_before_loaded(course: Course) -> float:
    assert course.up is not None
    half = (course.up + course.loaded) / 2
    came = [at + took < course.loaded for at, took in course.took if course.up <= at <= half]
    return sum(came) / len(came) if came else 1.0


def measure(scale: str, parts: Sequence[str] = PARTS) -> dict[str, object]:
    """The figures of all variants; one round, since the network makes rounds long and alike."""
    rate = RATE[scale]
    # The start of Spark and of its Python workers is no part of a load.
    sessions = SparkSessions(spark_settings(scale, "1g"), "loading")
    sessions.context.parallelize(range(2), 2).map(str).collect()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = folder / "files"
        links = Links.make(files, LINKS[scale])
        size = sum(path.stat().st_size for path in files.iterdir())
        say(f"  {links.rows:,} links, {size / 1e6:,.0f} MB in {FILES} files")
        try:
            found: dict[str, dict[str, Course]] = {}
            copies: dict[str, float] = {}
            for kind, limit in (("throttled", rate), ("unthrottled", None)):
                if kind not in parts:
                    continue
                copies[kind] = copied(files, folder / f"copy {kind}", limit)
                say(f"  {kind} copy: {copies[kind]:.1f} s")
                shutil.rmtree(folder / f"copy {kind}")
                courses = found[kind] = {}
                for variant, run in (
                    ("demand", lambda home, limit=limit: by_demand(home, scale, files, links, limit)),
                    ("full", lambda home, copy=copies[kind]: whole(home, scale, files, links, copy)),
                ):
                    home = folder / f"{variant} {kind}"
                    home.mkdir()
                    courses[variant] = run(home)
                    say_course(variant, courses[variant])
                    shutil.rmtree(home, ignore_errors=True)
        finally:
            sessions.stop()
        (folder / "duckdb").mkdir()
        others: dict[str, Course] = {}
        if "others" in parts:
            copy = copies.get("throttled", size / rate)
            others["duckdb"] = in_duckdb(folder / "duckdb", files, links, copy)
            others["postgres"] = in_postgres(files, links, copy)
        for variant, course in others.items():
            say_course(variant, course)
    if "throttled" in parts and scale != "tiny":
        demand = found["throttled"]["demand"]
        assert demand.up is not None
        everyone = {name: (course.took, course.loaded) for name, course in {**found["throttled"], **others}.items()}
        draw_latency(PLOT, everyone, copies["throttled"], demand.up)
    figures = {kind: ratios(courses, copies[kind]) for kind, courses in found.items()}
    return {
        "rows": links.rows,
        "megabytes": size / 1e6,
        **figures.pop("throttled", {}),
        **{f"{name}_seconds": course.loaded for name, course in others.items()},
        **figures,
    }


def ratios(courses: dict[str, Course], copy: float) -> dict[str, object]:
    demand, full = courses["demand"], courses["full"]
    assert demand.up is not None
    after = [took for at, took in demand.took if at >= demand.up]
    return {
        "up_vs_copy": demand.up / copy,
        "up_vs_full_load": demand.up / full.loaded,
        "answered_before_loaded": answered_before_loaded(demand),
        "total_vs_full_load": demand.loaded / full.loaded,
        "copy_seconds": copy,
        "opened_seconds": demand.opened,
        "up_seconds": demand.up,
        "first_answer_seconds": min(at + took for at, took in demand.took),
        "loaded_seconds": demand.loaded,
        "full_load_seconds": full.loaded,
        "latency_after_up_p50": percentile(after, 0.5),
        "latency_after_up_p95": percentile(after, 0.95),
        "queries": len(demand.took),
    }


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


def say_course(name: str, course: Course) -> None:
    up = "" if course.up is None else f"up after {course.up:.1f} s, "
    say(f"  {name}: {up}loaded after {course.loaded:.1f} s, {len(course.took)} queries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    publish("loading_files", options.scale, {"files": measure(options.scale, options.parts)}, TARGETS)


if __name__ == "__main__":
    main()
