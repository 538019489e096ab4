"""Data expectations: dropped, refused or counted, exactly, by job."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headgate import Warehouse
from headgate.delta.changes import JobId
from headgate.errors import FlowError, FlowFailed
from headgate.runtime.spark.sessions import SparkSessions
from headgate.service.metrics import MetricsRegistry, WarehouseCollector
from headgate.service.restarts import Restarts
from tests.scheduling.bank import deposit, open_bank
from tests.seed import SEED
from tests.service.prometheus import read_metrics

# A name that is not there makes its condition NULL.
FLOWS = """
CREATE MATERIALIZED VIEW good (
    CONSTRAINT funded EXPECT (balance > 10) ON VIOLATION DROP ROW,
    CONSTRAINT named EXPECT (name < 'm') ON VIOLATION DROP,
    CONSTRAINT small EXPECT (balance < 50)
) AS SELECT a.id, a.balance, b.name FROM bank.accounts a LEFT JOIN bank.branches b ON a.branch = b.branch;
CREATE MATERIALIZED VIEW filtered AS SELECT * FROM (
    SELECT a.id, a.balance, b.name FROM bank.accounts a LEFT JOIN bank.branches b ON a.branch = b.branch
) WHERE balance > 10 AND name < 'm';
CREATE MATERIALIZED VIEW sums (CONSTRAINT large EXPECT (total >= 100) ON VIOLATION WARN) AS
SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;
CREATE STREAMING TABLE versions (CONSTRAINT known EXPECT (balance IS NOT NULL AND balance < 60));
CREATE FLOW versions_cdc AS AUTO CDC INTO versions FROM bank.accounts KEYS (id) STORED AS SCD TYPE 2;
"""
COUNTS = """
SELECT COUNT(*) - COUNT_IF(balance > 10) AS funded, COUNT(*) - COUNT_IF(name < 'm') AS named,
       COUNT(*) - COUNT_IF(balance < 50) AS small
FROM (SELECT a.id, a.balance, b.name FROM bank.accounts a LEFT JOIN bank.branches b ON a.branch = b.branch)
"""


def change(bank: Warehouse, choice: random.Random) -> None:
    with bank.source("bank").transaction() as transaction:
        for account in {choice.randint(1, 12) for _ in range(4)}:
            transaction.delete("accounts", {"id": account})
            if choice.random() < 0.85:
                balance = choice.choice([None, 5, 10, 11, 40, 50, 70, 200])
                transaction.insert("accounts", {"id": account, "branch": choice.randint(0, 3), "balance": balance})
        branch = choice.randint(0, 3)
        transaction.delete("branches", {"branch": branch})
        if choice.random() < 0.7:
            transaction.insert("branches", {"branch": branch, "name": choice.choice(["alder", "pine", None])})


def test_dropping_is_filtering_and_counts_are_those_of_every_job(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    choice = random.Random(SEED)
    with open_bank(tmp_path, FLOWS) as bank:
        expected = {}
        for _ in range(4):
            change(bank, choice)
            job = bank.close_job()
        job = bank.refresh()
        for each in range(1, job + 1):
            good, filtered = bank.table("good", each).collect(), bank.table("filtered", each).collect()
            assert sorted(map(str, good)) == sorted(map(str, filtered)), SEED
            ((funded, named, small),) = bank.sql(COUNTS, each).collect()
            expected[each] = {"funded": funded, "named": named, "small": small}
            assert bank._violations.at("good", JobId(each)) == expected[each], SEED
            ((few,),) = bank.sql("SELECT COUNT_IF(total IS NULL OR total < 100) FROM sums", each).collect()
            assert bank._violations.at("sums", JobId(each)) == {"large": few}, SEED
        versions = bank.sql("SELECT balance FROM versions", job).collect()
        wrong = sum(balance is None or balance >= 60 for (balance,) in versions)
        status = {table.name: table for table in bank.status.tables}
        assert [(found.name, found.action, found.violations) for found in status["good"].expectations] == [
            ("funded", "drop", expected[job]["funded"]),
            ("named", "drop", expected[job]["named"]),
            ("small", "warn", expected[job]["small"]),
        ]
        (known,) = status["versions"].expectations
        assert known.violations == wrong and known.job == job and status["filtered"].expectations == ()
        for record in bank.history.jobs():
            assert record.violations["good"] == expected[record.id]
        assert bank.explain("good").is_incremental and bank.explain("good__expectations").is_incremental
        registry = MetricsRegistry()
        registry.register(WarehouseCollector(lambda: bank, Restarts()))
        found = read_metrics(registry.page()[0].decode())["headgate_table_violations"]
        assert found.value(table="good", constraint="small", action="warn") == expected[job]["small"]


STRICT = """
CREATE MATERIALIZED VIEW strict (CONSTRAINT solvent EXPECT (balance >= 0) ON VIOLATION FAIL UPDATE)
AS SELECT id, branch, balance FROM bank.accounts;
"""
COPIES = """
CREATE MATERIALIZED VIEW strict_sums AS SELECT branch, SUM(balance) AS total FROM strict GROUP BY branch;
CREATE MATERIALIZED VIEW copies (CONSTRAINT solvent EXPECT (balance >= 0) ON VIOLATION FAIL)
AS SELECT balance FROM bank.accounts;
"""


@pytest.mark.parametrize("way", ["narrow", "wide", pytest.param("recompute", marks=pytest.mark.thorough)])
def test_a_violation_fails_its_job_and_heals(tmp_path: Path, spark_sessions: SparkSessions, way: str) -> None:
    is_narrow = way == "narrow"
    with open_bank(tmp_path, STRICT + COPIES if is_narrow else STRICT, limits={"way": way}) as bank:
        deposit(bank, (1, 1, 10), (2, 2, 5))
        assert bank.sql("SELECT COUNT(*) AS n FROM strict").collect() == [(2,)]
        deposit(bank, (3, 1, 20))
        bank.close_job()
        deposit(bank, (4, 1, -5), (5, 1, -7))
        for table in ("strict", "copies") if is_narrow else ("strict",):
            with pytest.raises(
                FlowFailed, match=rf"flow {table} failed in job 3: 2 rows violate the constraint solvent"
            ) as bad:
                bank.sql(f"SELECT * FROM {table}")
            assert "EXPECT (balance >= 0)" in bad.value.what and '"balance":-5' in bad.value.what
            assert (
                '"balance":-7' in bad.value.what and bad.value.where is not None and "resume" in str(bad.value.advice)
            )
            with bank.sql(f"SELECT COUNT(*) AS n FROM {table}", 2) as answer:
                assert answer.collect() == [(3,)]
        (failed,) = (table for table in bank.status.tables if table.name == "strict")
        assert failed.failure is not None and "solvent" in failed.failure
        with bank.source("bank").transaction() as transaction:
            transaction.update("accounts", {"id": 4, "branch": 1, "balance": 1})
            transaction.delete("accounts", {"id": 5})
        assert bank.sql("SELECT SUM(balance) AS s FROM strict").collect() == [(36,)]
        if is_narrow:
            assert bank.sql("SELECT SUM(total) AS s FROM strict_sums").collect() == [(36,)]
            assert bank.sql("SELECT SUM(balance) AS s FROM copies").collect() == [(36,)]


def test_a_constraint_that_is_new_looks_at_all_rows(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    plain = "CREATE MATERIALIZED VIEW strict AS SELECT id, balance FROM bank.accounts;"
    with open_bank(tmp_path, plain) as bank:
        deposit(bank, (1, 1, -10))
        bank.refresh()
        file = Path(bank.project.flow_files[0])
        file.write_text(STRICT)
        with pytest.raises(FlowFailed, match="1 row violates the constraint solvent"):
            bank.apply()
        file.write_text(
            "CREATE MATERIALIZED VIEW v (CONSTRAINT c EXPECT (nothing > 1)) AS SELECT id FROM bank.accounts;"
        )
        with pytest.raises(FlowError, match="nothing"):
            bank.apply()
        file.write_text(
            "CREATE MATERIALIZED VIEW v (CONSTRAINT c EXPECT (r > 1) ON VIOLATION FAIL) AS SELECT rand() AS r FROM bank.accounts;"
        )
        with pytest.raises(FlowError, match="constraint c cannot fail: v is run when it is read"):
            bank.apply()
