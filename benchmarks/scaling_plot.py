"""Plots of simulated scaling: sizes over the rate of rows, and buffers that nobody empties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.scaling_simulation import SimulatedMoment
from headgate.scaling.policies.buffer import BufferFill

COLOURS = {"extract": "#1f77b4", "transform": "#2e8b57", "load": "#c0392b", "executors": "#222222"}


def draw_rates(path: Path, moments: Sequence[SimulatedMoment]) -> None:
    """Above, how long a row was under way and the rate; below, the sizes."""
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True)
    minutes = [moment.at / 60 for moment in moments]
    above.plot(minutes, [moment.total_s for moment in moments], color="#222222", linewidth=1)
    above.axhline(3.0, color="#c0392b", linestyle="--", linewidth=1)
    above.set_ylabel("seconds of extract, transform and load")
    rates = above.twinx()
    rates.fill_between(minutes, [moment.rate / 1000 for moment in moments], color="#1f77b4", alpha=0.15)
    rates.set_ylabel("thousand rows a second")
    for part, colour in COLOURS.items():
        below.step(minutes, [moment.sizes[part] for moment in moments], color=colour, label=part)  # type: ignore[index]
    below.set_xlabel("minutes")
    below.set_ylabel("size")
    below.legend(fontsize="small")
    for axis in (above, below):
        axis.grid(alpha=0.3)
    _save(figure, path)


def draw_buffers(path: Path, seen: Sequence[tuple[float, Sequence[BufferFill]]]) -> None:
    """Memory of every buffer, and what all have on their disks."""
    figure, axis = pyplot.subplots(figsize=(8, 3.6))
    minutes = [at / 60 for at, _ in seen]
    for number in range(max(len(fills) for _, fills in seen)):
        shares = [100 * fills[number].memory if number < len(fills) else 0.0 for _, fills in seen]
        axis.plot(minutes, shares, label=f"memory of buffer {number + 1}")
    axis.set_xlabel("minutes")
    axis.set_ylabel("percent of memory")
    disks = axis.twinx()
    disks.plot(minutes, [100 * sum(fill.disk for fill in fills) for _, fills in seen], color="#222222", linestyle="--")
    disks.set_ylabel("percent of one disk, all together")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    _save(figure, path)


def _save(figure: pyplot.Figure, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
