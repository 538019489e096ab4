"""An answer that is kept and moved on by changes is, at every job, what Spark makes of the query as written on the same snapshot."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from headgate.errors import HeadgateError
from headgate.runtime.reading import kept_answers
from headgate.runtime.reading.keeping import Keep, Observed
from headgate.runtime.stages.ways import Way
from tests.exactness import values
from tests.exactness.choosing import Chooser
from tests.exactness.comparing import Rows, difference
from tests.exactness.conftest import MakeWorld
from tests.exactness.expressions import Column, aggregate, expression, predicate
from tests.exactness.model import Change, Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View, World
from tests.seed import SEED

KINDS = ("int", "bigint", "decimal", "string", "boolean", "date", "timestamp", "array")
TABLES = {"t": Table({"id": "int", **{f"v_{kind}": values.TYPES[kind] for kind in KINDS}}, ("id",))}
COLUMNS = [Column(f"v_{kind}", kind) for kind in KINDS]

QUERIES = [
    "SELECT v_string, count(*) AS n, sum(v_int) AS s, avg(v_int) AS m, sum(v_decimal) AS d, avg(v_decimal) AS e"
    " FROM s.t GROUP BY v_string",
    "SELECT count(*), sum(v_bigint) AS s, count(v_date) AS c FROM s.t WHERE v_int > 0",
    "SELECT v_boolean AS b, sum(v_int) + 1 AS s FROM s.t GROUP BY v_boolean HAVING sum(v_int) > 1",
    "SELECT DISTINCT v_date FROM s.t",
    "SELECT x, count(*) AS n FROM s.t LATERAL VIEW explode(v_array) e AS x GROUP BY x",
    "SELECT v_int % 2 AS odd, count_if(v_boolean) AS c, sum(v_bigint) FILTER (WHERE v_boolean) AS s FROM s.t GROUP BY 1",
    "SELECT v_string, count(*) AS n FROM s.t GROUP BY v_string ORDER BY n DESC, v_string LIMIT 3",
    "SELECT date_trunc('DAY', v_timestamp) AS day, count(*) AS n FROM s.t GROUP BY ALL",
    "SELECT n, s FROM totals ORDER BY n",
    "SELECT v_string AS name, sum(n) AS n FROM kept_flow GROUP BY v_string",
]
"""All but the one before the last can be kept."""
FLOW = View("kept_flow", "SELECT v_string, v_int, count(*) AS n FROM s.t GROUP BY v_string, v_int")
TOTALS = View("totals", "SELECT v_int AS n, max(v_date) AS s FROM s.t GROUP BY v_int")


def always(observed: Observed) -> Keep:
    return Keep(observed.refused is None and not observed.paused, "as told")


@pytest.fixture
def keeping(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world where every answer is kept that can be."""
    monkeypatch.setattr(kept_answers, "_LEAST_TABLE_PER_CHANGE", 0)
    made = world(TABLES, (), (FLOW, TOTALS))
    made.warehouse._engine.reader.kept.choose = always
    return made


def random_change(choose: Chooser) -> Change:
    key = {"id": choose.number(1, 12)}
    row = {f"v_{kind}": values.value(choose, kind) for kind in KINDS}
    what = choose.number(0, 99)
    if what < 55:
        return Insert("t", {**key, **row})
    if what < 75:
        return Update("t", {**key, **dict(list(row.items())[:3])})
    return Delete("t", key) if what < 97 else Truncate("t")


def random_query(choose: Chooser) -> str:
    keys = [expression(choose, COLUMNS) for _ in range(choose.number(0, 2))]
    calls = [aggregate(choose, COLUMNS) for _ in range(choose.number(1, 2))]
    shown = ", ".join(f"{output.sql} AS c{number}" for number, output in enumerate([*keys, *calls]))
    where = f" WHERE {predicate(choose, COLUMNS)}" if choose.maybe(40) else ""
    by = f" GROUP BY {', '.join(key.sql for key in keys)}" if keys else ""
    return f"SELECT {shown} FROM s.t{where}{by}"


def compare(world: World, text: str, job: int | None = None) -> str:
    """Compares the answer with the query as written; gives where the answer came from."""
    with world.warehouse.sql(text, job=job, **({} if job is not None else {"max_staleness": "1h"})) as answer:
        rows = answer.to_arrow()
        written = answer.dataframe
        assert answer.schema == written.schema
        expected = Rows.of(written)
        found = [tuple(row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]
        problem = difference(Rows(expected.columns, found), expected)
        assert problem is None, f"{text}\n{problem}"
        return answer._result.origin


def test_kept_answers_are_those_of_the_query_at_every_job(keeping: World) -> None:
    choose = Chooser(random.Random(f"{SEED} kept"))
    texts = [*QUERIES, *(random_query(choose) for _ in range(2))]
    moved: set[str] = set()
    for job in range(4):
        if job != 1:  # at one job nothing changes
            # Random changes alone may change nothing.
            certain = Insert("t", {"id": 1_000 + job, "v_int": 1, "v_bigint": 1, "v_string": "a"})
            keeping.commit(certain, *(random_change(choose) for _ in range(choose.number(1, 6))))
        keeping.way = Way.WIDE if job == 2 else None
        keeping.refresh()
        if job == 1:
            keeping.materialize()
        for text in texts:
            origin = compare(keeping, text)
            if "moved on" in origin:
                moved.add(text)
            assert not origin or origin.startswith(("read whole", "kept at job"))
    assert moved >= {*QUERIES} - {QUERIES[-2]}
    kept = keeping.warehouse._engine.reader.kept
    assert kept.find(QUERIES[0]) == "kept: as told"
    assert kept.find(QUERIES[-2]).startswith("not kept:")


def test_an_older_job_is_read_as_written(keeping: World) -> None:
    keeping.commit(Insert("t", {"id": 1, "v_int": 1}))
    first = keeping.refresh()
    compare(keeping, QUERIES[0])
    keeping.commit(Insert("t", {"id": 2, "v_int": 1}))
    keeping.refresh()
    assert "moved on by 1 changes" in compare(keeping, QUERIES[0])
    assert compare(keeping, QUERIES[0], job=first) == ""
    assert compare(keeping, QUERIES[0]) == f"kept at job {first + 1}"


def test_a_table_that_is_built_anew_takes_no_kept_answer(keeping: World) -> None:
    keeping.commit(Insert("t", {"id": 1, "v_int": 1, "v_string": "a"}))
    keeping.refresh()
    compare(keeping, QUERIES[-1])
    keeping.warehouse.refresh(table="kept_flow")
    assert compare(keeping, QUERIES[-1]) == "read whole"
    keeping.warehouse.flow("declared", "SELECT v_string, count(*) AS n FROM s.t GROUP BY v_string")
    text = "SELECT sum(n) AS n FROM declared"
    assert compare(keeping, text) == "read whole"
    assert compare(keeping, text).startswith("kept at job")
    keeping.warehouse.flow("declared", "SELECT v_string, 5 + count(*) AS n FROM s.t GROUP BY v_string")
    assert compare(keeping, text) == "read whole"


def test_what_fails_is_told_by_the_query_as_written(keeping: World) -> None:
    text = "SELECT sum(v_bigint) AS s, sum(10 / v_int) AS q FROM s.t"
    whole = "SELECT sum(v_bigint) AS s, sum(10 div v_int) AS q FROM s.t"
    keeping.commit(Insert("t", {"id": 1, "v_int": 1, "v_bigint": 2**62, "v_decimal": Decimal(1)}))
    keeping.refresh()
    assert compare(keeping, whole) == "read whole"
    compare(keeping, text)
    keeping.commit(Insert("t", {"id": 2, "v_int": 0, "v_bigint": 1}))
    keeping.refresh()
    with pytest.raises(HeadgateError, match="zero"):
        compare(keeping, whole)
    keeping.commit(Update("t", {"id": 2, "v_int": 2, "v_bigint": 2**62}))
    keeping.refresh()
    with pytest.raises(HeadgateError, match="overflow"):
        compare(keeping, whole)
    keeping.commit(Delete("t", {"id": 2}))
    keeping.refresh()
    assert compare(keeping, whole) == ""


def test_kept_answers_are_bounded_and_can_be_switched_off(keeping: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping.commit(*(Insert("t", {"id": number, "v_int": number}) for number in range(5)))
    keeping.refresh()
    kept, settings = keeping.warehouse._engine.reader.kept, keeping.warehouse._engine.settings
    few = settings.current.limits.model_copy(update={"kept_answers": 2})
    settings.current = settings.current.model_copy(update={"limits": few})
    for text in QUERIES[:3]:
        assert compare(keeping, text) == "read whole"
    assert len(kept.kept) == 2
    assert compare(keeping, QUERIES[0]) == "read whole"
    monkeypatch.setattr(kept_answers, "MOST_GROUPS", 3)
    assert compare(keeping, "SELECT v_int, count(*) AS n FROM s.t GROUP BY v_int") == ""
    off = few.model_copy(update={"kept_answers": 0})
    settings.current = settings.current.model_copy(update={"limits": off})
    assert compare(keeping, QUERIES[2]) == ""
    assert kept.kept == []
