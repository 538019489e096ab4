"""Either side is killed and connections are cut at random moments, while money is moved: nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg

from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceUnreachable
from tests.postgres.logged import EVERYTHING, logged, source_rows

_ACCOUNTS, _EACH = 40, 1000


def move_money(dsn: str, ended: threading.Event, seed: int) -> None:
    """Moves amounts between accounts, sometimes many in one transaction, whatever happens to the server."""
    chance = random.Random(seed)
    while not ended.is_set():
        try:
            with psycopg.connect(dsn, connect_timeout=5) as connection:
                while not ended.is_set():
                    for _ in range(chance.choice([1] * 20 + [60])):
                        giver, taker = sorted(chance.sample(range(_ACCOUNTS), 2))
                        amount = chance.randint(-9, 9)
                        connection.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", [amount, giver])
                        connection.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", [amount, taker])
                        connection.execute(
                            "INSERT INTO transfers (giver, taker, amount) VALUES (%s, %s, %s)", [giver, taker, amount]
                        )
                    connection.rollback() if chance.random() < 0.1 else connection.commit()
                    time.sleep(0.003)
        except psycopg.Error:
            # A killed server, or two transactions that wait for each other.
            time.sleep(0.02)


def test_nothing_is_lost_or_doubled_whoever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(4)
    victims = ["capture"] * 3 + ["server"] * 3 + ["connection"] * 5
    chance.shuffle(victims)
    with PostgresServer(settings={"deadlock_timeout": "20ms"}) as server:
        server.execute(
            "CREATE TABLE accounts (id int PRIMARY KEY, balance int);"
            "CREATE TABLE transfers (id bigserial PRIMARY KEY, giver int, taker int, amount int)"
        )
        with server.connect() as connection:
            connection.execute(
                "INSERT INTO accounts SELECT i, %s FROM generate_series(0, %s) i", [_EACH, _ACCOUNTS - 1]
            )
        ended = threading.Event()
        movers = [threading.Thread(target=move_money, args=[server.dsn, ended, seed]) for seed in range(2)]
        for mover in movers:
            mover.start()
        capture = start_capture(server.dsn, tmp_path)
        try:
            for victim in victims:
                time.sleep(chance.uniform(0.02, 0.4))
                assert capture.poll() is None
                if victim == "capture":
                    end(capture)
                    capture = start_capture(server.dsn, tmp_path)
                elif victim == "server":
                    server.kill()
                    server.start()
                else:
                    server.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'"
                    )
        finally:
            ended.set()
            end(capture)
            for mover in movers:
                mover.join()
        with logged(server.dsn, tmp_path, "accounts", "transfers") as source:
            captured = len(source.log.transactions(0, EVERYTHING))
            for _ in range(100):
                try:
                    source.catch_up()
                    break
                except SourceUnreachable:
                    time.sleep(0.05)
            with server.connect() as connection:
                for table in ("accounts", "transfers"):
                    assert source.replica(table) == source_rows(connection, table)
            assert captured > 200
            ids = [row["id"] for row in source.events("transfers")]
            assert len(ids) == len(set(ids)) > 500
            balances: dict[int, int] = {}
            accounts = source.events("accounts")
            for place, event in enumerate(accounts):
                balances[event["id"]] = event["balance"]
                if place + 1 == len(accounts) or accounts[place + 1]["__position"] != event["__position"]:
                    assert sum(balances.values()) == _ACCOUNTS * _EACH


def start_capture(dsn: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "tests.postgres.capturing", dsn, str(folder)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    # It says so when it begins to capture; before, there is little to interrupt.
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
