"""A small bank in one in-process source: accounts, branches, and flows over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import headgate
from headgate import Procedure, Warehouse
from headgate.clock import Clock
from headgate.scheduling.applying import ApproveOpening
from headgate.warehouse.store import Step, no_step

SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
FLOWS = """
CREATE MATERIALIZED VIEW totals AS SELECT branch, SUM(balance) AS total FROM bank.accounts GROUP BY branch;
CREATE MATERIALIZED VIEW names AS SELECT branch, upper(name) AS name FROM bank.branches;
"""


def open_bank(
    folder: Path,
    flows: str = FLOWS,
    procedures: Sequence[Procedure] = (),
    clock: Clock | None = None,
    step: Step = no_step,
    build_later: bool = False,
    approve: ApproveOpening = lambda changes, flows, settings: None,
    **settings: object,
) -> Warehouse:
    """Opens the bank in a folder; its flows are one file."""
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "bank.sql").write_text(flows)
    tables: Mapping[str, object] = {
        "accounts": {"columns": {"id": "bigint", "branch": "int", "balance": "bigint"}, "key": ["id"]},
        "branches": {"columns": {"branch": "int", "name": "string"}, "key": ["branch"]},
    }
    project = {
        "name": "bank",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "sources": {"bank": {"type": "memory", "tables": tables}},
        "background": {"system_jobs": False},
        **settings,
    }
    return headgate.open(
        project, procedures=procedures, clock=clock, step=step, build_later=build_later, approve=approve
    )


def deposit(warehouse: Warehouse, *accounts: tuple[int, int, int]) -> None:
    """One transaction with accounts (id, branch, balance)."""
    with warehouse.source("bank").transaction() as transaction:
        for account, branch, balance in accounts:
            row = {"id": account, "branch": branch, "balance": balance}
            transaction.insert("accounts", row)


def totals(answer: headgate.Answer) -> dict[int, int]:
    with answer:
        return {row.branch: row.total for row in answer.collect()}
