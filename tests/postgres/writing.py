"""Writers that change table `a` all the time while something else happens to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

_FIRST_NEW = 10_000


@contextmanager
def writers(dsn: str, rows: int, threads: int = 2) -> Iterator[list[int]]:
    """Updates `n` of the rows 1 to `rows`, inserts and deletes others; each thread's number of rounds so far."""
    ended, rounds = threading.Event(), [0] * threads

    def write(own: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as writer:
            number = own
            while not ended.is_set():
                number += threads
                writer.execute("UPDATE a SET n = n + 1 WHERE id = %s", [number % rows + 1])
                writer.execute("INSERT INTO a (id, n) VALUES (%s, -1)", [_FIRST_NEW + number])
                writer.execute("DELETE FROM a WHERE id = %s", [_FIRST_NEW + number - 10 * threads])
                rounds[own] += 1
                time.sleep(0.002)

    started = [threading.Thread(target=write, args=[own]) for own in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield rounds
    finally:
        ended.set()
        for thread in started:
            thread.join()
