"""Clients that ask small queries one after another and look at every answer, all at the same time for some seconds.

`benchmarks.firstquery` runs them as threads over a warehouse of its own process, and this module as a process whose threads
are clients of a service:

    python -m benchmarks.firstquery_clients URL CLIENTS SECONDS < questions.json
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

import headgate.client

MAX_STALENESS = "1h"
Rows = list[dict[str, int]]
Ask = Callable[[str], Rows]


@dataclass
class Asked:
    """What clients together have seen; an answer with wrong rows is a failure."""

    answered: int = 0
    failed: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """The first few."""

    @property
    def qps(self) -> float:
        return self.answered / self.seconds


def ask_for(seconds: float, clients: list[Ask], questions: Mapping[str, Rows]) -> Asked:
    """Every client asks until the time is over; the clock stops with the last answer."""
    asked, noting, ready = Asked(), threading.Lock(), threading.Barrier(len(clients) + 1)

    def work(number: int, ask: Ask) -> None:
        texts = list(questions)
        # Nobody else asks the same, so no two answers are read as one.
        own = f" AND lines > -{number + 1}"
        ready.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            number += 1
            text = texts[number % len(texts)]
            problem = _problem(ask, text + own, questions[text])
            with noting:
                if problem is None:
                    asked.answered += 1
                else:
                    asked.failed += 1
                    asked.problems = [*asked.problems, problem][:5]

    with ThreadPoolExecutor(len(clients)) as pool:
        working = [pool.submit(work, number, ask) for number, ask in enumerate(clients)]
        ready.wait()
        began = time.perf_counter()
        for each in working:
            each.result()
        asked.seconds = time.perf_counter() - began
    return asked


def _problem(ask: Ask, text: str, expected: Rows) -> str | None:
    try:
        rows = ask(text)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if rows == expected else f"{text} gave {rows}, not {expected}"


def over_http(url: str, clients: int, seconds: float, questions: Mapping[str, Rows]) -> Asked:
    """Each client has a connection of its own."""
    with ExitStack() as ends:
        connected = [ends.enter_context(headgate.client.connect(url)) for _ in range(clients)]

        def asking(client: headgate.client.Client) -> Ask:
            def ask(text: str) -> Rows:
                with client.sql(text, max_staleness=MAX_STALENESS) as reply:
                    return list(reply.rows())

            return ask

        return ask_for(seconds, [asking(client) for client in connected], questions)


if __name__ == "__main__":
    url, clients, seconds = sys.argv[1:]
    print(json.dumps(asdict(over_http(url, int(clients), float(seconds), json.load(sys.stdin)))))
