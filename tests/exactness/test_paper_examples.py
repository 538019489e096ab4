"""The two published examples of what goes wrong when a join or a lookup reads another job's tables."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Dimension, Insert, Table, Update
from tests.exactness.test_lookups import as_of
from tests.exactness.world import START, View, World

COMPANIES = {
    "company": Table({"name": "string"}, ("name",)),
    "customer": Table({"name": "string", "company": "string"}, ("name",)),
}
EMPLOYED = View("employed", "SELECT c.name, c.company FROM s.customer c JOIN s.company o ON o.name = c.company")

JACK_MISSED: set[tuple[object, ...]] = set()
"""Wrong at job 3: the join reads the companies of job 1, too early, and misses HP."""
PETER_TOO_SOON: set[tuple[object, ...]] = {("jack", "HP"), ("peter", "SAP")}
"""Wrong at job 3: the join reads the customers of job 4, too late, and finds peter."""

LIMITS = [{}, {"small_table_rows": 1, "rows_per_file": 1}, {"batch_rows": 1}]
WAYS = ["in memory", "looked up", "from files"]


def commit_customers(world: World, *, run_each: bool) -> None:
    """Jobs m1 to m4, run one by one or together."""
    world.commit(Insert("company", {"name": "IBM"}))
    for transaction in (
        [Insert("company", {"name": "HP"})],
        [Insert("customer", {"name": "jack", "company": "HP"}), Insert("company", {"name": "SAP"})],
        [Insert("customer", {"name": "peter", "company": "SAP"})],
    ):
        if run_each:
            world.refresh()
        else:
            world.close_job()
        world.commit(*transaction)
    world.refresh()


@pytest.mark.parametrize("limits", LIMITS, ids=WAYS)
@pytest.mark.parametrize("run_each", [True, False], ids=["each job alone", "all jobs together"])
def test_jack_joins_hp_in_job_3_and_peter_joins_sap_only_in_job_4(
    world: MakeWorld, limits: dict[str, int], run_each: bool
) -> None:
    found = world(COMPANIES, views=[EMPLOYED], limits=limits)
    commit_customers(found, run_each=run_each)
    at_job_3 = found.rows("employed", 3)
    assert at_job_3 != JACK_MISSED
    assert at_job_3 != PETER_TOO_SOON
    assert at_job_3 == {("jack", "HP")}
    assert found.rows("employed", 2) == set()
    assert found.rows("employed", 4) == {("jack", "HP"), ("peter", "SAP")}
    found.check_all()


SALES = {
    "d": Table({"k": "string", "name": "string"}, ("k",)),
    "f": Table({"id": "int", "k": "string"}, ("id",)),
}


@pytest.mark.parametrize("limits", LIMITS, ids=WAYS)
def test_each_fact_gets_the_surrogate_key_of_the_item_version_of_its_own_time(
    world: MakeWorld, limits: dict[str, int]
) -> None:
    """T1 item abc (commits at t2), T2 fact 1 (t5), T3 item abc again (t6), T4 fact 2 (t8); one job at t9."""
    found = world(SALES, [Dimension("dim", "d")], [as_of("sales", "f.id, d.__sk AS sk")], limits)
    moment = {name: START + timedelta(seconds=name) for name in range(10)}
    found.commit(Insert("d", {"k": "abc", "name": "first"}), commit_at=moment[2])
    found.commit(Insert("f", {"id": 1, "k": "abc"}), commit_at=moment[5])
    found.commit(Update("d", {"k": "abc", "name": "second"}), commit_at=moment[6])
    found.commit(Insert("f", {"id": 2, "k": "abc"}), commit_at=moment[8])
    found.refresh()
    key_of = {row[1]: row[2] for row in found.rows("dim")}
    sk_101, sk_102 = key_of["first"], key_of["second"]
    long_before = {(1, sk_101), (2, sk_101)}
    committed_after = {(1, sk_102), (2, sk_102)}
    sales = found.rows("sales")
    assert sales != long_before, "fact 2 looked up the version that T3 had replaced"
    assert sales != committed_after, "fact 1 looked up the version that committed after it"
    assert sales == {(1, sk_101), (2, sk_102)}
    found.check_all()


def test_a_fact_sees_the_dimension_change_of_its_own_transaction(world: MakeWorld) -> None:
    found = world(SALES, [Dimension("dim", "d")], [as_of("sales", "f.id, d.name")])
    found.commit(Insert("d", {"k": "abc", "name": "first"}))
    found.commit(Insert("f", {"id": 1, "k": "abc"}), Update("d", {"k": "abc", "name": "second"}))
    found.check(found.refresh())
    assert found.rows("sales") == {(1, "second")}
