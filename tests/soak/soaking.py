"""A process that reads for long and takes samples of itself: memory, files, snapshots that are held.

python -m tests.soak.soaking '{"folder": …, "dsns": …, "seconds": …}'
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import headgate
from tests.serializability.history import History
from tests.serializability.readers import read_for
from tests.serializability.world import project

SAMPLES = 60
"""So many in the whole time."""
THREADS = 3


def resident_bytes(pid: int | str) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[str]:
    return [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def sample(warehouse: headgate.Warehouse, storage: Path) -> dict[str, float]:
    status = warehouse.status
    return {
        "at": time.time(),
        "python": resident_bytes("self"),
        "java": sum(resident_bytes(child) for child in children(os.getpid())),
        "files": sum(len(names) for _, _, names in os.walk(storage)),
        "answers": status.answers,
        "held_bytes": status.held_bytes,
        "jobs": status.open.id,
    }


def main(folder: str, dsns: Mapping[str, str], seconds: float) -> None:
    settings = project(Path(folder), dsns)
    history = History(Path(folder) / "soak.jsonl")
    ended = threading.Event()
    with headgate.open(settings) as warehouse:

        def watch() -> None:
            while not ended.wait(seconds / SAMPLES):
                history.add("sample", **sample(warehouse, Path(folder) / "warehouse"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            read_for(warehouse, history, seconds, name="reader", threads=THREADS)
        finally:
            ended.set()
            watcher.join()
        history.add("closing", answers=warehouse.status.answers)
    history.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
