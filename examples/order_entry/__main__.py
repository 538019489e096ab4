"""`make demo`: orders are entered into PostgreSQL, captured by its log, and asked for with different bounds.

    python -m examples.order_entry --seconds 60

It ends by itself, checks its own numbers, and tells by its exit code whether they were right. Without a PostgreSQL server on the
machine, the shop of `examples.shop`, which needs none, is shown in its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from examples.order_entry import show
from examples.shop import __main__ as shop
from headgate.capture.postgres.private_server import server_binaries
from headgate.cli.exits import INTERRUPTED, show_failure
from headgate.errors import EnvironmentProblem


def main(arguments: Sequence[str] | None = None) -> int:
    """Gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.order_entry", description="The demo of headgate.")
    parser.add_argument("--seconds", type=_positive, default=60.0, help="how long tills and readers go on (60)")
    seconds = parser.parse_args(arguments).seconds
    try:
        return 0 if run(seconds) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return show_failure(error)


def run(seconds: float) -> bool:
    """The show, or what can be shown on this machine; says whether all numbers were right."""
    try:
        server_binaries()
    except EnvironmentProblem as problem:
        shop.say(
            f"{problem.what}. To see orders captured from one, {problem.hint}.\nHere is a shop without a database:\n"
        )
    else:
        return show.run(seconds)
    # It ends the process if it finds something wrong.
    shop.run()
    return True


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
