"""What a producer finds in its own tables is what a plain dict would hold, whatever was committed, rolled back or forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.producing import dbapi
from tests.producing.shelf import Shelf, table

GOODS = table("goods", "id long, name string, n integer", ("id",))
PARTS = table("parts", "kind string, no integer, name string, n integer", ("kind", "no"))
LOG = table("log", "id long, name string, n integer")

NAMES = st.sampled_from(["a", "b", None])
NUMBERS = st.one_of(st.none(), st.integers(0, 3))
IDS = st.integers(0, 12)
ROW = st.tuples(IDS, NAMES, NUMBERS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), ROW),
        st.tuples(st.just("insert_many"), st.lists(ROW, max_size=5)),
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("update"), IDS, NAMES),
        st.tuples(st.just("move"), IDS, IDS),
        st.tuples(st.just("rename"), NAMES, NUMBERS),
        st.tuples(st.just("delete"), IDS),
        st.tuples(st.just("find"), IDS),
        st.tuples(st.just("find_by"), NAMES, NUMBERS),
        st.tuples(st.just("all")),
        st.tuples(st.just("greatest"), st.sampled_from(["id", "n", "name"])),
        st.tuples(st.just("commit")),
        st.tuples(st.just("rollback")),
    ),
    max_size=25,
)

Model = dict[int, tuple[Any, ...]]


class Twin:
    """A connection and a dict that do the same."""

    def __init__(self, stock: list[tuple[Any, ...]], cache_rows: int, is_sorted: bool) -> None:
        self.shelf = Shelf(GOODS)
        self.shelf.sorted_by_key = is_sorted
        self.model: Model = {row[0]: row for row in stock}
        self.shelf.content["goods"] = [dict(zip(("id", "name", "n"), row, strict=True)) for row in self.model.values()]
        self.committed: Model = dict(self.model)
        self.connection = self.shelf.connection(cache_rows=cache_rows)
        self.cursor = self.connection.cursor()

    def found(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        return sorted(self.cursor.execute(f"SELECT * FROM goods {text}", parameters).fetchall(), key=str)

    def same(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return sorted(rows, key=str)

    def insert(self, row: tuple[Any, ...]) -> None:
        self._add([row], lambda: self.cursor.execute("INSERT INTO goods VALUES (%s, %s, %s)", row))

    def insert_many(self, rows: list[tuple[Any, ...]]) -> None:
        self._add(rows, lambda: self.cursor.executemany("INSERT INTO goods VALUES (%s, %s, %s)", rows))

    def append(self, count: int) -> None:
        first = max(self.model, default=0) + 1
        self.insert_many([(key, "a", 1) for key in range(first, first + count)])

    def _add(self, rows: list[tuple[Any, ...]], act: Any) -> None:
        keys = [row[0] for row in rows]
        if len(set(keys)) < len(keys) or self.model.keys() & set(keys):
            with pytest.raises(dbapi.IntegrityError):
                act()
        else:
            act()
            self.model |= {row[0]: row for row in rows}

    def update(self, key: int, name: str | None) -> None:
        self.cursor.execute("UPDATE goods SET name = %s WHERE id = %s", (name, key))
        assert self.cursor.rowcount == (key in self.model)
        if key in self.model:
            self.model[key] = (key, name, self.model[key][2])

    def move(self, key: int, to: int) -> None:
        act = lambda: self.cursor.execute("UPDATE goods SET id = %s WHERE id = %s", (to, key))  # noqa: E731
        if key in self.model and to in self.model and to != key:
            with pytest.raises(dbapi.IntegrityError):
                act()
            return
        act()
        if key in self.model:
            self.model[to] = (to, *self.model.pop(key)[1:])

    def rename(self, name: str | None, n: int | None) -> None:
        self.cursor.execute("UPDATE goods SET n = %s WHERE name = %s", (n, name))
        keys = [key for key, row in self.model.items() if name is not None and row[1] == name]
        assert self.cursor.rowcount == len(keys)
        self.model |= {key: (key, name, n) for key in keys}

    def delete(self, key: int) -> None:
        self.cursor.execute("DELETE FROM goods WHERE id = %s", (key,))
        assert self.cursor.rowcount == (self.model.pop(key, None) is not None)

    def find(self, key: int) -> None:
        assert self.found("WHERE id = %s", key) == [row for row in [self.model.get(key)] if row is not None]

    def find_by(self, name: str | None, n: int | None) -> None:
        wanted = [row for row in self.model.values() if n is not None and row[1] == name and row[2] == n]
        condition = "name IS NULL AND n = %s" if name is None else "n = %s AND name = %s"
        parameters = (n,) if name is None else (n, name)
        assert self.found(f"WHERE {condition}", *parameters) == self.same(wanted)

    def all(self) -> None:
        assert self.found("") == self.same(list(self.model.values()))

    def greatest(self, column: str) -> None:
        place = ("id", "name", "n").index(column)
        try:
            found = self.cursor.execute(f"SELECT MAX({column}) FROM goods").fetchall()
        except dbapi.NotSupportedError as error:
            assert "commit first" in str(error)
            assert self.shelf.count("goods") > self.connection._tables._cache_rows
            return
        assert found == [(max((row[place] for row in self.model.values() if row[place] is not None), default=None),)]

    def commit(self) -> None:
        self.connection.commit()
        self.committed = dict(self.model)
        rows = [tuple(row.values()) for row in self.shelf.content["goods"]]
        assert self.same(rows) == self.same(list(self.model.values()))

    def rollback(self) -> None:
        self.connection.rollback()
        self.model = dict(self.committed)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=6, unique_by=lambda row: row[0]), STEPS, st.sampled_from([0, 2, 1000]), st.booleans())
def test_a_table_is_what_its_changes_make_it(
    stock: list[tuple[Any, ...]], steps: list[tuple[Any, ...]], cache_rows: int, is_sorted: bool
) -> None:
    twin = Twin(stock, cache_rows, is_sorted)
    try:
        for name, *arguments in steps:
            getattr(twin, name)(*arguments)
        twin.all()
        twin.commit()
        twin.all()
    finally:
        twin.connection.close()


def test_the_greatest_value_goes_with_a_row_that_was_not_in_memory() -> None:
    twin = Twin([], 0, False)
    with twin.connection:
        twin.insert((0, "b", 7))
        twin.commit()
        twin.greatest("n")
        twin.rename("b", None)
        twin.greatest("n")
        twin.commit()
        twin.greatest("n")
        twin.delete(0)
        twin.rollback()
        twin.greatest("n")


def test_growing_keys_need_no_look_at_the_rows() -> None:
    shelf = Shelf(GOODS)
    shelf.content["goods"] = [{"id": 5, "name": "a", "n": 1}]
    with shelf.connection() as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO goods (id) VALUES (%s)", ((n,) for n in range(6, 10_000)))
        cursor.execute("INSERT INTO goods (id) VALUES (10000)")
        cache = connection._tables.own("goods")._cache
        assert cache._known is None
        assert cursor.execute("SELECT MAX(id) FROM goods").fetchall() == [(10_000,)]
        with pytest.raises(dbapi.IntegrityError, match="id = 9999 already"):
            cursor.execute("INSERT INTO goods (id) VALUES (9999)")
        assert cache._known is not None
        assert cursor.execute("SELECT id FROM goods WHERE id = 7000").fetchone() == (7000,)
        connection.rollback()
        assert cursor.execute("SELECT id FROM goods WHERE id = 7000").fetchone() is None
        assert cursor.execute("SELECT MAX(id) FROM goods").fetchall() == [(5,)]
        cursor.execute("INSERT INTO goods (id) VALUES (6)")


def test_a_table_that_outgrows_the_cache_is_looked_up() -> None:
    shelf = Shelf(PARTS)
    with shelf.connection(cache_rows=10) as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO parts VALUES (%s, %s, %s, %s)", [("nut", n, str(n % 3), n) for n in range(50)])
        connection.commit()
        assert cursor.execute("SELECT n FROM parts WHERE kind = 'nut' AND no = 3").fetchall() == [(3,)]
        assert shelf.lookups == 1
        cursor.execute("SELECT n FROM parts WHERE kind = 'nut' AND no = 3")
        assert shelf.lookups == 1
        assert shelf.queries == []
        cursor.execute("UPDATE parts SET n = 100 WHERE kind = 'nut' AND no = 3")
        cursor.execute("DELETE FROM parts WHERE kind = 'nut' AND no = 6")
        found = cursor.execute("SELECT no, n FROM parts WHERE name = '0' ORDER BY no").fetchall()
        assert found[:3] == [(0, 0), (3, 100), (9, 9)]
        assert len(shelf.queries) == 1
        with pytest.raises(dbapi.IntegrityError, match="kind = 'nut', no = 7 already"):
            cursor.execute("INSERT INTO parts VALUES ('nut', 7, NULL, NULL)")
        shelf.sorted_by_key = False
        with pytest.raises(dbapi.IntegrityError, match=r"row 2 .*no = 20 already"):
            cursor.executemany("INSERT INTO parts (kind, no) VALUES ('nut', %s)", [(99,), (20,)])
        assert len(connection._tables.own("parts")._cache._known or ()) < 20


def test_a_large_table_without_a_key_is_asked_of_the_warehouse() -> None:
    shelf = Shelf(LOG)
    with shelf.connection(cache_rows=3) as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO log VALUES (%s, %s, %s)", [(n, "a", n) for n in range(5)])
        assert cursor.execute("SELECT id FROM log WHERE n = 3").fetchall() == [(3,)]
        connection.commit()
        assert cursor.execute("SELECT id FROM log WHERE n = 3").fetchall() == [(3,)]
        assert cursor.execute("SELECT MAX(n) FROM log").fetchall() == [(4,)]
        assert len(shelf.queries) == 2
        cursor.execute("INSERT INTO log (id) VALUES (9)")
        with pytest.raises(dbapi.NotSupportedError, match=r"no key and is too large.*commit first"):
            cursor.execute("SELECT id FROM log WHERE n = 3")
        connection.commit()
        assert cursor.execute("SELECT id FROM log WHERE n IS NULL").fetchall() == [(9,)]
