"""Processor time of everything that a benchmark runs: this process, its Spark, and what they started."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    seconds: float
    processor: float


def cost(action: Callable[[], object]) -> Cost:
    """How long the action took, and how much processor time this process and its descendants spent meanwhile."""
    used, began = processor_seconds(), time.perf_counter()
    action()
    return Cost(time.perf_counter() - began, processor_seconds() - used)


def processor_seconds(process: int | None = None) -> float:
    """Of a process, or this one, and its descendants, those included that have ended and were waited for."""
    children: dict[int, list[int]] = defaultdict(list)
    spent: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended meanwhile
            spent[int(place.name)] = sum(int(ticks) for ticks in fields[11:15])
            children[int(fields[1])].append(int(place.name))
    total, left = 0, [os.getpid() if process is None else process]
    while left:
        each = left.pop()
        total += spent.get(each, 0)
        left += children[each]
    return total / _TICKS
