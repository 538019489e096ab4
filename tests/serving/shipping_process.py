"""A process that ships random changes, and dies when it comes to a step of a shipment for the n-th time.

python -m tests.serving.shipping_process <folder> <dsn> <seed> <step> <number>
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random

from tests.serving.numbers import change, opened

CHANGES = 4


def main(folder: Path, dsn: str, seed: str, step: str, number: int) -> None:
    seen: Counter[str] = Counter()

    def told(name: str) -> None:
        seen[name] += 1
        if name == step and seen[name] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    random = Random(seed)
    with opened(folder, dsn, step=told) as warehouse:
        for _ in range(CHANGES):
            change(warehouse, random)
            with warehouse.sql("SELECT COUNT(*) AS n FROM facts", max_staleness="0s") as answer:
                answer.to_arrow()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
