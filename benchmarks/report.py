"""What every benchmark does: repeat in turns, take medians, print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

OUTPUT = Path(__file__).parent / "out"
SCALES = ("tiny", "small", "full")


def parse_scale(description: str) -> str:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", choices=SCALES, default="small")
    return str(parser.parse_args().scale)


def say(text: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def in_turns(actions: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each action's times, the actions taking turns so that noise hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            found[name].append(action())
    return found


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def earlier(name: str, scale: str) -> dict[str, object]:
    """What runs of other parts of a benchmark found."""
    file = OUTPUT / f"{name}.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    about_the_run = ("benchmark", "scale", "at", "machine")
    return (
        {key: value for key, value in found.items() if key not in about_the_run} if found.get("scale") == scale else {}
    )


def merged(before: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    """What was found, and what was before of other parts and sizes."""
    both = {**before, **found}
    for key, value in found.items():
        known = before.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            both[key] = merged(known, value)
    return both


def publish(name: str, scale: str, results: Mapping[str, object], targets: Mapping[str, tuple[str, float]]) -> None:
    """Prints the figures with their targets and writes `out/<name>.json`."""
    OUTPUT.mkdir(exist_ok=True)
    content = {
        "benchmark": name,
        "scale": scale,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        **results,
    }
    file = OUTPUT / f"{name}.json"
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    lines = [f"{name} at scale {scale}"]
    for key, value in flattened(results):
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        sign, bound = targets.get(key, ("", 0.0))
        verdict = ""
        if sign and isinstance(value, (int, float)):
            met = value >= bound if sign == ">=" else value <= bound
            verdict = f"   target {sign} {bound:g}: {'met' if met else 'MISSED'}"
        lines.append(f"  {key:<42} {shown:>12}{verdict}")
    lines.append(f"  written to {file}")
    sys.stdout.write("\n".join(lines) + "\n")


def flattened(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.extend(flattened(value, f"{prefix}{key}."))
        else:
            found.append((f"{prefix}{key}", value))
    return found
