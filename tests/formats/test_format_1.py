"""A warehouse that the version before has written is converted when it is opened, and goes on as if it had been here always."""

from __future__ import annotations

import shutil
import tarfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from headgate.delta.changes import BEGINNING
from headgate.errors import DefiniteError
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse import format_2
from headgate.warehouse.conversions import CONVERSIONS, bring_up_to_date
from headgate.warehouse.ledger import FORMAT, NEWEST_FORMAT, Ledger
from headgate.warehouse.store import Step, no_step
from tests.formats.shop import LATE, answers, first_half, open_shop, second_half

ARCHIVE = Path(__file__).parent / "format_1.tar.gz"
OWN_MOMENTS = ("__commit_at", "__start_at")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project's folder with the warehouse that was kept."""
    folder = tmp_path / "kept"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def open_ledger(root: Path, step: Step = no_step) -> Ledger:
    return Ledger.open(str(root), "test", lambda: datetime.now(UTC), step=step)


def convert(root: Path, step: Step = no_step) -> Ledger:
    ledger = open_ledger(root, step)
    try:
        bring_up_to_date(ledger, str(root), step)
    finally:
        ledger.close()
    return ledger


def stored(root: Path, ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table as the ledger has it."""
    versions: dict[str, int] = {}
    for entry in ledger.entries("checkpoint"):
        versions |= {path: version for path, (version, _) in entry.body["tables"].items()}
    tables = {path: DeltaTable(str(root / path), version=version) for path, version in versions.items()}
    return {
        path: sorted(table.to_pyarrow_table().to_pylist(), key=repr)
        for path, table in tables.items()
        if any(field.name in OWN_MOMENTS for field in table.schema().fields)
    }


@pytest.mark.slow
def test_an_old_warehouse_answers_as_a_new_one_does(
    folder: Path, tmp_path: Path, spark_sessions: SparkSessions, caplog: pytest.LogCaptureFixture
) -> None:
    with open_shop(tmp_path / "new") as new, open_shop(folder) as kept:
        first_half(new)
        new.refresh()
        kept.refresh()
        assert answers(kept) == answers(new)
        second_half(new)
        second_half(kept)
        expected = answers(new)
        assert answers(kept) == expected
        kept.materialize()
        item = DeltaTable(kept.location("item"))
        columns = ["id", "name", "__sk", "__start_at", "__end_at"]
        assert sorted(map(repr, item.to_pyarrow_table(columns=columns).to_pylist())) == expected["item"]
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            files = database.read_parquet(item.file_uris())
            assert files.filter(f"__start_at = '{BEGINNING.isoformat()}'").aggregate("count(*)").fetchall() == [
                (6 + LATE,)
            ]
        assert [text for text in caplog.messages if text.startswith("convert")] == [
            text
            for number, _ in CONVERSIONS
            for text in (
                f"converting the warehouse: storage={folder}/warehouse format={number - 1} to={number}",
                f"converted the warehouse: storage={folder}/warehouse format={number}",
            )
        ]
    caplog.clear()
    with open_shop(folder) as again:
        assert answers(again) == expected
        with again.sql("SELECT *, __start_at FROM item") as answer:
            # Spark gives instants without a zone: here the machine's own, there that of the session, which is UTC.
            assert min(row["__start_at"] for row in answer.collect()).astimezone(UTC) == BEGINNING
            assert answer.dataframe.toPandas()["__start_at"].min() == BEGINNING.replace(tzinfo=None)
    assert not [text for text in caplog.messages if text.startswith("convert")]


def test_only_what_headgate_dated_is_converted(folder: Path) -> None:
    root = folder / "warehouse"
    before = open_ledger(root)
    old = stored(root, before)
    before.close()
    ledger = convert(root)
    new = stored(root, ledger)
    assert ledger.format == NEWEST_FORMAT == CONVERSIONS[-1][0]

    def moved(path: str, row: dict[str, Any]) -> dict[str, Any]:
        if path == "priced":
            return row
        return {
            name: format_2.NEW if value == format_2.OLD and name in OWN_MOMENTS else value
            for name, value in row.items()
        }

    assert new == {path: sorted((moved(path, row) for row in rows), key=repr) for path, rows in old.items()}
    counts = Counter(path for path, rows in new.items() for row in rows if format_2.NEW in row.values())
    assert counts == {
        "item": 6,
        "_headgate/replicas/shop/items": 5,
        "_headgate/replicas/shop/prices": 6,
        "_headgate/replicas/shop/sales": 6,
        **{path: 6 for path in new if "/arrangements/" in path},
    }
    # A version that a column of the source orders begins when that says so.
    assert all(row["__start_at"] == format_2.OLD for row in new["priced"])
    for path in counts:
        stats = DeltaTable(str(root / path)).get_add_actions(flatten=True)
        lows = [name for name in stats.schema.names if name in {f"min.{column}" for column in OWN_MOMENTS}]
        assert lows and all(low.year >= BEGINNING.year for name in lows for low in stats.column(name).to_pylist())


def test_a_conversion_that_is_killed_at_any_step_is_made_to_its_end(folder: Path, tmp_path: Path) -> None:
    root = folder / "warehouse"
    left_behind: list[Path] = []

    def kill(step: str) -> None:
        """What is on the disk now is what a killed process leaves."""
        place = tmp_path / f"{len(left_behind):02d}-{step}"
        shutil.copytree(root, place)
        left_behind.append(place)

    expected = stored(root, convert(root, kill))
    assert len(left_behind) > 4 * len([path for path in expected if path != "priced"])
    for place in left_behind:
        again = convert(place)
        assert again.format == NEWEST_FORMAT, place.name
        assert stored(place, again) == expected, place.name


def test_a_warehouse_of_a_later_format_is_refused_and_left_alone(folder: Path, tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "later")
    assert ledger.format == NEWEST_FORMAT
    ledger.append([(FORMAT, {"number": NEWEST_FORMAT + 1})])
    ledger.close()
    files = sorted((tmp_path / "later").rglob("*"))
    with pytest.raises(DefiniteError) as refused:
        open_ledger(tmp_path / "later")
    assert str(refused.value) == (
        f"the warehouse {tmp_path}/later has format {NEWEST_FORMAT + 1}, this version of headgate knows formats"
        f" up to {NEWEST_FORMAT}"
        " (open it with the version that wrote it, or a later one)"
    )
    assert sorted((tmp_path / "later").rglob("*")) == files
