"""A warehouse that answers while the first files of a large table are loaded range by range."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.errors import HeadgateError, TransientError
from headgate.ranges.range_map import Ranges
from headgate.runtime.reading.narrowing import Narrowing
from headgate.runtime.sources.range_loads import RangeLoads
from headgate.runtime.spark.sessions import SparkSessions
from headgate.runtime.stages.replica_stage import ReplicaStage

FLOWS = """
CREATE MATERIALIZED VIEW summed AS SELECT id1, COUNT(*) AS links, SUM(amount) AS amount FROM landing.links GROUP BY id1;
CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS links, SUM(amount) AS amount FROM landing.links;
"""
Links = dict[tuple[int, int], int]


def project(folder: Path) -> dict[str, Any]:
    for name in ("flows", "in"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "flows/all.sql").write_text(FLOWS)
    links = {
        "path": str(folder / "in"),
        "format": "csv",
        "key": ["id1", "id2"],
        "columns": {"id1": "bigint", "id2": "bigint", "amount": "bigint"},
        "ranges": {"column": "id1", "count": 4},
        "multiline": False,
    }
    return {
        "name": "links",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "sources": {"landing": {"type": "files", "settle": "0s", "tables": {"links": links}}},
        "limits": {"spark_load_bytes": "1KiB"},
    }


def put(folder: Path, name: str, found: Links, at: float | None = None) -> Links:
    lines = ["id1,id2,amount", *(f"{one},{two},{amount}" for (one, two), amount in found.items())]
    fresh = folder / f"in/.{name}"
    fresh.write_text("\n".join(lines))
    if at is not None:
        os.utime(fresh, (at, at))
    fresh.rename(folder / f"in/{name}.csv")
    return found


def ask(warehouse: headgate.Warehouse, text: str, **bound: Any) -> list[tuple[Any, ...]]:
    with warehouse.sql(text, **({"max_staleness": "0s", "deadline": "120s"} | bound)) as answer:
        return sorted(tuple(row.values()) for row in answer.to_arrow().to_pylist())


def summed(links: Links) -> list[tuple[int, int, int]]:
    found: dict[int, list[int]] = {}
    for (one, _), amount in links.items():
        found.setdefault(one, []).append(amount)
    return sorted((one, len(amounts), sum(amounts)) for one, amounts in found.items())


def test_ranges_answer_before_the_rest_is_loaded_and_a_restart_goes_on(
    spark_sessions: SparkSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = project(tmp_path)
    links = put(tmp_path, "a", {(one, two): one for one in range(40) for two in range(3)}, at=1000)
    links |= put(tmp_path, "b", {(one, 1): -one for one in range(0, 50, 2)}, at=2000)
    load: Callable[..., int] = RangeLoads._load
    groups: list[Ranges] = []

    def first_group(self: RangeLoads, stage: ReplicaStage, ranges: Ranges, *more: Any) -> int:
        if groups:
            raise TransientError("the rest waits")
        groups.append(ranges)
        return load(self, stage, frozenset({2}), *more)

    with monkeypatch.context() as patch:
        patch.setattr(RangeLoads, "_load", first_group)
        with headgate.open(settings) as warehouse:
            bounds = warehouse.replica("landing.links").range_map.bounds
            plan = Narrowing.keys
            patch.setattr(Narrowing, "keys", lambda *_: pytest.fail("rows that are picked by key need no plan"))
            (here,) = {one for one in range(50) if one == bounds[1]}
            assert ask(warehouse, f"SELECT id2, amount FROM landing.links WHERE id1 = {here}") == sorted(
                (two, amount) for (one, two), amount in links.items() if one == here
            )
            patch.setattr(Narrowing, "keys", plan)
            assert ask(warehouse, f"SELECT * FROM summed WHERE id1 = {here}") == [
                each for each in summed(links) if each[0] == here
            ]
            # A file that comes during the load counts for ranges that are there, and for those that come.
            links |= put(tmp_path, "c", {(here, 1): 1000, (0, 1): 1000})
            assert (1, 1000) in ask(warehouse, f"SELECT id2, amount FROM landing.links WHERE id1 = {here}")
            with pytest.raises(HeadgateError, match=r"landing\.links \(1 of 4 ranges are loaded\)"):
                ask(warehouse, "SELECT * FROM landing.links WHERE id1 = 0", deadline="300ms")
            assert warehouse.loads["landing"].unloaded == ("links",)
    with headgate.open(settings) as warehouse:
        assert ask(warehouse, "SELECT * FROM total") == [(len(links), sum(links.values()))]
        assert ask(warehouse, "SELECT * FROM summed") == summed(links)
        assert not warehouse.loads
        assert ask(warehouse, "SELECT COUNT(*) FROM landing.files") == [(3,)]
        warehouse.materialize()
        stored = warehouse.replica("landing.links").main
        assert stored.rows == len(links)
    with headgate.open(settings) as warehouse:
        assert ask(warehouse, "SELECT * FROM landing.links") == sorted((*key, amount) for key, amount in links.items())
        assert not warehouse.loads and not list((tmp_path / "warehouse").glob("**/loads/*"))


LARGE = """
import json, resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
import headgate
from tests.files.test_load_warehouse import ask, project

folder, rows, width = Path(sys.argv[1]), 150_000, 4_000
settings = project(folder)
table = settings["sources"]["landing"]["tables"]["links"]
table |= {"format": "parquet", "columns": {"id1": "bigint", "id2": "bigint", "text": "string"}, "ranges": {"column": "id1", "count": 12}}
del table["multiline"]
settings["libraries"] = []
settings["spark"] = {"spark.master": "local[2]", "spark.driver.memory": "512m"}
texts = pa.array([chr(97 + number % 26) * width for number in range(1000)])
for number in range(5):
    first = np.arange(number * rows // 5, (number + 1) * rows // 5)
    part = pa.table({"id1": first // 3, "id2": first, "text": texts.take(pa.array(first % 1000))})
    pq.write_table(part, folder / f"in/{number}.parquet", row_group_size=5000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with headgate.open(settings) as warehouse:
    assert warehouse.loads, "the table is loaded range by range"
    heap = warehouse._engine.sessions.context._jvm.java.lang.Runtime.getRuntime().maxMemory()
    one = ask(warehouse, "SELECT id2, length(text) FROM landing.links WHERE id1 = 7")
    whole = ask(warehouse, "SELECT COUNT(*), SUM(length(text)), MAX(id2) FROM landing.links")
    print(json.dumps([heap, one, whole, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10]))
"""


@pytest.mark.slow
def test_a_load_larger_than_the_heap(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    heap, one, whole, growth = json.loads(done.stdout.strip().splitlines()[-1])
    rows, width = 150_000, 4_000
    assert rows * width > heap
    assert one == [[number, width] for number in (21, 22, 23)]
    assert whole == [[rows, rows * width, rows - 1]]
    assert growth < rows * width // 2, "the rows do not pass through the driver"
