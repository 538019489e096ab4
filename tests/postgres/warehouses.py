"""Small projects over one PostgreSQL source, for tests of what a warehouse makes of a source's troubles."""

from __future__ import annotations

from pathlib import Path

import headgate

CITIES = """
CREATE STREAMING TABLE city;
CREATE FLOW city_cdc AS AUTO CDC INTO city FROM bank.cities KEYS (id) STORED AS SCD TYPE 2;
"""
"""A history of cities."""


def project(folder: Path, dsn: str, capture: str, tables: list[str], flows: str) -> dict[str, object]:
    """A project named bank whose one source is bank; `flows` is the text of its flow file."""
    (folder / "flows").mkdir(exist_ok=True)
    (folder / "flows/bank.sql").write_text(flows)
    source = {"type": "postgres", "dsn": dsn, "capture": capture, "tables": {table: {} for table in tables}}
    return {
        "name": "bank",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "sources": {"bank": source},
    }


def rows(warehouse: headgate.Warehouse, query: str) -> list[tuple[object, ...]]:
    """The query's rows at the newest job that all its tables have reached."""
    # A session of its own: the shared one never goes back in time.
    with warehouse.session().sql(query, max_staleness="any") as answer:
        return [tuple(row.values()) for row in answer.to_arrow().to_pylist()]
