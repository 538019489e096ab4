"""Dimensions whose changes Spark computes: in the session in which the changes per transaction are entered."""

from __future__ import annotations

from pathlib import Path

from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import open_bank

VERSIONS = """
CREATE STREAMING TABLE versions;
CREATE FLOW versions_cdc AS AUTO CDC INTO versions FROM bank.accounts KEYS (id) SEQUENCE BY branch STORED AS SCD TYPE 2;
"""


def test_updates_are_read_where_they_were_entered(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    # Each update is one event and two changes: the events are few for one session, the changes many.
    with open_bank(tmp_path, VERSIONS, limits={"batch_rows": 100}) as bank:
        for branch in (1, 2):
            with bank.source("bank").transaction() as transaction:
                for account in range(8):
                    row = {"id": account, "branch": branch, "balance": 10 * branch}
                    (transaction.insert if branch == 1 else transaction.update)("accounts", row)
            bank.refresh()
        assert bank.sql("SELECT COUNT(*) AS n, SUM(balance) AS s FROM versions").collect() == [(16, 240)]
