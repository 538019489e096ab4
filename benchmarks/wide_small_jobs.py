"""Small jobs of the shop, in a process of its own, so that they run on any commit: processor seconds of one job, the median, and
how many queries Spark ran for it.

python benchmarks/wide_small_jobs.py LINES JOBS
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.maintenance import load
from benchmarks.processor import cost
from benchmarks.report import median


def main(lines: int, jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        loaded = load(Path(folder), lines, 10)
        session = loaded.warehouse.spark_for_small_jobs
        before, found = newest_execution(session), []
        for _ in range(jobs):
            loaded.shop.commit_job(loaded.source, "mixed")
            found.append(cost(loaded.warehouse.refresh).processor)
        executions = (newest_execution(session) - before) / jobs
        loaded.warehouse.close()
    sys.stdout.write(json.dumps({"processor": median(found), "executions": executions}) + "\n")


def newest_execution(session: SparkSession) -> int:
    """The number of the latest execution. Spark's store keeps few of them, so their count says nothing."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return int(session._jsparkSession.sharedState().statusStore().executionsList().last().executionId())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
