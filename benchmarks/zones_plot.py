"""The plot of the zones: latency over the number of the query, for both policies and each zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.report import median

COLOURS = {"plain": "#c0392b", "zone_aware": "#1f77b4"}

Series = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
"""By zone and policy, the latencies of each round."""


def draw(path: Path, titles: Mapping[str, str], series: Series) -> None:
    """Latency over the number of the query: a panel per zone, a line per policy, each round thin and their median thick."""
    figure, axes = pyplot.subplots(1, len(series), figsize=(11, 4.2))
    for axis, (zone, policies) in zip(axes, series.items(), strict=True):
        for policy, found in policies.items():
            numbers = range(1, len(found[0]) + 1)
            for each in found:
                axis.plot(numbers, each, color=COLOURS[policy], linewidth=0.6, alpha=0.4, marker=".")
            middle = [median(values) for values in zip(*found, strict=True)]
            axis.plot(numbers, middle, color=COLOURS[policy], linewidth=2, marker="o", label=policy.replace("_", "-"))
        axis.set_title(titles[zone])
        axis.set_xlabel("query")
        axis.set_ylabel("latency (s)")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
