"""Books with accounts and moves between them, kept by a source of any kind: what its owner does, and what is captured.

Every transaction moves an amount between two accounts and notes it, so that the total is the same after each.
"""

from __future__ import annotations

import copy
import os
import random
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from headgate.capture.memory import MemorySource
from headgate.capture.source import LoadingSource, Sample, Source, SourceTable
from headgate.clock import SystemClock
from headgate.config.files import FilesSourceSettings
from headgate.config.sources import PostgresSourceSettings
from headgate.runtime.sources.sources import open_source
from tests.capture.logs import LOGS
from tests.postgres.replaying import Row, Rows, replay_steps, replayed
from tests.seed import SEED

ACCOUNTS = 10
EACH = 100
KEYS = {"accounts": ("id",), "moves": ("id",)}
WINDOW = timedelta(seconds=120)

_TABLES = """
CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE moves (id int PRIMARY KEY, amount int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON accounts (at);
CREATE INDEX ON moves (at);
"""
_MEMORY_TABLES = {
    name: SourceTable(name, StructType().add("id", "integer", nullable=False).add(value, "integer"), ("id",))
    for name, value in (("accounts", "balance"), ("moves", "amount"))
}


class Books:
    """One source, opened and closed as a process would."""

    def __init__(self, kind: str, folder: Path, dsn: str | None) -> None:
        self.kind = kind
        self.folder = folder
        self.dsn = dsn
        self._balances = dict.fromkeys(range(1, ACCOUNTS + 1), EACH)
        self._moves: dict[int, int] = {}
        self._written = 0
        self._opened = 0
        if kind == "files":
            for table in KEYS:
                (folder.parent / table).mkdir()
                self._put(table)
        if dsn is not None:
            with self._connect() as connection:
                connection.execute(_TABLES)
                connection.execute(
                    "INSERT INTO accounts (id, balance) SELECT i, %s FROM generate_series(1, %s) i", [EACH, ACCOUNTS]
                )
        self.source = self.open()
        if isinstance(self.source, MemorySource):
            with self.source.transaction(initial=True) as transaction:
                for account, balance in self._balances.items():
                    transaction.insert("accounts", {"id": account, "balance": balance})

    def open(self) -> Source:
        """The source as a project would have it."""
        # Each opening draws the kind of the stream log: one of either kind opens as the other.
        self._opened += 1
        log = random.Random(f"{SEED}{self.kind}{self._opened}").choice(LOGS)(self.folder)
        if self.kind == "memory":
            # Declared types would need a Spark to be understood.
            return MemorySource("books", _MEMORY_TABLES, log, SystemClock())
        try:
            source = open_source("contract", "books", self._settings(), log, SystemClock())
            if isinstance(source, LoadingSource) and source.unopened is None:
                source.load(list(source.first_loads), lambda: False)
            return source
        except BaseException:
            log.close()
            raise

    def reopen(self) -> None:
        self.source = self.open()

    def close(self) -> None:
        self.source.close()

    def move(self, giver: int, taker: int, amount: int) -> None:
        """Commits one transaction over both tables."""
        number = max(self._moves, default=0) + 1
        changed = {giver: self._balances[giver] - amount, taker: self._balances[taker] + amount}
        if isinstance(self.source, MemorySource):
            with self.source.transaction() as transaction:
                for account, balance in changed.items():
                    transaction.update("accounts", {"id": account, "balance": balance})
                transaction.insert("moves", {"id": number, "amount": amount})
        elif self.kind == "files":
            self._balances |= changed
            self._moves[number] = amount
            self._put("accounts")
            self._put("moves")
        else:
            with self._connect() as connection, connection.transaction():
                for account, balance in changed.items():
                    connection.execute(
                        "UPDATE accounts SET balance = %s, at = clock_timestamp() WHERE id = %s", [balance, account]
                    )
                connection.execute("INSERT INTO moves (id, amount) VALUES (%s, %s)", [number, amount])
        self._balances |= changed
        self._moves[number] = amount

    def forget(self, number: int) -> None:
        """Deletes a move."""
        if isinstance(self.source, MemorySource):
            with self.source.transaction() as transaction:
                transaction.delete("moves", {"id": number})
        elif self.dsn is not None:
            with self._connect() as connection:
                connection.execute("DELETE FROM moves WHERE id = %s", [number])
        del self._moves[number]
        if self.kind == "files":
            self._put("moves")

    def catch_up(self) -> Sample:
        """Captures what the source has acknowledged by now."""
        sample = self.source.sample()
        assert self.source.capture(sample, WINDOW)
        return sample

    def captured(self) -> dict[str, dict[object, object]]:
        """Balances and amounts by id, as the events add up to."""
        return _plain(replayed(self.source.log, KEYS))

    def steps(self) -> list[dict[str, dict[object, object]]]:
        """The same after every transaction."""
        return [copy.deepcopy(_plain(state)) for state in replay_steps(self.source.log, KEYS)]

    def kept(self) -> dict[str, dict[object, object]]:
        """What the owner of the books has."""
        if self.dsn is None:
            return {"accounts": dict(self._balances), "moves": dict(self._moves)}
        with self._connect() as connection:
            return {
                table: {row[0]: row[1] for row in connection.execute(sql.SQL("TABLE {}").format(sql.Identifier(table)))}
                for table in KEYS
            }

    def _connect(self) -> psycopg.Connection:
        assert self.dsn is not None
        return psycopg.connect(self.dsn, autocommit=True)

    def _put(self, table: str) -> None:
        """A snapshot of a table in a file, renamed into place."""
        rows = self._balances if table == "accounts" else self._moves
        self._written += 1
        fresh = self.folder.parent / table / ".new"
        fresh.write_text(
            f"id,{'balance' if table == 'accounts' else 'amount'}\n"
            + "".join(f"{key},{value}\n" for key, value in rows.items())
        )
        # Files that are found together are told apart by their times.
        os.utime(fresh, ns=(0, self._written * 1_000_000))
        fresh.rename(fresh.with_name(f"{self._written}.csv"))

    def _settings(self) -> PostgresSourceSettings | FilesSourceSettings:
        if self.kind == "files":
            columns = {"accounts": "balance", "moves": "amount"}
            tables = {
                name: {
                    "path": str(self.folder.parent / name),
                    "format": "csv",
                    "mode": "snapshot",
                    "key": ["id"],
                    "columns": {"id": "int", value: "int"},
                }
                for name, value in columns.items()
            }
            return FilesSourceSettings.model_validate({"type": "files", "settle": "0s", "tables": tables})
        table = {"updated": "at"} if self.kind == "timestamp" else {}
        return PostgresSourceSettings.model_validate(
            {"type": "postgres", "dsn": self.dsn, "capture": self.kind, "tables": dict.fromkeys(KEYS, table)}
        )


def total(state: dict[str, dict[object, object]]) -> int:
    return sum(int(str(balance)) for balance in state["accounts"].values())


def _plain(state: dict[str, Rows]) -> dict[str, dict[object, object]]:
    def value(row: Row) -> object:
        return row["balance"] if "balance" in row else row["amount"]

    return {table: {key[0]: value(row) for key, row in rows.items()} for table, rows in state.items()}
