"""How a table comes to its ranges when nobody gives bounds: by a count, by size, or as a flow says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headgate
from benchmarks import shop
from headgate.errors import FlowError
from tests.exactness.model import Insert, Table
from tests.exactness.world import SMALL_QUERIES, View, World

TABLES = {
    "counted": Table({"k": "bigint", "v": "int"}, ("k",)),
    "sized": Table({"n": "bigint", "v": "int"}, ("n",)),
}
RANGES = {"counted": {"column": "k", "count": 3}, "sized": {"column": "n"}}
VIEWS = (
    View("aligned", "SELECT k, v + 1 AS w FROM s.counted", ranges=("k", 7)),
    View("own", "SELECT v, count(*) AS c FROM s.counted GROUP BY v", ranges=("V", 2)),
    View("of_own", "SELECT v, sum(c) AS c FROM own GROUP BY v"),
)


def test_bounds_that_nobody_gave_are_chosen(oracle: SparkSession, tmp_path: Path) -> None:
    limits = {"rows_per_file": 4, "range_rows": 20}
    with World(tmp_path, oracle, TABLES, (), VIEWS, limits, RANGES) as world:
        choose = world.warehouse._engine.dividing.choose
        counts = {
            name: lambda name=name: world.stored(name).range_map.count for name in ("s.counted", "s.sized", "own")
        }
        assert choose() == []  # there are no rows to choose by
        world.commit(*[Insert("counted", {"k": k, "v": k % 40}) for k in range(60)])
        world.commit(*[Insert("sized", {"n": n, "v": 0}) for n in range(50)])
        world.refresh()
        world.materialize()
        assert sorted(choose()) == [("own", 2), ("s.counted", 3), ("s.sized", 2)]
        assert {name: count() for name, count in counts.items()} == {"s.counted": 3, "s.sized": 2, "own": 2}
        assert world.stored("s.counted").range_map.bounds == (20, 40)
        # A view that is aligned has the ranges of what it reads; its own flow's are inherited, too.
        assert world.stored("aligned").range_map.bounds == (20, 40)
        assert world.stored("of_own").range_map == world.stored("own").range_map
        assert "come forward together" in str(world.warehouse.explain("own"))
        assert choose() == []
        world.commit(
            Insert("counted", {"k": 5000, "v": 39}), *[Insert("sized", {"n": 100 + n, "v": 0}) for n in range(40)]
        )
        world.refresh()
        world.materialize()
        assert choose() == [("s.sized", 4)]  # by size again when it has doubled, a count only once
        with world.warehouse.sql("SELECT * FROM of_own WHERE v = 39", max_staleness="0s") as answer:
            assert answer.to_arrow().to_pylist() == [{"v": 39, "c": 2}]
            read = {each.table: each for each in answer.receipt.ranges}
        assert len(read["of_own"].read) == 1
        assert len(read["own"].read) == 2
        world.reopen()
        assert {name: count() for name, count in counts.items()} == {"s.counted": 3, "s.sized": 4, "own": 2}
        world.check_new_jobs()


@pytest.mark.parametrize(
    ("column", "said"),
    [("c", "cannot have ranges of c, which is not a column of its key"), ("d", "cannot have ranges of d, a double")],
)
def test_a_column_that_cannot_cut_a_flow_is_refused(
    oracle: SparkSession, tmp_path: Path, column: str, said: str
) -> None:
    text = "SELECT v, CAST(v AS DOUBLE) AS d, count(*) AS c FROM s.counted GROUP BY v, CAST(v AS DOUBLE)"
    with pytest.raises(FlowError, match=said):
        World(tmp_path, oracle, TABLES, (), [View("wrong", text, ranges=(column, 2))])


def test_the_flow_of_the_benchmarks_is_aligned_on_the_purchase(oracle: SparkSession, tmp_path: Path) -> None:
    settings: dict[str, Any] = shop.project(tmp_path / "warehouse", tmp_path / "flows", "bigint", SMALL_QUERIES)
    tables = settings["sources"]["shop"]["tables"]
    tables["purchases"]["ranges"] = {"column": "purc_id", "bounds": [10, 20]}
    tables["lineitems"]["ranges"] = {"column": "purc_id"}
    with headgate.open(settings) as warehouse:
        sales = next(each for each in warehouse.ranges() if each.table == "store_sales")
        assert (sales.column, len(sales.ranges)) == ("ticket", 3)
        looked_up = dict.fromkeys(
            ("customer", "store", "promotion", "dates"), "it is joined by other columns than purc_id"
        )
        aligned = dict.fromkeys(("purchases", "lineitems"), "aligned on purc_id")
        assert dict(scan.split(": ", 1) for scan in sales.scans) == {
            **{f"shop.{table}": reason for table, reason in (looked_up | aligned).items()},
            "item": "versions are looked up in it",
        }
        with warehouse.source("shop").transaction() as transaction:
            transaction.insert("item_s", {"item_id": 1, "name": "tea", "category": "food"})
            for purchase in (1, 11, 21):
                transaction.insert("purchases", {"purc_id": purchase, "store_id": 1})
                transaction.insert("lineitems", {"purc_id": purchase, "line": 1, "item_id": 1, "qty": 2, "price": 3})
        with warehouse.sql("SELECT ticket, qty, revenue FROM store_sales WHERE ticket = 11") as answer:
            assert [tuple(row.values()) for row in answer.to_arrow().to_pylist()] == [(11, 2, 6)]
            read = {each.table: each.read for each in answer.receipt.ranges}
        assert read == dict.fromkeys(("store_sales", "shop.purchases", "shop.lineitems"), ("[10, 20)",))
