"""How long lazily committed rows wait for a flush: a commit each second under a random load of the processor.

The policy flushes while less than 70 % of the processor is in use, or once 20 s have passed. The load average of a minute moves too
slowly for a run this short: the policy is given the busy share of all cores over the last 2 s, this benchmark's own included, from
`/proc/stat`. Nobody reads, so that no demand flushes either; closing the connection does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from types import TracebackType

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks import rite_load
from benchmarks.report import OUTPUT, median, say
from benchmarks.rite_headgate import connect, read
from benchmarks.rite_rows import Data, rows
from benchmarks.rite_sides import INSERT
from headgate import Warehouse
from headgate.producing import LoadAware

SECONDS = {"tiny": 8, "small": 60, "full": 120}
ROWS_PER_COMMIT = 10
BELOW = 0.7
WITHIN = 20
_LOOK_EVERY, _LOOK_BACK = 0.25, 2.0
_TABLE = "sales"


@dataclass(frozen=True)
class Flush:
    """Commits acknowledged before `asked` are in it; readers see them from `done` on."""

    asked: float
    done: float
    reason: str


@dataclass(frozen=True)
class Run:
    """Seconds since the start: of each commit with its delay, and the busy share over time."""

    delays: Sequence[tuple[float, float]]
    shares: Sequence[tuple[float, float]]
    flushes: Sequence[Flush]


class Watched:
    """A policy that remembers when its flushes were."""

    def __init__(self, policy: LoadAware) -> None:
        self._policy = policy
        self._asked = 0.0
        self.flushes: list[Flush] = []

    def should_flush(self) -> bool:
        found = self._policy.should_flush()
        if found:
            self._asked = time.monotonic()
        return found

    def flushed(self, reason: str) -> None:
        self._policy.flushed(reason)
        done = time.monotonic()
        self.flushes.append(Flush(self._asked if reason == "policy" else done, done, reason))


class BusyShare:
    """Which part of all cores was in use lately, looked up again and again from entering to leaving."""

    def __init__(self) -> None:
        self._looks = deque([_processor_times()], round(_LOOK_BACK / _LOOK_EVERY) + 1)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.found: list[tuple[float, float]] = []

    def __enter__(self) -> BusyShare:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def now(self) -> float:
        return self.found[-1][1]

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_EVERY):
            self._look()

    def _look(self) -> None:
        self._looks.append(_processor_times())
        (busy_before, all_before), (busy, all_) = self._looks[0], self._looks[-1]
        self.found.append((time.monotonic(), (busy - busy_before) / max(1, all_ - all_before)))


def _processor_times() -> tuple[int, int]:
    """Ticks in use and in all, of all cores since they were started."""
    user, nice, system, idle, waiting, *others = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    busy = user + nice + system + sum(others)
    return busy, busy + idle + waiting


@contextmanager
def random_load(seconds: float) -> Iterator[None]:
    """Keeps all cores busy to a share that is low and high in turns, for random times; no longer than it is asked to."""
    random, stretches, total = Random(8), list[str](), 0.0
    while total < seconds:
        quiet = len(stretches) % 2 == 0
        length = min(random.uniform(5, 12) if quiet else random.uniform(8, 30), seconds - total)
        share = random.uniform(0.05, 0.4) if quiet else random.uniform(0.85, 1.0)
        stretches.append(f"{length:.1f}:{share:.2f}")
        total += length
    command = [sys.executable, "-P", str(rite_load.__file__), *stretches]
    processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def commit_lazily(warehouse: Warehouse, seconds: int) -> Run:
    """Commits once a second; the data are as many of the rows as that takes."""
    data = Data.of(seconds * ROWS_PER_COMMIT)
    committed: list[float] = []
    with BusyShare() as busy, random_load(seconds):
        policy = Watched(LoadAware(below=BELOW, within=f"{WITHIN}s", load=busy.now))
        connection = connect(warehouse, _TABLE, policy=policy)
        try:
            remaining, cursor = rows(data.count), connection.cursor()
            start = time.monotonic()
            for number in range(seconds):
                time.sleep(max(0.0, start + number - time.monotonic()))
                cursor.executemany(INSERT.format(table=_TABLE), islice(remaining, ROWS_PER_COMMIT))
                connection.commit()
                committed.append(time.monotonic())
        finally:
            connection.close()
    read(warehouse, _TABLE).require(data.sums)
    if not policy.flushes:
        raise SystemExit("lazy commits were made visible without a word to their policy")
    delays = [(at - start, _flushed(at, policy.flushes) - at) for at in committed]
    return Run(delays, [(at - start, share) for at, share in busy.found], policy.flushes)


def _flushed(committed: float, flushes: Sequence[Flush]) -> float:
    """When readers could see a commit. All were seen: one after the last flush was asked for was still taken by it."""
    return next((flush.done for flush in flushes if flush.asked >= committed), max(committed, flushes[-1].done))


def draw(path: Path, run: Run) -> None:
    """The busy share as a line, each commit's delay as a cross; one line is the limit of both."""
    figure, left = pyplot.subplots(figsize=(9, 4.2))
    right = left.twinx()
    left.plot(*zip(*run.shares, strict=True), color="#7f8c8d", linestyle=":", label="busy share of all cores")
    left.axhline(BELOW, color="#c0392b", linewidth=1, label=f"limits of the policy: {BELOW:.0%}, {WITHIN} s")
    right.plot(*zip(*run.delays, strict=True), "x", color="#1f77b4", label="delay of a commit")
    left.set_ylim(0, 1.05)
    right.set_ylim(0, 1.05 * WITHIN / BELOW)
    left.set_xlabel("time of the commit (s)")
    left.set_ylabel("busy share")
    right.set_ylabel("seconds until its flush")
    left.grid(alpha=0.3)
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="upper center", ncols=3, fontsize="small", frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def delay_figures(warehouse: Warehouse, scale: str) -> dict[str, object]:
    """Runs it, draws it, and gives the figures."""
    say(f"lazy commits, one a second for {SECONDS[scale]} s")
    run = commit_lazily(warehouse, SECONDS[scale])
    draw(OUTPUT / "rite_delay.png", run)
    waited = [delay for _, delay in run.delays]
    reasons = [flush.reason for flush in run.flushes]
    return {
        "commits": len(waited),
        "flushes": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "median_seconds": median(waited),
        "longest_seconds": max(waited),
        "mean_busy_share": sum(share for _, share in run.shares) / len(run.shares),
    }
