"""Two databases in which money moves: a transfer leaves its database's total as it is, and is numbered by its writer.

Every writer commits one transfer after another and knows when each was acknowledged, so from the last number that an
answer shows follows all that must be in it. Tables derived from both are brought up to date only when somebody asks.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headgate.capture.postgres.private_server import PostgresServer
from tests.faults.shop import SPARK
from tests.serializability.history import History

DATABASES = ("east", "west")
ACCOUNTS, BRANCHES, BALANCE = 12, 3, 100
WRITERS = 2
OWNER_EVERY = 3
"""Every third transfer of a writer makes a version of its row in the dimension."""
TABLES = {"east": ("accounts", "transfers", "owners"), "west": ("accounts", "transfers")}

SCHEMA = f"""
CREATE TABLE accounts (id bigint PRIMARY KEY, branch bigint NOT NULL, balance bigint NOT NULL);
CREATE TABLE transfers (writer bigint, number bigint, amount bigint NOT NULL, PRIMARY KEY (writer, number));
CREATE TABLE owners (id bigint PRIMARY KEY, last bigint NOT NULL);
INSERT INTO accounts SELECT i, i % {BRANCHES}, {BALANCE} FROM generate_series(1, {ACCOUNTS}) AS i;
INSERT INTO owners SELECT i, 0 FROM generate_series(1, {WRITERS}) AS i;
"""
VIEWS = {
    name: text.replace("{db}", database)
    for database in DATABASES
    for name, text in {
        f"{database}_branches": "SELECT branch, SUM(balance) AS total, COUNT(*) AS accounts FROM {db}.accounts GROUP BY branch",
        f"{database}_history": "SELECT writer, MAX(number) AS last, COUNT(*) AS transfers FROM {db}.transfers GROUP BY writer",
    }.items()
} | {
    "pairs": "SELECT e.id, e.branch, e.balance AS east, w.balance AS west"
    " FROM east.accounts e JOIN west.accounts w ON w.id = e.id"
}
DIMENSION = """
CREATE STREAMING TABLE east_owner;
CREATE FLOW east_owner_cdc AS AUTO CDC INTO east_owner FROM east.owners KEYS (id) STORED AS SCD TYPE 2;
"""
FLOWS = DIMENSION + "\n".join(f"CREATE MATERIALIZED VIEW {name} AS {text};" for name, text in VIEWS.items())


def create(server: PostgresServer) -> dict[str, str]:
    """Makes the databases; gives their DSNs."""
    for database in DATABASES:
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {database}")
        with server.connect(database) as connection:
            connection.execute(SCHEMA)
    return {database: server.dsn_of(database) for database in DATABASES}


def project(
    folder: Path,
    dsns: Mapping[str, str],
    *,
    master: str = "local[2]",
    capture: str = "log",
    **more: object,
) -> dict[str, object]:
    """Tables are materialized every few seconds, so that this happens while they are read."""
    flows = folder / "flows"
    flows.mkdir(parents=True, exist_ok=True)
    (flows / "bank.sql").write_text(FLOWS)
    return {
        "name": "bank",
        "storage": str(folder / "warehouse"),
        "spark": {**SPARK, "spark.master": master},
        "libraries": [{"glob": {"include": f"{flows}/**"}}],
        "retention": {"jobs": 10},
        "background": {"oldest_changes": "3s", "idle_after": "1s"},
        "sources": {
            name: {"type": "postgres", "dsn": dsn, "capture": capture, "tables": dict.fromkeys(TABLES[name])}
            for name, dsn in dsns.items()
        },
        **more,
    }


def describe(history: History, clock_shift: float = 0.0, kept: int | None = None) -> None:
    """`kept`: how many of its last transfers a writer leaves in the table; None is all."""
    history.add(
        "world",
        databases=DATABASES,
        branches={str(branch): BALANCE * (ACCOUNTS // BRANCHES) for branch in range(BRANCHES)},
        accounts=ACCOUNTS // BRANCHES,
        writers=WRITERS,
        owner_every=OWNER_EVERY,
        clock_shift=clock_shift,
        kept=kept,
    )


class Writer:
    """Commits one transfer after another and records each; goes on when the server comes back."""

    def __init__(self, database: str, dsn: str, writer: int, history: History, kept: int | None) -> None:
        self._database = database
        self._dsn = dsn
        self._writer = writer
        self._history = history
        self._kept = kept
        self._chance = random.Random(f"{database} {writer}")
        self._number = 0
        self._sent: dict[str, Any] | None = None

    def run(self, ended: threading.Event, pause: float) -> None:
        while not ended.is_set():
            try:
                with psycopg.connect(self._dsn, connect_timeout=5) as connection:
                    self._settle(connection)
                    while not ended.wait(self._chance.uniform(0, 2 * pause)):
                        self._transfer(connection)
            except psycopg.Error:
                ended.wait(0.05)
        if self._sent is not None:
            with psycopg.connect(self._dsn) as connection:
                self._settle(connection)

    def _settle(self, connection: psycopg.Connection) -> None:
        """Finds out what became of a commit whose answer was lost."""
        if self._sent is not None:
            found = connection.execute("SELECT MAX(number) FROM transfers WHERE writer = %s", [self._writer]).fetchone()
            connection.rollback()
            if found is not None and found[0] == self._sent["number"]:
                self._committed()
            self._sent = None

    def _transfer(self, connection: psycopg.Connection) -> None:
        number = self._number + 1
        one, other = self._chance.sample(range(1, ACCOUNTS + 1), 2)
        amount = self._chance.randint(1, 9)
        # In the order of their ids, so that transfers never wait for each other in a circle.
        for account, change in sorted([(one, -amount), (other, amount)]):
            connection.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", [change, account])
        connection.execute("INSERT INTO transfers VALUES (%s, %s, %s)", [self._writer, number, amount])
        if self._kept is not None:
            connection.execute(
                "DELETE FROM transfers WHERE writer = %s AND number = %s", [self._writer, number - self._kept]
            )
        if number % OWNER_EVERY == 0:
            connection.execute("UPDATE owners SET last = %s WHERE id = %s", [number, self._writer])
        self._sent = {
            "database": self._database,
            "writer": self._writer,
            "number": number,
            "moved": [[one % BRANCHES, -amount], [other % BRANCHES, amount]],
            "sent_at": time.time(),
        }
        connection.commit()
        self._committed()

    def _committed(self) -> None:
        assert self._sent is not None
        self._history.add("commit", **self._sent, acknowledged_at=time.time())
        self._number = self._sent["number"]
        self._sent = None


@contextmanager
def transfers(dsns: Mapping[str, str], history: History, pause: float = 0.1, kept: int | None = None) -> Iterator[None]:
    """Money moves in all databases until the block ends."""
    ended = threading.Event()
    writers = [
        Writer(name, dsn, writer, history, kept) for name, dsn in dsns.items() for writer in range(1, WRITERS + 1)
    ]
    threads = [threading.Thread(target=writer.run, args=(ended, pause)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
