"""An owner of the shop's warehouse that does one thing per line it is told, and answers what came of it.

python -m tests.faults.owning <folder>
"""

from __future__ import annotations

import sys
from pathlib import Path

import headgate
from headgate.errors import HeadgateError
from headgate.scheduling.warehouse import Warehouse
from tests.faults import shop


def obey(warehouse: Warehouse, word: str) -> str:
    try:
        match word:
            case "commit":
                shop.commit(warehouse, shop.position(warehouse) + 1)
            case "refresh":
                warehouse.refresh()
            case "materialize":
                warehouse.materialize()
            case _:
                return f"unknown word {word}"
    except HeadgateError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    with headgate.open(shop.project(folder)) as warehouse:
        say("open")
        for line in sys.stdin:
            say(obey(warehouse, line.strip()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
