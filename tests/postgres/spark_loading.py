"""A process that loads a table through Spark and says how far it is: `python -m tests.postgres.spark_loading <dsn> <folder>`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headgate.capture.postgres import snapshot
from headgate.capture.ranges import LargeLoads
from headgate.capture.source import Progress
from headgate.runtime.sources.spark_ranges import SparkRanges
from headgate.runtime.spark.sessions import SparkSessions
from tests.postgres.logged import logged


def main(dsn: str, folder: str) -> None:
    snapshot.copy_tables.__kwdefaults__["blocks"] = 20
    sessions = SparkSessions({"spark.master": "local[2]"}, "loading")

    def say(progress: Progress) -> None:
        sys.stdout.write(f"{progress.rows}\n")
        sys.stdout.flush()
        time.sleep(0.2)

    with logged(dsn, Path(folder), "a", large=LargeLoads(SparkRanges(lambda: sessions.context), 1), progress=say):
        sys.stdout.write("loaded\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
