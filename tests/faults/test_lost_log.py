"""A stream log that lost what was acknowledged: its source is stopped and named, others answer, and the remedy works.

A kill leaves a warehouse's folder as a copy finds it that is made while the warehouse is open and nothing is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from headgate.capture.log_manifest import epochs
from headgate.capture.segments import list_segments
from headgate.errors import FlowFailed, HistoryLost
from headgate.runtime.recovery.backup import restore
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.warehouse import Warehouse
from tests.faults.shop import SPARK

COMMITS = 10
ITEMS = {"items": {"columns": {"id": "int", "qty": "int"}, "key": ["id"]}}
FLOWS = """
CREATE MATERIALIZED VIEW shop_total AS SELECT COUNT(*) AS rows, SUM(qty) AS qty FROM shop.items;
CREATE MATERIALIZED VIEW etl_total AS SELECT COUNT(*) AS rows, SUM(qty) AS qty FROM etl.items;
"""


def project(folder: Path) -> dict[str, object]:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows/totals.sql").write_text(FLOWS)
    return {
        "name": "totals",
        "storage": str(folder / "warehouse"),
        "spark": SPARK,
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "sources": {"shop": {"type": "memory", "tables": ITEMS}, "etl": {"type": "producer", "tables": ITEMS}},
    }


@contextmanager
def writer(warehouse: Warehouse, source: str) -> Iterator[Callable[[int], None]]:
    """Commits one row of a number to a source."""

    def through_memory(number: int) -> None:
        with warehouse.source(source).transaction() as transaction:
            transaction.insert("items", {"id": number, "qty": 1})

    if source == "shop":
        yield through_memory
        return
    with headgate.connect(warehouse, tables=["items"], paramstyle="qmark") as connection:

        def through_connection(number: int) -> None:
            connection.cursor().execute("INSERT INTO items (id, qty) VALUES (?, ?)", [number, 1])
            connection.commit()

        yield through_connection


def rows(warehouse: Warehouse, source: str, max_staleness: str = "0s") -> int:
    with warehouse.session().sql(f"SELECT rows FROM {source}_total", max_staleness=max_staleness) as answer:
        return int(answer.to_arrow().to_pylist()[0]["rows"])


@pytest.fixture(scope="module")
def killed(spark_sessions: SparkSessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One commit of each source is in a job, ten more are acknowledged and in none."""
    live = tmp_path_factory.mktemp("live")
    left = tmp_path_factory.mktemp("killed") / "left"
    with (
        headgate.open(project(live)) as warehouse,
        writer(warehouse, "shop") as to_shop,
        writer(warehouse, "etl") as to_etl,
    ):
        for number in range(COMMITS + 1):
            to_shop(number)
            to_etl(number)
            if number == 0:
                warehouse.refresh()
                warehouse.materialize()
        shutil.copytree(live, left)
    return left


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "left"))


def log_folder(folder: Path, source: str) -> Path:
    """Where its last owner wrote."""
    home = folder / "warehouse/_headgate/streams" / source
    return home / str(epochs(home)[-1])


def last_segment(log: Path) -> Path:
    """Of all that owners wrote."""
    home = log.parent
    return [path for epoch in epochs(home) for path in list_segments(home / str(epoch))][-1]


def flip_near_the_end(log: Path) -> None:
    segment = last_segment(log)
    content = bytearray(segment.read_bytes())
    content[-20] ^= 0xFF
    segment.write_bytes(content)


def cut_the_end(log: Path) -> None:
    segment = last_segment(log)
    segment.write_bytes(segment.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("source", "damage", "left"),
    [
        ("shop", flip_near_the_end, COMMITS),
        ("shop", shutil.rmtree, 1),
        ("etl", cut_the_end, COMMITS),
    ],
)
def test_a_loss_is_named_until_somebody_goes_on_without_it(
    folder: Path, source: str, damage: Callable[[Path], object], left: int
) -> None:
    other = "etl" if source == "shop" else "shop"
    damage(log_folder(folder, source))
    with headgate.open(project(folder)) as warehouse:
        with pytest.raises(FlowFailed, match=r"acknowledged transactions .* may be lost.*refresh"):
            rows(warehouse, source)
        assert rows(warehouse, other) == COMMITS + 1
        query = f"SELECT rows FROM {source}_total CURRENCY BOUND 0 SEC WHEN STALE SERVE"
        with warehouse.session().sql(query) as answer:
            assert answer.to_arrow()["rows"].to_pylist() == [1]
            assert answer.receipt is not None and answer.receipt.missed
            assert "may be lost" in (answer.receipt.why_missed or "")
        assert "items" in warehouse.sources[source].status.problems
        with pytest.raises(FlowFailed, match="may be lost"):
            warehouse.refresh()
    with headgate.open(project(folder)) as warehouse:
        with pytest.raises(FlowFailed, match="may be lost"):
            rows(warehouse, source)
        warehouse.refresh(table=f"{source}.items")
        assert rows(warehouse, source) == left
        with writer(warehouse, source) as write:
            write(77)
        assert rows(warehouse, source) == left + 1
    with headgate.open(project(folder)) as warehouse:
        assert rows(warehouse, source) == left + 1
        assert not warehouse.failures


def test_rows_that_cannot_be_read_any_more_are_named_when_a_job_needs_them(folder: Path) -> None:
    with headgate.open(project(folder)) as warehouse:
        segment = last_segment(log_folder(folder, "shop"))
        content = bytearray(segment.read_bytes())
        content[-20] ^= 0xFF
        segment.write_bytes(content)
        with pytest.raises((FlowFailed, HistoryLost), match="lost"):
            rows(warehouse, "shop")
        assert rows(warehouse, "etl") == COMMITS + 1
        warehouse.refresh(table="shop.items")
        assert rows(warehouse, "shop") == COMMITS


def test_a_backup_carries_the_mark(folder: Path, tmp_path: Path) -> None:
    with headgate.open(project(folder)) as warehouse:
        warehouse.backup(tmp_path / "backup")
    restored = tmp_path / "restored"
    restore(tmp_path / "backup", restored / "warehouse")
    cut_the_end(log_folder(restored, "shop"))
    with headgate.open(project(restored)) as warehouse:
        assert rows(warehouse, "etl") == COMMITS + 1
        with pytest.raises(FlowFailed, match="may be lost"):
            rows(warehouse, "shop")
