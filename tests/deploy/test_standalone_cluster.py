"""The service against a real Spark standalone cluster, which loses one of its two workers on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from headgate.capture.postgres.private_server import PostgresServer
from tests.cli.processes import headgate
from tests.cli.test_service import start, stop
from tests.deploy.standalone import StandaloneCluster
from tests.waiting import eventually

pytestmark = pytest.mark.slow

ROWS = 20_000
FLOW = "CREATE MATERIALIZED VIEW sold AS SELECT item, COUNT(*) AS sales, SUM(amount) AS amount FROM shop.sales GROUP BY item;"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        server.execute("CREATE TABLE sales (id int PRIMARY KEY, item int NOT NULL, amount bigint NOT NULL)")
        server.execute(f"INSERT INTO sales SELECT i, i % 10, i FROM generate_series(1, {ROWS}) i")
        yield server


def test_the_service_runs_on_a_cluster_and_outlives_a_worker(server: PostgresServer, tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path) as cluster:
        project = tmp_path / "shop"
        (project / "flows").mkdir(parents=True)
        (project / "flows" / "sold.sql").write_text(FLOW)
        source = {"type": "postgres", "dsn": server.dsn, "tables": {"sales": {}}}
        settings = {
            "name": "shop",
            "storage": str(project / "warehouse"),
            "libraries": [{"glob": {"include": "flows/**"}}],
            "spark": {
                "spark.master": cluster.url,
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.sql.shuffle.partitions": "4",
            },
            "sources": {"shop": source},
            # Little enough that executors read the first load, and the events of large jobs, and hold the tables.
            "limits": {"spark_load_bytes": "64KiB", "batch_rows": 2_000},
        }
        (project / "headgate.yml").write_text(yaml.safe_dump(settings))

        process, _ = start(project)
        try:
            assert sold(project) == (ROWS, sum(range(ROWS + 1)))
            eventually(lambda: cluster.tasks(0) > 0 and cluster.tasks(1) > 0)
            server.execute("UPDATE sales SET amount = amount + 1 WHERE id <= 100; DELETE FROM sales WHERE id > 19990")
            after = (ROWS - 10, sum(range(ROWS - 9)) + 100)
            assert sold(project) == after

            cluster.kill(0)
            assert sold(project) == after
            server.execute("INSERT INTO sales SELECT i, 3, 5 FROM generate_series(30001, 35000) i")
            assert sold(project) == (ROWS - 10 + 5000, after[1] + 25_000)
        finally:
            code = stop(process)
        assert code == 0, (project / "log").read_text()


def sold(project: Path) -> tuple[int, int]:
    """All that was sold, asked of the flow and counted from the table itself; both must agree."""
    answers = []
    for query in (
        "SELECT SUM(sales) AS sales, SUM(amount) AS amount FROM sold",
        "SELECT COUNT(*) AS sales, SUM(amount) AS amount FROM shop.sales",
    ):
        done = headgate("query", query, "--project", str(project), "--json")
        assert done.returncode == 0, done.stderr
        answers += json.loads(done.stdout)
    assert answers[0] == answers[1]
    return answers[0]["sales"], answers[0]["amount"]
