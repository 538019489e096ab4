"""A flow that fails lags behind the others; its inputs stay readable at its job, also when the warehouse is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

import headgate
from headgate.errors import FlowFailed
from headgate.runtime.spark.sessions import SparkSessions
from tests.faults import shop
from tests.waiting import eventually

SHARE = "CREATE MATERIALIZED VIEW shares AS SELECT item_id, 100 DIV (qty - 3) AS share FROM shop.lineitems;"


def test_a_flow_that_failed_is_caught_up_after_materializing_and_opening_again(
    spark_sessions: SparkSessions, tmp_path: Path
) -> None:
    project = shop.project(tmp_path)
    (tmp_path / "flows/shares.sql").write_text(SHARE)
    with headgate.open(project) as warehouse:
        shop.commit(warehouse, 1)
        warehouse.refresh()
        shop.commit(warehouse, 2)
        with pytest.raises(FlowFailed, match="shares"):
            warehouse.refresh()
        warehouse.materialize()
        with warehouse.source("shop").transaction() as transaction:
            transaction.insert("items", {"item_id": 5, "name": "five"})
        with pytest.raises(FlowFailed, match="shares"):
            warehouse.refresh()
        warehouse.materialize()
        known = shop.content(warehouse)
    with headgate.open(project) as warehouse:
        assert shop.content(warehouse) == known
        eventually(lambda: "shares" in str(warehouse.failures))
        with pytest.raises(FlowFailed, match="over_shares cannot be built while shares lags behind"):
            warehouse.flow("over_shares", "SELECT * FROM shares")
        with pytest.raises(FlowFailed, match="shares"):
            warehouse.refresh()
    (tmp_path / "flows/shares.sql").write_text(SHARE.replace("qty - 3", "qty + 3"))
    with headgate.open(project) as warehouse:
        assert shop.content(warehouse) == known
        with warehouse.table("shares") as answer:
            assert len(answer.collect()) == len(known["shop.lineitems"])
