"""Accounts between which money moves: the total is the same after every transaction, whatever was killed meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from headgate.capture.locallog import LocalLog
from tests.postgres.replaying import Rows, replay_steps

ACCOUNTS = 20
TOTAL = ACCOUNTS * 100
KEYS = {"accounts": ("id",), "moves": ("id",)}


def create(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL, at timestamptz NOT NULL DEFAULT now());"
            "CREATE INDEX ON accounts (at);"
            "CREATE TABLE moves (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int NOT NULL,"
            " at timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON moves (at)"
        )
        connection.execute(
            "INSERT INTO accounts (id, balance) SELECT i, 100 FROM generate_series(1, %s) AS i", [ACCOUNTS]
        )


@contextmanager
def transfers(dsn: str, threads: int = 3) -> Iterator[None]:
    """Moves money between accounts, some of it rolled back, some in transactions that last; survives the server."""
    stop = threading.Event()

    def work(seed: int) -> None:
        choose = random.Random(seed)
        while not stop.is_set():
            try:
                with psycopg.connect(dsn) as connection:
                    while not stop.is_set():
                        move(connection, choose)
            except psycopg.Error:
                stop.wait(0.05)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def move(connection: psycopg.Connection, choose: random.Random) -> None:
    amount = choose.randint(1, 10)
    # In the order of their ids, so that transfers never wait for each other in a circle.
    one, other = sorted(choose.sample(range(1, ACCOUNTS + 1), 2))
    connection.execute("UPDATE accounts SET balance = balance - %s, at = now() WHERE id = %s", [amount, one])
    with connection.transaction():
        connection.execute("INSERT INTO moves (amount) VALUES (%s)", [amount])
    if choose.random() < 0.05:
        time.sleep(0.05)
    connection.execute("UPDATE accounts SET balance = balance + %s, at = now() WHERE id = %s", [amount, other])
    if choose.random() < 0.1:
        connection.rollback()
    else:
        connection.commit()


def check(log: LocalLog, dsn: str) -> int:
    """Compares the log with the source, and the total after every transaction; returns their number."""
    state: dict[str, Rows] = {}
    for state in replay_steps(log, KEYS):
        assert sum(int(str(row["balance"])) for row in state["accounts"].values()) == TOTAL
    with psycopg.connect(dsn) as connection:
        for table, rows in state.items():
            found = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
            assert sorted(tuple(row.values()) for row in rows.values()) == sorted(found)
    return len(log.transactions(log.trimmed, log.end))
