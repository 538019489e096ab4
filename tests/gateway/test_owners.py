"""A flow belongs to the project's files or to clients and programs: the other owner is told, and nothing else stands still."""

from __future__ import annotations

import logging
from pathlib import Path

import psycopg
import pytest

from headgate.errors import FlowError
from headgate.runtime.spark.sessions import SparkSessions
from tests.gateway.serving import fill, open_shop, served


def test_a_flow_stays_with_its_first_owner(
    spark_sessions: SparkSessions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_shop(tmp_path) as warehouse, served(warehouse) as shop:
        fill(warehouse)
        with psycopg.connect(shop.dsn, autocommit=True) as client:
            client.execute("CREATE MATERIALIZED VIEW mine AS SELECT item AS of_client FROM shop.sales")
            # The files had it first.
            with pytest.raises(psycopg.errors.DuplicateTable, match="files define it"):
                client.execute("CREATE MATERIALIZED VIEW Top_Items AS SELECT item FROM shop.sales")
            with pytest.raises(FlowError, match=r"top_items belongs to the project's files: .*shop\.sql:\d+"):
                warehouse.redeclare({"TOP_items": "SELECT item FROM shop.sales"})
            # The client had it first.
            (tmp_path / "flows" / "mine.sql").write_text(
                "CREATE MATERIALIZED VIEW mine COMMENT 'by file' AS SELECT item AS of_file FROM shop.sales;"
            )
            with pytest.raises(FlowError, match=r"mine belongs to the client .*mine\.sql:1 defines it") as told:
                warehouse.apply()
            assert "DROP MATERIALIZED VIEW mine" in str(told.value)
            client.execute("CREATE MATERIALIZED VIEW more AS SELECT of_client FROM mine")
    caplog.clear()
    with caplog.at_level(logging.ERROR, "headgate"), open_shop(tmp_path) as warehouse, served(warehouse) as shop:
        (line,) = [each.getMessage() for each in caplog.records if "two owners" in each.getMessage()]
        assert "mine.sql:1" in line and "DROP MATERIALIZED VIEW mine" in line
        # Whoever wrote the file is told by the status, which the page shows, until the flow has one owner again.
        (told_of,) = [str(each) for each in warehouse.failures]
        assert "mine.sql:1" in told_of and "DROP MATERIALIZED VIEW mine" in told_of
        with psycopg.connect(shop.dsn, autocommit=True) as client:
            assert sorted(client.execute("SELECT of_client FROM more").fetchall()) == [(1,), (1,), (2,)]
            client.execute("DROP MATERIALIZED VIEW mine CASCADE")
            assert warehouse.failures == ()
            assert sorted(client.execute("SELECT of_file FROM mine").fetchall()) == [(1,), (1,), (2,)]
            described = client.execute("SELECT obj_description('mine'::regclass, 'pg_class')").fetchone()
            assert described == ("by file",)
