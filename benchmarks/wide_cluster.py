"""Wide batches on a Spark standalone cluster of this machine: one job of many changed rows, and what the driver has of it.

The driver, with a heap of 1 GB, is a process of its own; executors have one core each. One job updates some of the rows of a
table that two flows read.

    driver_growth           from a tenth of the changes to all: live heap after a collection, the most that Arrow had taken and
                            Python had resident during the job
    driver_cpu_share        of the processor seconds of driver and executors during the job, the driver's
    longest_task_vs_mean    of the stage with the most work
    scale_out               seconds with one executor over those with two
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.processor import processor_seconds
from benchmarks.report import say
from tests.deploy.standalone import StandaloneCluster

ROOT = Path(__file__).parent.parent
ROWS = {"tiny": 40_000, "small": 2_000_000, "full": 10_000_000}
"""Of the table; the larger job changes all of them, the smaller a tenth."""
CHUNK = 50_000
MEBIBYTE = 1 << 20
"""Less than this counts as this: nothing would grow out of bounds to little."""
FLOWS = """
CREATE MATERIALIZED VIEW by_place AS SELECT place, COUNT(*) AS n, SUM(amount) AS amount FROM shop.facts GROUP BY place;
CREATE MATERIALIZED VIEW named AS
SELECT f.id, f.amount, p.name FROM shop.facts f JOIN shop.places p ON p.place = f.place WHERE f.amount % 10 = 0;
"""
PLACES = 1_000


def cluster_figures(folder: Path, scale: str) -> dict[str, object]:
    rows = ROWS[scale]
    found: dict[str, dict[str, Any]] = {}
    runs = {2: {"few": rows // 10, "many": rows}} | ({} if scale == "tiny" else {1: {"one_executor": rows}})
    for workers, jobs in runs.items():
        for name in jobs:
            (folder / name).mkdir(parents=True)
        with StandaloneCluster(folder, workers) as cluster:
            for name, changed in jobs.items():
                found[name] = _run(cluster, folder / name, rows, changed)
                say(f"  {changed:,} changes, {workers} executors: {found[name]['seconds']:.1f} s")
    few, many = found["few"], found["many"]
    one = found.get("one_executor")
    return {
        "driver_growth": {
            part: max(MEBIBYTE, many[part]) / max(MEBIBYTE, few[part]) for part in ("heap", "arrow", "python")
        },
        "driver_bytes": {part: [few[part], many[part]] for part in ("heap", "arrow", "python")},
        "driver_cpu_share": many["driver_cpu"] / (many["driver_cpu"] + many["executor_cpu"]),
        "longest_task_vs_mean": many["longest_task_vs_mean"],
        "scale_out": one["seconds"] / many["seconds"] if one is not None else None,
        "cluster_seconds": {name: each["seconds"] for name, each in found.items()},
    }


def _run(cluster: StandaloneCluster, place: Path, rows: int, changed: int) -> dict[str, Any]:
    """One driver; it says when the job begins and when it is done, so that the executors' processor time can be read."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.wide_cluster", str(place), cluster.url, str(rows), str(changed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    spent: list[float] = []
    with process:
        assert process.stdout is not None and process.stdin is not None
        for line in process.stdout:
            said = json.loads(line)
            if said != "mark":
                return {**said, "executor_cpu": spent[1] - spent[0]}
            spent.append(sum(processor_seconds(worker.pid) for worker in cluster.processes[1:]))
            process.stdin.write("\n")
            process.stdin.flush()
    raise SystemExit(f"the driver ended with code {process.returncode}")


def mark() -> None:
    """Tells the parent, and waits until it has looked."""
    tell("mark")
    sys.stdin.readline()


def tell(said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def drive(place: Path, master: str, rows: int, changed: int) -> None:
    import headgate

    (place / "flows").mkdir()
    (place / "flows" / "flows.sql").write_text(FLOWS, encoding="utf-8")
    (place / "events").mkdir()
    project = {
        "name": "wide",
        "storage": str(place / "warehouse"),
        "libraries": [{"glob": {"include": f"{place}/flows/**"}}],
        "spark": {
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "900m",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{place}/events",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        },
        "background": {"system_jobs": False, "idle_after": "1h", "oldest_changes": "1h"},
        "sources": {
            "shop": {
                "type": "memory",
                "tables": {
                    "facts": {"columns": {"id": "bigint", "place": "int", "amount": "bigint"}, "key": ["id"]},
                    "places": {"columns": {"place": "int", "name": "string"}, "key": ["place"]},
                },
            }
        },
    }
    with headgate.open(project) as warehouse:
        source = warehouse.source("shop")
        with source.transaction(initial=True) as transaction:
            names = [f"place {number}" for number in range(PLACES)]
            transaction.insert_many("places", pa.table({"place": np.arange(PLACES, dtype=np.int32), "name": names}))
            for chunk in _facts(rows, rows, 0):
                transaction.insert_many("facts", chunk)
        warehouse.refresh()
        warehouse.materialize()
        with source.transaction() as transaction:
            for chunk in _facts(rows, changed, 1):
                transaction.insert_many("facts", chunk)
        with Resident() as resident:
            mark()
            began, spent = _now(), processor_seconds()
            queries = [f"SELECT 1 FROM {flow}" for flow in ("by_place", "named")]
            answers = [warehouse.sql(query, max_staleness=0) for query in queries]
            seconds, driver_cpu = _now() - began, processor_seconds() - spent
            mark()
        for answer in answers:
            answer.close()
        sums = warehouse.sql("SELECT SUM(n) AS n, SUM(amount) AS amount FROM by_place").collect()[0]
        if (sums["n"], sums["amount"]) != _expected(rows, changed):
            raise SystemExit(f"the answer is wrong: {sums}")
        heap = _live_heap(warehouse.spark_for_small_jobs)
    tell(
        {
            "seconds": seconds,
            "driver_cpu": driver_cpu,
            "heap": heap,
            "arrow": resident.arrow_peak,
            "python": resident.peak,
            "longest_task_vs_mean": _longest_vs_mean(place / "events", began_at=resident.began_at),
        }
    )


def _facts(rows: int, count: int, version: int) -> Iterator[pa.Table]:
    """Every row once, in chunks, at scattered keys; those of a version have other amounts."""
    step = rows // count
    for start in range(0, count, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, count)) * step
        yield pa.table(
            {
                "id": numbers * 7919 % 1_000_000_007,
                "place": (numbers % PLACES).astype(np.int32),
                "amount": numbers % 9_973 + version,
            }
        )


def _expected(rows: int, changed: int) -> tuple[int, int]:
    return rows, int((np.arange(rows) % 9_973).sum()) + changed


def _now() -> float:
    import time

    return time.perf_counter()


def _live_heap(session: Any) -> int:
    java = session._jvm.java.lang
    java.System.gc()
    return int(java.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


class Resident:
    """The most memory that this process has resident, and Arrow has taken, while the block runs."""

    def __enter__(self) -> Resident:
        import time

        self.peak = self.arrow_peak = 0
        self.began_at = time.time()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._done.wait(0.01):
            self.peak = max(self.peak, int(Path("/proc/self/statm").read_text().split()[1]) * page)
            self.arrow_peak = max(self.arrow_peak, pa.total_allocated_bytes())


def _longest_vs_mean(folder: Path, began_at: float) -> float:
    """Of the stage that took the most task time since then."""
    stages: dict[int, list[float]] = {}
    for file in folder.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                task = event["Task Info"]
                if task["Launch Time"] >= began_at * 1000:
                    took = (task["Finish Time"] - task["Launch Time"]) / 1000
                    stages.setdefault(event["Stage ID"], []).append(took)
    times = max((each for each in stages.values() if len(each) > 1), key=sum)
    return max(times) / (sum(times) / len(times))


if __name__ == "__main__":
    drive(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
