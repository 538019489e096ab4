"""Capture by trigger and the tables themselves: every type, partitions, and definitions that change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from headgate.capture.locallog import LocalLog
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.trigger import TriggerMethod
from headgate.clock import SystemClock
from headgate.delta.events import DELETE, OP, UPSERT
from tests.postgres.replaying import events_of, replayed
from tests.postgres.test_values import EXACT
from tests.postgres.triggered import Capture, T

KEYS = {"t": ("id",)}


@pytest.fixture
def source(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(6,2)); INSERT INTO t VALUES (1, 'one', 1)"
    )
    return connection


@pytest.fixture
def capture(source: psycopg.Connection, database: str, tmp_path: Path) -> Iterator[Capture]:
    opened = Capture(database, tmp_path / "log")
    yield opened
    opened.close()


def later(capture: Capture, table: str = "t") -> list[tuple[object, ...]]:
    """The events after the first load, without headgate's columns."""
    first = capture.log.transactions(0, capture.log.end)[0].position
    return [
        (event[OP], *(value for name, value in event.items() if not name.startswith("__")))
        for event in events_of(capture.log, table, after=first)
    ]


def test_every_type_arrives_as_a_first_load_reads_it(
    connection: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TYPE mood AS ENUM ('so, so', 'fine'); CREATE TYPE pair AS (a int, b text);"
        "CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE > 0); CREATE DOMAIN discount AS price"
    )
    columns = [sql.SQL("c{} {}").format(sql.SQL(str(place)), sql.SQL(each[0])) for place, each in enumerate(EXACT)]
    connection.execute(sql.SQL("CREATE TABLE t (id int PRIMARY KEY, {})").format(sql.SQL(", ").join(columns)))
    capture = Capture(database, tmp_path / "log")
    # The writer's own settings would make other texts of the same values.
    connection.execute(
        "SET DateStyle = 'German'; SET TimeZone = 'Europe/Amsterdam'; SET extra_float_digits = -10;"
        "SET bytea_output = 'escape'; SET IntervalStyle = 'sql_standard'"
    )
    rounds = max(len(each[2]) for each in EXACT)
    for number in range(rounds + 1):
        values = [each[2][number] if number < len(each[2]) else None for each in EXACT]
        literals = [sql.Literal(number), *(sql.Literal(value) for value in values)]
        connection.execute(sql.SQL("INSERT INTO t VALUES ({})").format(sql.SQL(", ").join(literals)))
    capture.step()
    captured = replayed(capture.log, KEYS)["t"]
    capture.close()
    loaded = Capture(database, tmp_path / "other log")
    assert captured == replayed(loaded.log, KEYS)["t"] and len(captured) == rounds + 1
    loaded.close()


def test_texts_that_look_like_syntax_are_kept(capture: Capture, source: psycopg.Connection) -> None:
    texts = [
        "",
        " ",
        '"',
        '""',
        "\\",
        "\\\\",
        'a\\"b',
        "(",
        ")",
        ",",
        "\n",
        "\r\n",
        "\t",
        "NULL",
        "null",
        "'",
        "ä",
        "\\N",
        "(,)",
    ]
    for number, text in enumerate([*texts, None], start=10):
        source.execute("INSERT INTO t VALUES (%s, %s)", [number, text])
    capture.step()
    assert [event[2] for event in later(capture)] == [*texts, None]


def test_a_writer_needs_no_rights_on_the_audit_table(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("CREATE ROLE shopper; GRANT INSERT, SELECT ON t TO shopper")
    try:
        # Its search path leads to tables of its own.
        source.execute(
            "SET ROLE shopper; SET search_path = public, pg_temp; INSERT INTO t VALUES (3, 'x', 1); RESET ROLE"
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            source.execute("SET ROLE shopper; DELETE FROM headgate.shop_changes")
        source.execute("RESET ROLE")
        capture.step()
        assert [event[1] for event in later(capture)] == [3]
    finally:
        source.execute("RESET ROLE; DROP OWNED BY shopper; DROP ROLE shopper")


def test_partitions_may_order_their_columns_in_their_own_way(
    connection: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text, b text) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE high (b text, gone int, id int NOT NULL, a text); ALTER TABLE high DROP gone;"
        "ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (100) TO (200); INSERT INTO t VALUES (1, 'a', 'b')"
    )
    capture = Capture(database, tmp_path / "log")
    connection.execute(
        "BEGIN; INSERT INTO t VALUES (101, 'a', 'b'), (2, 'a', 'b'); UPDATE t SET id = id + 100 WHERE id = 2; COMMIT"
    )
    connection.execute("INSERT INTO high (id, a, b) VALUES (103, 'direct', 'b')")
    capture.step()
    assert later(capture) == [
        (UPSERT, 101, "a", "b"),
        (UPSERT, 2, "a", "b"),
        (DELETE, 2, None, None),
        (UPSERT, 102, "a", "b"),
        (UPSERT, 103, "direct", "b"),
    ]
    capture.close()


def test_generated_columns_are_captured(connection: psycopg.Connection, database: str, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    capture = Capture(database, tmp_path / "log")
    connection.execute("INSERT INTO t VALUES (4)")
    capture.step()
    assert later(capture) == [(UPSERT, 4, 8)]
    capture.close()


def test_a_table_without_a_primary_key_is_captured_by_its_declared_one(
    connection: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE t (id int NOT NULL, a text)")
    capture = Capture(database, tmp_path / "log", TableDefinition("t", "t", ("id",)))
    connection.execute("INSERT INTO t VALUES (1, 'x'); UPDATE t SET id = 2; DELETE FROM t")
    capture.step()
    assert [event[0] for event in later(capture)] == [UPSERT, DELETE, UPSERT, DELETE]
    capture.close()


def test_an_added_column_is_carried_on_even_inside_a_batch(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'before, \"quoted\"', 2)")
    source.execute("ALTER TABLE t ADD extra int; INSERT INTO t VALUES (3, 'after', 3, 33)")
    capture.step()
    assert later(capture) == [(UPSERT, 2, 'before, "quoted"', 2, None), (UPSERT, 3, "after", 3, 33)]
    assert capture.method.tables["t"].source_table.schema.names == ["id", "a", "n", "extra"]
    assert not capture.method.problems


def test_a_batch_from_before_and_after_an_added_column_can_be_read_again(
    capture: Capture, source: psycopg.Connection
) -> None:
    source.execute("INSERT INTO t VALUES (2, 'before', 2)")
    source.execute("ALTER TABLE t ADD COLUMN more int; INSERT INTO t VALUES (3, 'after', 3, 3)")
    capture.step()
    events = later(capture)
    for _ in range(2):
        capture.reopen()
        assert not capture.method.problems
    assert later(capture) == events


def test_a_column_added_while_capture_was_stopped_is_carried_on(
    source: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    capture = Capture(database, tmp_path / "log")
    capture.close()
    source.execute("INSERT INTO t VALUES (2, 'before', 2)")
    source.execute("ALTER TABLE t ADD extra int; INSERT INTO t VALUES (3, 'after', 3, 33)")
    log = LocalLog(tmp_path / "log")
    method = TriggerMethod(database, "shop", [T], log=log, clock=SystemClock())
    task = method.plan(0)
    assert task is not None and "extra" in method.tables["t"].source_table.schema.names
    method.publish(method.read(task))
    assert [event.get("extra") for event in events_of(log, "t")] == [None, None, 33]
    method.close()
    log.close()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE t RENAME a TO b", "public.t: the column a was renamed to b"),
        ("ALTER TABLE t DROP a", "public.t: the column a was dropped"),
        ("ALTER TABLE t ALTER n TYPE int", "public.t: the column n was changed from numeric(6,2) to integer"),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_other_changes_stop_their_table_and_no_other(
    source: psycopg.Connection, database: str, tmp_path: Path, statement: LiteralString, what: str, stopped: bool
) -> None:
    source.execute("CREATE TABLE u (id int PRIMARY KEY)")
    capture = Capture(database, tmp_path / "log", T, TableDefinition("u", "u"))
    source.execute("INSERT INTO t VALUES (2, 'before', 2)")
    source.execute(statement)
    source.execute("DELETE FROM t WHERE id = 1")
    source.execute("INSERT INTO u VALUES (7)")
    if stopped:
        capture.reopen()
    capture.step()
    assert what in capture.method.problems["t"].what
    assert [event[1] for event in later(capture, "u")] == [7]
    assert later(capture) == []
    raw = events_of(capture.log, "t__raw")
    assert [(event[OP], event["new"] is None) for event in raw] == [(UPSERT, False), (DELETE, True)]
    capture.reopen()
    assert "t" in capture.method.problems
    capture.close()


def test_a_renamed_table_goes_on(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("ALTER TABLE t RENAME TO renamed; INSERT INTO renamed VALUES (2, 'x', 2)")
    capture.step()
    assert [event[1] for event in later(capture)] == [2] and not capture.method.problems


def test_a_value_that_does_not_fit_stops_its_table(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x', 'NaN')")
    capture.step()
    assert "t.n has the value NaN" in capture.method.problems["t"].what
    assert [event["new"] for event in events_of(capture.log, "t__raw")] == [["2", "x", "NaN"]]


@pytest.mark.parametrize("tables", [None, ["t"]])
def test_reading_a_stopped_table_afresh_lets_it_go_on(
    capture: Capture, source: psycopg.Connection, tables: list[str] | None
) -> None:
    source.execute("INSERT INTO t VALUES (2, 'x', 'NaN')")
    capture.step()
    source.execute("UPDATE t SET n = 2 WHERE id = 2; DELETE FROM t WHERE id = 1")
    capture.method.resnapshot(tables)
    assert not capture.method.problems
    source.execute("INSERT INTO t VALUES (3, 'y', 3)")
    capture.step()
    assert not capture.step()
    assert set(replayed(capture.log, KEYS)["t"]) == {(2,), (3,)}
    # Only the first load is valid from the beginning of time.
    assert [each.initial for each in capture.log.transactions(0, capture.log.end)][1:] == [False] * 3


def test_a_table_that_the_project_adds_is_loaded_and_others_go_on(
    capture: Capture, source: psycopg.Connection, database: str
) -> None:
    source.execute("CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1); INSERT INTO t VALUES (2, 'x', 2)")
    capture.definitions = (T, TableDefinition("u", "u"))
    capture.reopen()
    source.execute("INSERT INTO u VALUES (2); INSERT INTO t VALUES (3, 'y', 3)")
    while capture.step():
        pass
    state = replayed(capture.log, {"t": ("id",), "u": ("id",)})
    assert (set(state["t"]), set(state["u"])) == ({(1,), (2,), (3,)}, {(1,), (2,)})
    assert len(events_of(capture.log, "t")) == 3


def test_a_table_that_the_project_drops_is_no_longer_noted(capture: Capture, source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE u (id int PRIMARY KEY)")
    capture.definitions = (T, TableDefinition("u", "u"))
    capture.reopen()
    capture.definitions = (T,)
    capture.reopen()
    source.execute("INSERT INTO u VALUES (2)")
    assert source.execute("SELECT count(*) FROM headgate.shop_changes").fetchone() == (0,)
    assert source.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'shop%'").fetchone() == (2,)
    assert not capture.step()


def test_a_table_that_was_created_again_is_loaded_again(capture: Capture, source: psycopg.Connection) -> None:
    source.execute(
        "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(6,2)); INSERT INTO t VALUES (9, 'new', 9)"
    )
    capture.reopen()
    assert set(replayed(capture.log, KEYS)["t"]) == {(9,)}
