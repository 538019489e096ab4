"""The plots of the gears: throughput, latency, staleness and expired share over time, a line per variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

COLOURS = {"high": "#c0392b", "middle": "#e69f00", "low": "#7f8c8d", "aware": "#1f77b4"}


@dataclass(frozen=True)
class Moment:
    """A stretch of one variant's time and what was measured in it; what requests tell is None when there were none."""

    at: float
    throughput: float
    latency_ms: float | None
    staleness_ms: float | None
    expired: float | None


def draw(path: Path, title: str, moments: Mapping[str, Sequence[Moment]]) -> None:
    """Writes one picture."""
    panels = {
        "throughput (tx/s)": lambda moment: moment.throughput,
        "latency (ms)": lambda moment: moment.latency_ms,
        "staleness (ms)": lambda moment: moment.staleness_ms,
        "expired share": lambda moment: moment.expired,
    }
    figure, axes = pyplot.subplots(len(panels), 1, sharex=True, figsize=(9, 9))
    for axis, (label, value) in zip(axes, panels.items(), strict=True):
        for name, series in moments.items():
            shown = [(moment.at, value(moment)) for moment in series if value(moment) is not None]
            width = 2.2 if name == "aware" else 1.2
            axis.plot(*zip(*shown, strict=True), label=name, color=COLOURS[name], linewidth=width, marker=".")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].set_title(title)
    axes[0].legend(ncols=len(moments), loc="lower right", fontsize="small")
    axes[-1].set_xlabel("each variant's own time (s)")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
