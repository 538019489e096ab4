"""A process that captures two tables until it is killed, and says when it begins: `python -m tests.postgres.capturing <dsn> <folder>`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headgate.errors import TransientError
from tests.postgres.logged import logged


def main(dsn: str, folder: str) -> None:
    while True:
        try:
            with logged(
                dsn, Path(folder), "accounts", "transfers", group_bytes=1 << 14, transaction_bytes=1 << 14
            ) as source:
                sys.stdout.write("capturing\n")
                sys.stdout.flush()
                while True:
                    try:
                        source.catch_up()
                    except TransientError:
                        time.sleep(0.05)
                    time.sleep(0.005)
        except TransientError:
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
