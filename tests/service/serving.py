"""A process that serves a warehouse until it is told to stop; prints its address, and whether it ended well."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.service import serve
from tests.scheduling.bank import deposit, open_bank

if __name__ == "__main__":
    with open_bank(Path(sys.argv[1])) as bank:
        deposit(bank, (1, 1, 10))
        serve(bank, port=0, started=lambda server: print(server.url, flush=True))  # noqa: T201
    print("closed", flush=True)  # noqa: T201
