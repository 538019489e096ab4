"""Writers in processes of their own, and what the owner of the queue does meanwhile: it commits references."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from headgate.capture.block_writer import OpenSegment, Put
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.source import SourceTable
from headgate.clock import SystemClock
from headgate.producing.remote_server import RemoteServer

ROOT = Path(__file__).parents[1]


class _Owner:
    """The owner's side of every producer: a channel to the log alone, which counts how long commits wait for each other."""

    source = "feed"
    tables: Mapping[str, SourceTable] = {}
    archives = 0

    def __init__(self, log: ElasticLog) -> None:
        self.log = log
        self.waited = 0.0
        self._lock = threading.Lock()
        self._clock = SystemClock()

    def open_segment(self) -> OpenSegment:
        return self.log.open_segment()

    def seal_segments(self, names: Collection[str]) -> None:
        self.log.seal_segments(names)

    def commit_blocks(self, puts: Sequence[Put], *, durable: bool, lazy: bool) -> datetime | None:
        began = time.perf_counter()
        with self._lock:
            self.waited += time.perf_counter() - began
            position, at = self.log.end + 1, self._clock.now()
            self.log.append_blocks(position, at, [puts], synced=True)
        self.log.sync(position)
        return at

    def close(self) -> None:
        pass


def writers_figures(folder: Path, commits: int, rows: int, rounds: int) -> dict[str, object]:
    """One and two writers in turns; each commits as often as it can."""
    log = ElasticLog(folder / "log", segment_bytes=32 << 20)
    owner = _Owner(log)
    server = RemoteServer(lambda source, who, flushed: owner, folder / "address.json")  # type: ignore[arg-type, return-value]
    rates: dict[int, list[float]] = {1: [], 2: []}
    shares, costs, waits, times = [], [], [], []
    try:
        for _ in range(rounds):
            for count in rates:
                owner.waited = 0.0
                found, own = _run(folder / "address.json", count, commits, rows)
                rates[count].append(count * commits / max(each["seconds"] for each in found))
                others = sum(each["processor"] for each in found)
                if count == 2:
                    shares.append(own / (own + others))
                    costs.append(1e3 * own / (count * commits))
                    waits.append(owner.waited / sum(each["seconds"] for each in found))
                    times += [each for found_times in found for each in found_times["times"]]
                log.next_batch(log.trimmed, log.end)
                log.trim(log.end)
    finally:
        server.close()
        log.close()
    best = {count: sorted(each)[len(each) // 2] for count, each in rates.items()}
    times.sort()
    return {
        "owner_cpu_share": sorted(shares)[len(shares) // 2],
        "owner_cpu_ms_per_commit": sorted(costs)[len(costs) // 2],
        "lock_wait": sorted(waits)[len(waits) // 2],
        "writers_2_vs_1": best[2] / best[1],
        "remote_commit_ms": {"p50": 1e3 * times[len(times) // 2], "p99": 1e3 * times[int(0.99 * len(times))]},
    }


def _run(address: Path, count: int, commits: int, rows: int) -> tuple[list[dict[str, float]], float]:
    """What the writers tell, and the processor seconds of this process meanwhile."""
    command = [sys.executable, "-m", "benchmarks.queue_writer", str(address)]
    children = [
        subprocess.Popen(
            [*command, f"t{number}", str(commits), str(rows)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    found = []
    for child in children:
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise SystemExit("a writer did not start")
    used = time.process_time()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        assert child.stdout is not None
        found.append(json.loads(child.stdout.readline()))
    own = time.process_time() - used
    for child in children:
        child.communicate()
    return found, own
