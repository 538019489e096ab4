"""Writers in processes of their own, and what the owner of the queue does meanwhile: it commits references."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pyspark.sql.types import StructType

from headgate.capture.block_writer import Put
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.producer import ProducerSource
from headgate.capture.source import SourceTable
from headgate.clock import SystemClock
from headgate.producing.remote_server import RemoteServer
from headgate.warehouse.ledger import Ledger

ROOT = Path(__file__).parents[1]


class _Waited:
    """A lock that counts how long it was waited for."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.seconds = 0.0

    def acquire(self) -> bool:
        began = time.perf_counter()
        self._lock.acquire()
        self.seconds += time.perf_counter() - began
        return True

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _OwnersChannel:
    """The owner's side of a producer: that of a warehouse, which takes a Spark for what no writer asks here."""

    def __init__(self, source: ProducerSource, who: str, flushed: Callable[[str], None]) -> None:
        self.source = source.name
        self.tables = source.tables
        self.archives = 0
        self._producer = source.attach(who, flushed)
        self.claim = self._producer.claim
        self.open_segment = source.log.open_segment
        self.seal_segments = source.log.seal_segments
        self.close = self._producer.close

    def commit_blocks(self, puts: Sequence[Put], *, durable: bool, lazy: bool) -> datetime | None:
        committed = self._producer.commit_blocks(puts, durable=durable, lazy=lazy)
        return None if committed is None else committed.commit_at


@contextmanager
def _watched(source: ProducerSource) -> Iterator[list[_Waited]]:
    """Every lock that commits of one source share; not the disk, which they share as well."""
    log = source.log
    assert isinstance(log, ElasticLog)
    locks = source._commit_lock, log._lock, log._blocks._lock
    found = [_Waited(each) for each in locks]
    source._commit_lock, log._lock, log._blocks._lock = found  # type: ignore[assignment]
    try:
        yield found
    finally:
        source._commit_lock, log._lock, log._blocks._lock = locks


def writers_figures(folder: Path, commits: int, rows: int, rounds: int) -> dict[str, object]:
    """One writer, two, and two with watched locks in turns; each commits as often as it can."""
    clock = SystemClock()
    ledger = Ledger.open(str(folder / "warehouse"), "benchmark", clock.now)
    log = ElasticLog(folder / "log", segment_bytes=32 << 20, verify=ledger.verify)
    columns = StructType().add("id", "long").add("payload", "binary")
    tables = {name: SourceTable(name, columns, ()) for name in ("t0", "t1")}
    source = ProducerSource("feed", tables, log, clock)
    server = RemoteServer(lambda _, who, flushed: _OwnersChannel(source, who, flushed), folder / "address.json")  # type: ignore[arg-type, return-value]
    rates: dict[int, list[float]] = {1: [], 2: []}
    shares, costs, waits, times = [], [], [], []
    try:
        for _ in range(rounds):
            for count in rates:
                found, own = _run(folder / "address.json", count, commits, rows)
                rates[count].append(count * commits / max(each["seconds"] for each in found))
                others = sum(each["processor"] for each in found)
                if count == 2:
                    shares.append(own / (own + others))
                    costs.append(1e3 * own / (count * commits))
                    times += [each for found_times in found for each in found_times["times"]]
                log.trim(log.end)
            with _watched(source) as locks:
                found, _ = _run(folder / "address.json", 2, commits, rows)
            waits.append(sum(lock.seconds for lock in locks) / sum(each["seconds"] for each in found))
            log.trim(log.end)
    finally:
        server.close()
        log.close()
        ledger.close()
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
