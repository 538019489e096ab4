"""Key ranges on every surface: project file, command line, HTTP; and what is said about wrong ones."""

from __future__ import annotations

import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.cli.main import run
from headgate.client import connect
from headgate.errors import ConfigError
from headgate.runtime.spark.sessions import SparkSessions
from headgate.service import Server


def project(folder: Path, **ranges: Any) -> dict[str, Any]:
    columns = {"id": "bigint", "at": "timestamp", "price": "double", "item": "string"}
    table = {"columns": columns, "key": ["id", "at", "price"], "ranges": ranges or {"column": "id", "bounds": [10, 20]}}
    return {
        "name": "shop",
        "storage": str(folder / "warehouse"),
        "sources": {"db": {"type": "memory", "tables": {"sales": table}}},
    }


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({"column": "item"}, "db.sales cannot have ranges of item, which is not a column of its key"),
        ({"column": "price"}, "db.sales cannot have ranges of price, a double"),
        ({"column": "id", "bounds": [20, 10]}, "the bounds are not in order"),
        ({"column": "id", "bounds": ["x"]}, "'x' is no integer"),
        ({"column": "id", "bounds": [10], "count": 3}, "a table has bounds of ranges or a count, not both"),
    ],
)
def test_wrong_ranges_are_refused(
    tmp_path: Path, spark_sessions: SparkSessions, ranges: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        headgate.open(project(tmp_path, **ranges))
    assert said in str(raised.value)


def test_ranges_are_shown_and_cut_by_command(
    tmp_path: Path, spark_sessions: SparkSessions, capsys: pytest.CaptureFixture[str]
) -> None:
    with headgate.open(project(tmp_path)) as warehouse, Server(warehouse, port=0) as server:
        warehouse.flow("items", "SELECT id, item, count(*) AS n FROM db.sales GROUP BY id, item")
        warehouse.flow("totals", "SELECT item, count(*) AS n FROM db.sales GROUP BY item")
        with warehouse.source("db").transaction() as transaction:
            for number in range(30):
                row = {"id": number, "at": datetime(2026, 1, 1, tzinfo=UTC), "price": 1.5, "item": "tea"}
                transaction.insert("sales", row)
        warehouse.refresh()
        assert run(["ranges", "show", "--url", server.url]) == 0
        said = capsys.readouterr().out
        assert "items: 3 ranges of id" in said and "  1  [10, 20) at job 1" in said
        assert "  scan of db.sales: aligned on id" in said
        assert "totals: one range, " in said
        assert run(["ranges", "split", "items", "25", "--url", server.url]) == 0
        assert "db.sales: 4 ranges of id" in capsys.readouterr().out
        assert run(["ranges", "merge", "db.sales", "0", "--url", server.url]) == 0
        assert run(["ranges", "bounds", "items", "--count", "5", "--url", server.url]) == 0
        found = {each["table"]: each for each in connect(server.url).ranges()["tables"]}
        assert [each["name"] for each in found["items"]["ranges"]] == [
            "(, 6)", "[6, 12)", "[12, 18)", "[18, 24)", "[24, )"
        ]  # fmt: skip
        assert run(["ranges", "bounds", "items", "5", "3", "--url", server.url]) == 1
        assert "not in order" in capsys.readouterr().err
        assert run(["ranges", "split", "totals", "5", "--url", server.url]) == 1
        assert "totals has one range" in capsys.readouterr().err
        assert run(["ranges", "split", "nothing", "5", "--url", server.url]) == 1
        assert "there is no table nothing" in capsys.readouterr().err
        metrics = get(f"{server.url}/metrics")
        assert 'headgate_table_ranges{table="items"} 5.0' in metrics
        assert 'headgate_table_ranges_uneven{table="items"} 0.0' in metrics
        assert 'headgate_table_ranges_missing{table="totals"} 0.0' in metrics
        assert connect(server.url).status()["tables"][0]["ranges"]


def get(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())
