"""The plot of the ways: seconds of a job over its changed rows, a line per way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

COLOURS = {"narrow": "#1f77b4", "wide": "#2e8b57", "recompute": "#c0392b", "chosen": "#222222"}


def draw(path: Path, seconds: Mapping[str, Mapping[str, float]], rows: Mapping[str, int]) -> None:
    """Both axes logarithmic; what is chosen is dashed, on top of the others."""
    figure, axis = pyplot.subplots(figsize=(7, 4.2))
    for way, colour in COLOURS.items():
        sizes = [size for size in seconds if way in seconds[size]]
        axis.plot(
            [rows[size] for size in sizes],
            [seconds[size][way] for size in sizes],
            color=colour,
            marker="o",
            linewidth=3 if way == "chosen" else 1.5,
            linestyle="--" if way == "chosen" else "-",
            label=way,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("changed line items in one job")
    axis.set_ylabel("seconds until readable")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
