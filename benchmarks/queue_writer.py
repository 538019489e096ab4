"""A producer in a process of its own: python -m benchmarks.queue_writer ADDRESS TABLE COMMITS ROWS

It inserts Arrow tables over its connection, as programs do: it waits for a line, commits, and tells its processor seconds and how
long its commits took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.queue_sides import COLUMNS, rows_of
from headgate.producing.connection import Connection
from headgate.producing.remote import RemoteChannel

_DIFFERENT = 8
"""Transactions whose rows are made before the clock starts."""


def main(address: str, table: str, commits: int, rows: int) -> None:
    connection = Connection(RemoteChannel(Path(address), "feed"), [table])
    given = [
        rows_of(np.arange(rows * number, rows * (number + 1))).select(COLUMNS.names) for number in range(_DIFFERENT)
    ]

    def commit(number: int) -> None:
        connection.cursor().insert(table, given[number % _DIFFERENT])
        connection.commit()

    commit(0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    used, began = time.process_time(), time.perf_counter()
    times = []
    for number in range(commits):
        start = time.perf_counter()
        commit(number)
        times.append(time.perf_counter() - start)
    told = {"processor": time.process_time() - used, "seconds": time.perf_counter() - began, "times": times}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
