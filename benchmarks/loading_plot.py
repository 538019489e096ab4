"""The plot of loading: how long each query waited that came while a table was loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

LABELS = {
    "demand": ("headgate, ranges by demand", "#2e8b57"),
    "full": ("headgate, whole", "#2c5f8a"),
    "duckdb": ("DuckDB", "#c0392b"),
    "postgres": ("PostgreSQL", "#8e6bbf"),
}


def draw_latency(
    path: Path, courses: Mapping[str, tuple[Sequence[tuple[float, float]], float]], copy: float, up: float
) -> None:
    """`courses` has, per variant, when each query came with how long it took, and when the table was loaded."""
    figure, axis = pyplot.subplots(figsize=(8, 4))
    for name, (took, loaded) in courses.items():
        label, colour = LABELS[name]
        found = sorted(took)
        axis.plot([at for at, _ in found], [each for _, each in found], ".", markersize=3, color=colour, label=label)
        axis.axvline(loaded, color=colour, linewidth=0.8, linestyle="--")
    for at, text in ((copy, "copied"), (up, "up")):
        axis.axvline(at, color="#777777", linewidth=0.8)
        axis.text(
            at, axis.get_ylim()[1], text, fontsize="small", ha="right" if text == "copied" else "left", va="bottom"
        )
    axis.set_yscale("log")
    axis.set_xlabel("seconds since the beginning, when the query came (dashed: loaded)")
    axis.set_ylabel("seconds until its answer")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
