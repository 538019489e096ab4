"""Slowly changing dimensions are exact after every job, one version per transaction that changes a tracked column."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headgate.errors import FlowError
from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Dimension, Insert, Table, Truncate, Update
from tests.exactness.world import World

TABLES = {"d": Table({"k": "int", "name": "string", "price": "decimal(7,2)", "tags": "array<string>"}, ("k",))}


def exercise(world: World) -> None:
    world.commit(Insert("d", {"k": 1, "name": "one"}), Insert("d", {"k": 2, "name": None}), initial=True)
    world.check(world.refresh())
    for name in ("a", "b", "b", "c"):
        world.commit(Update("d", {"k": 1, "name": name, "tags": [name, None]}))
    world.check(world.refresh())
    world.commit(Update("d", {"k": 2, "price": Decimal("3.00")}), Insert("d", {"k": 3, "name": "three"}))
    world.close_job()
    world.commit(Delete("d", {"k": 1}), Insert("d", {"k": 1, "name": "again"}))
    world.close_job()
    world.commit(Delete("d", {"k": 3}))
    world.commit(Insert("d", {"k": 3, "name": "three"}))
    world.close_job()
    world.commit(Update("d", {"k": 7, "name": "moved", "price": Decimal("1.50"), "tags": []}, key={"k": 2}))
    world.refresh()
    world.check_all(3)
    world.materialize()
    world.commit(Delete("d", {"k": 3}))
    world.close_job()
    world.commit(Insert("d", {"k": 4, "name": "x"}), Update("d", {"k": 4, "name": "y"}), Delete("d", {"k": 4}))
    world.reopen()
    world.check_all()
    world.commit(Insert("d", {"k": 3, "name": "back"}))
    world.check(world.refresh())
    world.step(Truncate("d"), Insert("d", {"k": 1, "name": "again"}))
    world.step(Truncate("d"))
    world.reopen()
    world.check_all()


def test_dimensions_of_both_types_are_exact_after_every_job(world: MakeWorld) -> None:
    dimensions = [
        Dimension("current", "d", scd_type=1),
        Dimension("versions", "d"),
        Dimension("by_name", "d", track=("name",)),
    ]
    exercise(world(TABLES, dimensions))


def test_dimensions_that_look_versions_up_are_exact_after_every_job(world: MakeWorld) -> None:
    dimensions = [Dimension("versions", "d"), Dimension("by_price", "d", track=("price", "tags"))]
    exercise(world(TABLES, dimensions, limits={"small_table_rows": 1, "rows_per_file": 2}))


def test_dimensions_kept_from_files_are_exact_after_every_job(world: MakeWorld) -> None:
    dimensions = [Dimension("current", "d", scd_type=1), Dimension("versions", "d", track=("name",))]
    exercise(world(TABLES, dimensions, limits={"batch_rows": 2, "rows_per_file": 2}))


def test_every_transaction_that_changes_a_tracked_column_makes_a_version(world: MakeWorld) -> None:
    found = world(TABLES, [Dimension("versions", "d", track=("name",))])
    found.commit(Insert("d", {"k": 1, "name": "a"}))
    found.commit(Update("d", {"k": 1, "name": "b"}))
    found.commit(Update("d", {"k": 1, "name": "a"}))
    found.commit(Update("d", {"k": 1, "price": Decimal("5.00")}))
    found.check(found.refresh())
    names = [row[1] for row in sorted(found.rows("versions"), key=lambda row: str(row[5]))]
    assert names == ["a", "b", "a"]


def test_a_dimension_added_later_starts_with_versions_from_the_beginning(world: MakeWorld) -> None:
    found = world(TABLES)
    found.commit(Insert("d", {"k": 1, "name": "a"}), Insert("d", {"k": 2, "name": "b"}))
    found.commit(Update("d", {"k": 1, "name": "c"}))
    found.refresh()
    found.dimensions = [Dimension("versions", "d", since=2)]
    found.materialize()
    found.reopen()
    found.check(1)
    found.step(Update("d", {"k": 1, "name": "d"}), Delete("d", {"k": 2}))
    found.materialize()
    found.reopen()
    found.step(Insert("d", {"k": 2, "name": "e"}))


def test_a_changed_definition_of_versions_is_refused(world: MakeWorld) -> None:
    found = world(TABLES, [Dimension("versions", "d")])
    found.step(Insert("d", {"k": 1, "name": "a"}))
    found.dimensions = [Dimension("versions", "d", track=("name",))]
    with pytest.raises(FlowError, match="the definition of versions has changed"):
        found.reopen()
    found.dimensions = [Dimension("versions", "d")]
    found.open()
    found.step(Update("d", {"k": 1, "name": "b"}))
