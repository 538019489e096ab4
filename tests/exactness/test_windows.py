"""Window functions and top-k are exact after every job."""

from __future__ import annotations

from tests.exactness.conftest import MakeWorld
from tests.exactness.model import Delete, Insert, Table, Truncate, Update
from tests.exactness.world import View

TABLES = {"t": Table({"id": "int", "g": "string", "n": "int", "x": "double"}, ("id",))}

VIEWS = [
    View("numbered", "SELECT id, row_number() OVER (PARTITION BY g ORDER BY n, id) AS r FROM s.t"),
    View("top", "SELECT g, id, n FROM s.t QUALIFY row_number() OVER (PARTITION BY g ORDER BY n DESC, id) <= 2"),
    View(
        "first_rows",
        "SELECT g, n FROM (SELECT g, n, row_number() OVER (PARTITION BY g ORDER BY n DESC NULLS LAST, id) AS r FROM s.t)"
        " WHERE r = 1",
    ),
    View(
        "ranked",
        "SELECT id, rank() OVER (PARTITION BY g ORDER BY n) AS r, dense_rank() OVER (PARTITION BY g ORDER BY n) AS d"
        " FROM s.t",
    ),
    View(
        "neighbours",
        "SELECT id, lag(n) OVER w AS a, lead(n, 1, -1) OVER w AS b FROM s.t WINDOW w AS (PARTITION BY g ORDER BY id)",
    ),
    View("shares", "SELECT g, n, sum(n) OVER (PARTITION BY g) AS s, avg(x) OVER (PARTITION BY g) AS m FROM s.t"),
    View(
        "sliding",
        "SELECT id, sum(n) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM s.t",
    ),
    View(
        "of_groups",
        "SELECT g, count(*) AS c, rank() OVER (PARTITION BY length(g) ORDER BY count(*)) AS r FROM s.t GROUP BY g",
    ),
]


def test_window_functions_are_exact_after_every_job(world: MakeWorld) -> None:
    found = world(TABLES, views=VIEWS, limits={"small_table_rows": 1, "rows_per_file": 4})
    found.step(
        Insert("t", {"id": 1, "g": "a", "n": 5, "x": 0.1}),
        Insert("t", {"id": 2, "g": "a", "n": 5, "x": 0.2}),
        Insert("t", {"id": 3, "g": None, "n": None, "x": 0.3}),
        Insert("t", {"id": 4, "g": "b", "n": 1}),
    )
    found.commit(Insert("t", {"id": 5, "g": "a", "n": 7, "x": 0.3}))
    found.close_job()
    found.commit(Update("t", {"id": 1, "n": 9}), Insert("t", {"id": 6, "g": None, "n": 2}))
    found.close_job()
    found.commit(Delete("t", {"id": 5}), Update("t", {"id": 4, "g": "a"}))
    found.refresh()
    found.check_all(2)
    found.step(Update("t", {"id": 7, "g": "a", "n": 9, "x": 1.5}, key={"id": 1}))
    found.step(Truncate("t"), Insert("t", {"id": 1, "g": "b", "n": 3}))
