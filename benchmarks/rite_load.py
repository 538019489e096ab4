"""Keeps one core busy to given shares for given times: `rite_load.py 10:0.2 25:0.95` is 10 s at a fifth, then 25 s at nearly all."""

from __future__ import annotations

import sys
import time

PERIOD = 0.1


def keep_busy(seconds: float, share: float) -> None:
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        while time.monotonic() - start < share * PERIOD:
            pass
        time.sleep((1 - share) * PERIOD)


if __name__ == "__main__":
    for stretch in sys.argv[1:]:
        length, _, level = stretch.partition(":")
        keep_busy(float(length), float(level))
