"""Plots of simulated scaling: sizes over the rate of rows, and buffers that nobody empties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

from benchmarks.scaling_paper import Sessions
from benchmarks.scaling_simulation import SimulatedMoment
from headgate.scaling.policies.buffer import BufferFill

COLOURS = {"extract": "#1f77b4", "transform": "#2e8b57", "load": "#c0392b", "executors": "#222222"}


def draw_rates(path: Path, courses: Mapping[str, Sequence[SimulatedMoment]]) -> None:
    """For each course a column, over the rate as in the paper's figures 10 (rising) and 11 (falling): above, how long a row was under
    way; below, the sizes."""
    figure, rows = pyplot.subplots(2, len(courses), figsize=(1 + 7 * len(courses), 6), sharex=True, squeeze=False)
    for place, (name, moments) in enumerate(courses.items()):
        above, below = rows[0][place], rows[1][place]
        minutes = [moment.at / 60 for moment in moments]
        above.plot(minutes, [moment.total_s for moment in moments], color="#222222", linewidth=1)
        above.axhline(3.0, color="#c0392b", linestyle="--", linewidth=1)
        above.axhspan(3.1, 3.2, color="#c0392b", alpha=0.3, linewidth=0, label="the paper's longest, 3.1 to 3.2 s")
        above.set_ylabel("seconds that a row takes")
        above.set_ylim(0, 1.05 * max(4.0, *(moment.total_s for moment in moments)))
        above.set_title(name, fontsize="medium")
        above.legend(fontsize="small", loc="lower center")
        rates = above.twinx()
        rates.fill_between(minutes, [moment.rate / 1000 for moment in moments], color="#1f77b4", alpha=0.15)
        rates.set_ylabel("thousand rows a second (area)")
        for part, colour in COLOURS.items():
            sizes = [moment.sizes[part] for moment in moments]  # type: ignore[index]
            below.step(minutes, sizes, color=colour, label=part, linestyle="--" if part == "load" else "-")
        below.yaxis.set_major_locator(MaxNLocator(integer=True))
        below.set_xlabel("minutes")
        below.set_ylabel("size")
        below.legend(fontsize="small")
        for axis in (above, below):
            axis.grid(alpha=0.3)
    _save(figure, path)


def draw_sessions(path: Path, found: Mapping[int, Sessions]) -> None:
    """Seconds of a query and executors by the number of sessions, as in the paper's figure 18."""
    figure, axis = pyplot.subplots(figsize=(8, 3.6))
    axis.bar(list(found), [each.query_s for each in found.values()], color="#2c5f8a", width=0.6)
    axis.axhline(60.0, color="#c0392b", linestyle="--", linewidth=1)
    axis.set_xlabel("sessions over 50 GB (the paper held 60 s for 1 to 7)")
    axis.set_ylabel("seconds of a query (bars)")
    sizes = axis.twinx()
    sizes.plot(list(found), [each.size for each in found.values()], color="#222222", marker="o", linewidth=1)
    sizes.set_ylim(0, 13)
    sizes.set_ylabel("tasks of query, 12 at the most (line)")
    axis.grid(alpha=0.3, axis="y")
    _save(figure, path)


def draw_buffers(path: Path, seen: Sequence[tuple[float, Sequence[BufferFill]]]) -> None:
    """Memory of every buffer, and what all have on their disks, as in the paper's figure 15."""
    figure, axis = pyplot.subplots(figsize=(8, 3.6))
    minutes = [at / 60 for at, _ in seen]
    for number in range(max(len(fills) for _, fills in seen)):
        shares = [100 * fills[number].memory if number < len(fills) else 0.0 for _, fills in seen]
        axis.plot(minutes, shares, label=f"memory of buffer {number + 1}")
    axis.set_xlabel("minutes")
    axis.set_ylabel("percent of memory")
    disks = axis.twinx()
    disks.plot(minutes, [100 * sum(fill.disk for fill in fills) for _, fills in seen], color="#222222", linestyle="--")
    disks.set_ylabel("percent of a disk, all (dashed)")
    axis.grid(alpha=0.3)
    axis.axhline(50.0, color="#c0392b", linestyle="--", linewidth=1)
    axis.legend(fontsize="small", loc="lower right")
    _save(figure, path)


def _save(figure: pyplot.Figure, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
