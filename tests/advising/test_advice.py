"""Advice about the flows of a warehouse, followed: what is measured, what is stored then, and what stays as it is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headgate import Warehouse
from headgate.cli.main import run
from headgate.dataflow.cutting import operator_key
from headgate.dataflow.graph import Join, walk
from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, SnapshotGone
from headgate.runtime.flows.advice import FlowAdvice
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.ways import Way
from headgate.service import Server
from tests.scheduling.bank import deposit, open_bank

QUERY = """SELECT name, SUM(balance) AS total, COUNT(*) AS accounts
FROM (SELECT b.name, a.balance FROM bank.accounts a JOIN bank.branches b ON b.branch = a.branch WHERE a.balance > 0) GROUP BY name"""
FLOWS = f"""
CREATE MATERIALIZED VIEW named AS
SELECT b.name, a.balance FROM bank.accounts a JOIN bank.branches b ON b.branch = a.branch WHERE a.balance > 0;
CREATE MATERIALIZED VIEW totals TBLPROPERTIES ('advise' = 'auto') AS SELECT name, SUM(balance) AS total FROM named GROUP BY name;
CREATE MATERIALIZED VIEW moved TBLPROPERTIES ('advise' = 'auto') AS {QUERY};
CREATE MATERIALIZED VIEW quiet TBLPROPERTIES ('advise' = 'never') AS {QUERY};
"""
QUIET: dict[str, object] = {"advising": {"every": "1h", "times": 2, "reads": 1000}}
"""Only the test looks."""


def name_branches(warehouse: Warehouse) -> None:
    with warehouse.source("bank").transaction() as transaction:
        for branch in range(3):
            transaction.insert("branches", {"branch": branch, "name": f"branch {branch % 2}"})


def work(warehouse: Warehouse, jobs: int, first: int = 0) -> None:
    for number in range(first, first + jobs):
        deposit(warehouse, *((account, account % 3, number + account) for account in range(20)))
        warehouse.refresh()


def rows(warehouse: Warehouse, table: str, job: int | None = None) -> list[tuple[object, ...]]:
    with warehouse.table(table, job=job) as answer:
        return sorted(tuple(row) for row in answer.dataframe.collect())


def charge(warehouse: Warehouse, flow: str, as_written: float, incremental: float) -> None:
    """Has the flow's queries have taken so long, a tenth up to its join, however long they take on this machine."""
    costs = warehouse._advisor._costs(warehouse._engine.flows.get(flow), 1)
    ways = warehouse._engine.ways
    for node in walk(costs.graph.root):
        share = 1.0 if node is costs.graph.root else 0.1
        for _ in range(200):
            name, scanned = costs.table_of(node), costs.rows
            ways.took(f"{name} as written", Way.RECOMPUTE, scanned, share * as_written, scanned=scanned)
            for way in Way:
                rows = 1 if way is not Way.RECOMPUTE else scanned
                ways.took(name, way, rows, share * incremental, scanned=scanned)


def behind_join(warehouse: Warehouse, flow: str) -> str:
    graph = warehouse._engine.flows.get(flow).plan.uncut
    assert graph is not None
    return next(operator_key(node) for node in walk(graph.root) if isinstance(node, Join))


def test_advice_is_measured_followed_and_taken_back(
    tmp_path: Path, spark_sessions: SparkSessions, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_bank(tmp_path, FLOWS, retention={"jobs": 100}, **QUIET) as warehouse:
        name_branches(warehouse)
        work(warehouse, 3)
        found = {each.flow: each for each in warehouse.advise(dry_run=True)}
        assert found.keys() == {"named", "totals", "moved"}
        assert found["named"].fixed == "totals takes its changes" and not found["named"].moves
        assert not found["moved"].is_measured
        assert {"scan of bank.accounts", "scan of bank.branches", "join"} <= {
            each.operator for each in found["moved"].operators
        }
        expected = warehouse._engine.ways.expected("moved", found["moved"].rows, found["moved"].changed_rows)
        assert math.isclose(found["moved"].as_written, expected[Way.RECOMPUTE])
        assert found["moved"].reason in str(found["moved"]) and "bank.accounts" in str(found["moved"])
        with pytest.raises(DefiniteError, match="there is no flow nothing"):
            warehouse.advise("nothing")
        with pytest.raises(DefiniteError, match="whole result of named stays stored: totals takes its changes"):
            warehouse.advise("named")
        with pytest.raises(DefiniteError, match="whole result of quiet stays stored: its 'advise' is 'never'"):
            warehouse.advise("quiet")

        assert [each.is_measured for each in warehouse.advise("moved")] == [True]
        check(warehouse)
        followed = followed_at(warehouse, as_written=1.0, incremental=50.0)
        assert followed.best == () and followed.cut == ()
        assert not warehouse._engine.flows.get("moved").stages
        check(warehouse)
        followed = followed_at(warehouse, as_written=50.0, incremental=1.0)
        assert followed.best == followed_at(warehouse, as_written=50.0, incremental=1.0).current == ("projection 2",)
        assert warehouse._engine.flows.get("moved").plan.cut is None
        check(warehouse)
        with Server(warehouse, port=0) as server:
            for arguments, said in (
                (["advise", "--dry-run", "moved"], "stored: behind projection 2, which is the best"),
                (["advise", "moved", "--space", "1000000"], "best: recomputed"),
                (["explain", "moved", "--costs"], "stored: nothing: recomputed when it is read"),
            ):
                assert run([*arguments, "--url", server.url]) == 0
                assert said in capsys.readouterr().out
            assert run(["advise", "named", "--url", server.url]) != 0
            assert "the whole result of named stays stored: totals takes its changes" in capsys.readouterr().err
            assert run(["advise", "moved", "--space", "-1", "--url", server.url]) != 0
        check(warehouse)


def followed_at(warehouse: Warehouse, as_written: float, incremental: float) -> FlowAdvice:
    charge(warehouse, "moved", as_written, incremental)
    (found,) = warehouse.advise("moved")
    return found


def check(warehouse: Warehouse, oldest: int = 1) -> None:
    """At every job the moved flow has the rows of the one that never moves; before its first there are none."""
    for job in range(oldest, warehouse.newest_job + 1):
        assert rows(warehouse, "moved", job) == rows(warehouse, "quiet", job), job


def test_results_move_between_jobs(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, FLOWS, retention={"jobs": 6}, **QUIET) as warehouse:
        engine = warehouse._engine
        name_branches(warehouse)
        work(warehouse, 2)
        key = behind_join(warehouse, "moved")
        for number, cut in enumerate([(key,), None, (), (key,)]):
            held = warehouse.table("moved")
            before = sorted(tuple(row) for row in held.dataframe.collect())
            with engine.defining_flows():
                engine.defining.move("moved", cut)
            check(warehouse, max(1, warehouse.newest_job - 5))
            work(warehouse, 2, first=3 + 2 * number)
            # What was pinned before the move is read from where it was.
            assert sorted(tuple(row) for row in held.dataframe.collect()) == before
            held.close()
            check(warehouse, max(1, warehouse.newest_job - 5))
        record = engine.journal.records.flows["moved"]
        assert record.cut == (key,) and record.former
        work(warehouse, 8, first=20)
        warehouse.materialize()
        # No retained job is from before the last move.
        assert engine.journal.records.flows["moved"].former == ()
        storage = Path(warehouse.project.storage)
        assert {path.name for path in storage.glob("moved*")} == set()
        assert [path.name for path in (storage / "_headgate" / "inputs").iterdir()] == [f"moved.__kept_{key}.5"]
        with pytest.raises(SnapshotGone):
            warehouse.table("moved", job=JobId(warehouse.newest_job - 7))
    with open_bank(tmp_path, FLOWS, retention={"jobs": 6}, **QUIET) as warehouse:
        assert warehouse._engine.flows.get("moved").plan.cut == (key,)
        check(warehouse, warehouse.newest_job)
    # Another flow takes its changes: the whole result is stored again.
    more = FLOWS + "CREATE MATERIALIZED VIEW above AS SELECT name FROM moved WHERE total > 10;"
    with open_bank(tmp_path, more, retention={"jobs": 6}, **QUIET) as warehouse:
        assert warehouse._engine.flows.get("moved").plan.cut is None
        work(warehouse, 1, first=40)
        check(warehouse, warehouse.newest_job)
        assert {name for (name,) in rows(warehouse, "above")} == {"branch 0", "branch 1"}


def test_an_automatic_flow_moves_only_for_a_gain_that_lasts(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, FLOWS, retention={"jobs": 100}, **QUIET) as warehouse:
        flows, advisor = warehouse._engine.flows, warehouse._advisor
        name_branches(warehouse)
        work(warehouse, 2)
        assert "moved" not in advisor.look()  # nobody has read it
        charge(warehouse, "moved", as_written=1.0, incremental=50.0)
        rows(warehouse, "moved")
        assert advisor.look()["moved"] == "better 1 of 2 times in a row"
        assert advisor.look()["moved"] == "better 1 of 2 times in a row"  # not read since
        work(warehouse, 1, first=5)
        rows(warehouse, "moved")
        assert advisor.look()["moved"].startswith("moved: recomputed")
        assert flows.get("moved").plan.cut == ()
        check(warehouse)
        assert advisor.look()["moved"] == "the cut in use is the best one"
        for number in range(2):
            charge(warehouse, "moved", as_written=50.0, incremental=1.0)
            work(warehouse, 1, first=10 + number)
            rows(warehouse, "moved")
            why = advisor.look()["moved"]
        assert why.startswith("moved: kept behind") and flows.get("moved").plan.cut is None
        check(warehouse)
        assert warehouse.advised["moved"] == why


def test_changes_count_after_they_were_released(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    with open_bank(tmp_path, FLOWS, retention={"jobs": 1}, **QUIET) as warehouse:
        name_branches(warehouse)
        work(warehouse, 1)
        for number in range(2):
            # Each deposit overwrites twenty rows: as many go as come.
            work(warehouse, 1, first=50 + number)
            rows(warehouse, "moved")
        warehouse.materialize()
        (found,) = warehouse.advise("moved", dry_run=True)
        assert found.changed_rows == 40
