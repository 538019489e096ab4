"""The plots of the queue: how evenly readers share batches, and how long each enqueued batch took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.queue_balance import Course

COLOURS = {"elastic": "#2e8b57", "fixed": "#c0392b", "delta": "#c0392b"}


def draw_balance(path: Path, course: Course, load: Sequence[int]) -> None:
    figure, axes = pyplot.subplots(1, len(course), figsize=(9, 3.4), sharey=True)
    for axis, (kind, found) in zip(axes, course.items(), strict=True):
        for name, values in found.items():
            label = "elastic queue" if name == "elastic" else "fixed key ranges"
            axis.plot(range(1, len(values) + 1), values, color=COLOURS[name], label=label)
        axis.fill_between(
            range(1, len(load) + 1), [100 * each / max(load) for each in load], color="#999999", alpha=0.2
        )
        axis.set_title(f"{kind} keys", fontsize="medium")
        axis.set_xlabel("batch (grey: the load)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("deviation of rows per reader, %")
    axes[0].legend(fontsize="small")
    _save(figure, path)


def draw_latency(path: Path, times: Mapping[str, Sequence[float]]) -> None:
    figure, axis = pyplot.subplots(figsize=(7, 3.4))
    for name, found in times.items():
        label = "elastic queue, durable" if name == "elastic" else "Delta table, compacted"
        axis.plot([1e3 * each for each in found], ".", markersize=3, color=COLOURS[name], label=label)
    axis.set_yscale("log")
    axis.set_xlabel("batch")
    axis.set_ylabel("milliseconds to enqueue")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    _save(figure, path)


def _save(figure: pyplot.Figure, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
