"""Tables in files with key ranges: a query takes a file's rows in for the ranges that it reads, whole snapshots included."""

from __future__ import annotations

from pathlib import Path

import headgate
from headgate.runtime.spark.sessions import SparkSessions

FLOWS = """
CREATE MATERIALIZED VIEW valued AS SELECT o.id, o.amount, s.left FROM landing.orders o LEFT JOIN landing.stock s ON s.id = o.id;
"""


def test_files_are_taken_in_range_by_range(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    for name in ("flows", "orders", "stock"):
        (tmp_path / name).mkdir()
    (tmp_path / "flows/all.sql").write_text(FLOWS)
    tables = {
        "orders": {"columns": {"id": "bigint", "amount": "bigint"}, "ranges": {"column": "id", "bounds": [10, 20]}},
        "stock": {"columns": {"id": "bigint", "left": "bigint"}, "mode": "snapshot", "ranges": {"column": "ID"}},
    }
    common = {"format": "csv", "key": ["id"]}
    settings = {
        "name": "shop",
        "storage": str(tmp_path / "warehouse"),
        "libraries": [{"glob": {"include": f"{tmp_path}/flows/**"}}],
        "sources": {
            "landing": {
                "type": "files",
                "settle": "0s",
                "tables": {name: {"path": str(tmp_path / name), **common, **table} for name, table in tables.items()},
            }
        },
        "background": {"idle_after": "1h", "oldest_changes": "1h"},
    }

    def put(place: str, header: str, rows: dict[int, int]) -> None:
        fresh = tmp_path / ".fresh"
        fresh.write_text("\n".join([f"id,{header}", *(f"{key},{value}" for key, value in rows.items())]) + "\n")
        fresh.rename(tmp_path / place)

    with headgate.open(settings) as warehouse:
        throughs = {
            name: lambda name=name: [int(job) for job in warehouse._engine.tables.get(name).throughs]
            for name in ("landing.orders", "landing.stock", "valued")
        }

        def ask(where: str) -> tuple[list[tuple[object, ...]], dict[str, tuple[int, int]]]:
            with warehouse.sql(f"SELECT id, amount, left FROM valued WHERE {where}", max_staleness="0s") as answer:
                found = sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())
                ranges = answer.receipt.ranges if answer.receipt is not None else ()
            return found, {each.table: (len(each.read), each.left_behind) for each in ranges}

        put("orders/a.csv", "amount", {1: 5, 11: 6, 21: 7})
        put("stock/a.csv", "left", {1: 1, 11: 2, 21: 3})
        assert ask("true")[0] == [(1, 5, 1), (11, 6, 2), (21, 7, 3)]
        put("orders/b.csv", "amount", {1: 50, 12: 60, 21: 70})
        put("stock/b.csv", "left", {11: 9, 12: 8})
        found, ranges = ask("id >= 20")
        assert found == [(21, 70, None)], "the snapshot has no such row any more"
        assert ranges == dict.fromkeys(("landing.orders", "landing.stock", "valued"), (1, 2))
        assert {name: found() for name, found in throughs.items()} == {name: [1, 1, 2] for name in throughs}
        assert ask("id = 12")[0] == [(12, 60, 8)]
        assert ask("id < 100")[0] == [(1, 50, None), (11, 6, 9), (12, 60, 8), (21, 70, None)]
