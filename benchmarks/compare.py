"""One benchmark at two commits, in turns: what a change did to its figures.

    make compare NAME=maintenance SCALE=tiny BASE=HEAD~1 ROUNDS=3

`other` is the commit `BASE`, checked out into a temporary folder; `this` is the working tree. Rounds alternate, so that the
machine's moods hit both alike; each figure is the median of its rounds, and `this_vs_other` their ratio. `cpu_s` counts
the processor seconds of a whole run, its Spark and its databases included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import SCALES, flattened, median, publish, say

ROOT = Path(__file__).parent.parent
RUN_SECONDS = 3600


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The commit in a folder of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="headgate-compare-") as place:
        folder = Path(place) / "other"
        git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


def figures(folder: Path, name: str, scale: str) -> dict[str, float]:
    """Runs the benchmark of a checkout; gives its numbers and the processor seconds of the run."""
    before = _children_seconds()
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--scale", scale],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)])},
        stdout=subprocess.DEVNULL,
        timeout=RUN_SECONDS,
        check=True,
    )
    spent = _children_seconds() - before
    content = json.loads((folder / "benchmarks" / "out" / f"{name}.json").read_text(encoding="utf-8"))
    numbers = {
        key: float(value)
        for key, value in flattened(content)
        if isinstance(value, int | float) and not isinstance(value, bool) and not key.startswith("machine.")
    }
    return {**numbers, "cpu_s": spent}


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compared(this: list[dict[str, float]], other: list[dict[str, float]]) -> dict[str, object]:
    """Medians of the figures that both have, and their ratios."""
    rows: dict[str, object] = {}
    for key in this[0]:
        if key not in other[0]:
            continue
        ours, theirs = median([run[key] for run in this]), median([run[key] for run in other])
        rows[key] = {"this": ours, "other": theirs, **({"this_vs_other": ours / theirs} if theirs else {})}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--name", required=True)
    parser.add_argument("--base", default="HEAD~1")
    parser.add_argument("--scale", choices=SCALES, default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        commit = git("rev-parse", "--short", "--verify", f"{options.base}^{{commit}}")
    except subprocess.CalledProcessError:
        raise SystemExit(f"there is no commit {options.base}; name one with BASE=…") from None
    this: list[dict[str, float]] = []
    other: list[dict[str, float]] = []
    with checked_out(commit) as folder:
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}: {options.name} at {commit}, then as it is here")
            other.append(figures(folder, options.name, options.scale))
            this.append(figures(ROOT, options.name, options.scale))
    results = {"name": options.name, "other_commit": commit, "rounds": options.rounds, "figures": compared(this, other)}
    publish("compare", options.scale, results, {})


if __name__ == "__main__":
    main()
