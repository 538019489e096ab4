"""Shipments to a database: all or nothing, one owner, and what others have done is found."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from headgate.delta.changes import JobId
from headgate.errors import DefiniteError, Fenced, FlowError
from headgate.runtime.spark.types import parse_type
from headgate.serving.placed import PlacedTable, placed_table
from headgate.serving.target import Delta, ForeignChange, Shipment, Target
from headgate.warehouse.spec import arrow_columns
from headgate.warehouse.store import no_step

_TYPES = {
    "a": "int",
    "b": "string",
    "flag": "boolean",
    "small": "tinyint",
    "big": "bigint",
    "ratio": "double",
    "single": "float",
    "amount": "decimal(12,3)",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
}
SCHEMA = StructType([StructField(name, parse_type(kind)) for name, kind in _TYPES.items()])
AT = datetime(2024, 5, 1, 12, tzinfo=UTC)


def placed(name: str = "t", origin: str = "1", indexes: str = "b, day amount") -> PlacedTable:
    return placed_table(name, SCHEMA, SCHEMA.names, ("a", "b"), indexes, origin)


def row(a: int | None, b: str | None, **more: object) -> dict[str, object]:
    full: dict[str, object] = {
        "a": a,
        "b": b,
        "flag": True,
        "small": -128,
        "big": 1 << 62,
        "ratio": 0.1,
        "single": 0.5,
        "amount": Decimal("-123456789.125"),
        "raw": b"\x00\xff",
        "day": datetime(1, 1, 1).date(),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "local": datetime(1900, 1, 1, 0, 0, 0, 1),
    }
    return {**full, **more}


def rows(*given: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(given), schema=arrow_columns(SCHEMA))


def target(database: str, epoch: int = 1, warehouse: str = "w") -> Target:
    return Target("serving", database, "shop", warehouse, epoch, no_step)


def fill(at: Target, table: PlacedTable, content: pa.Table, before: int = 0, job: int = 1) -> None:
    at.begin_fill(table)
    at.fill(table, content)
    at.end_fill(table)
    at.ship(Shipment(JobId(before), JobId(job), AT, AT, [], [table], []))


def delta(table: PlacedTable, dead: pa.Table, content: pa.Table) -> Delta:
    return Delta(table, dead, content, dead.num_rows)


NASTY = ["", "\\.", "\\N", 'a"b', "x,y", "two\nlines\r\n", "NULL", "ünï\u2028☃", " ", "'"]


def test_every_value_arrives_and_stays_what_it_is(database: str, connection: psycopg.Connection) -> None:
    at, table = target(database), placed()
    at.state()
    given = [row(number, text) for number, text in enumerate(NASTY)]
    given += [row(None, None), row(None, "x"), {**dict.fromkeys(SCHEMA.names), "a": 99, "b": "nothing"}]
    given += [
        row(100, "nan", ratio=float("nan"), single=float("inf")),
        row(101, "minus", ratio=float("-inf"), flag=False),
    ]
    fill(at, table, rows(*given))
    found = connection.execute("SELECT * FROM shop.t ORDER BY a, b").fetchall()
    wanted = sorted(given, key=lambda each: (each["a"] is None, each["a"] or 0, each["b"] is None, each["b"] or ""))
    assert [list(map(str, each)) for each in found] == [list(map(str, each.values())) for each in wanted]
    assert connection.execute("SELECT job, data_timestamp FROM shop.__freshness").fetchall() == [(1, AT)]
    columns = connection.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'shop' AND tablename = 't'"
    ).fetchall()
    assert {each[0].rpartition("USING ")[2] for each in columns} == {
        "btree (a, b) NULLS NOT DISTINCT",
        "btree (b)",
        "btree (day, amount)",
    }


def test_a_shipment_replaces_deletes_and_adds_rows_of_all_tables_at_once(
    database: str, connection: psycopg.Connection
) -> None:
    at, one, other = target(database), placed("one"), placed("other")
    at.state()
    for table in (one, other):
        at.begin_fill(table)
        at.fill(table, rows(row(1, "x"), row(None, "x"), row(3, None)))
        at.end_fill(table)
    at.ship(Shipment(JobId(0), JobId(4), AT, None, [], [one, other], []))
    changes = delta(one, rows(row(1, "x"), row(None, "x")), rows(row(1, "x", big=5), row(7, "new")))
    at.ship(Shipment(JobId(4), JobId(9), AT, AT, [changes, delta(other, rows(row(3, None)), rows())], [], []))
    found = connection.execute("SELECT a, b, big FROM shop.one ORDER BY a").fetchall()
    assert found == [(1, "x", 5), (3, None, 1 << 62), (7, "new", 1 << 62)]
    assert connection.execute("SELECT a, b FROM shop.other ORDER BY a").fetchall() == [(1, "x"), (None, "x")]
    assert at.state().job == 9
    # One that does not fit leaves nothing of the shipment behind.
    wrong = [delta(one, rows(), rows(row(8, "half"))), delta(other, rows(row(5, "absent")), rows())]
    with pytest.raises(ForeignChange, match="other at serving lacks rows"):
        at.ship(Shipment(JobId(9), JobId(10), AT, AT, wrong, [], []))
    with pytest.raises(ForeignChange, match="one at serving has rows that were not shipped"):
        at.ship(Shipment(JobId(9), JobId(10), AT, AT, [delta(one, rows(), rows(row(7, "new")))], [], []))
    assert connection.execute("SELECT count(*) FROM shop.one").fetchone() == (3,)
    assert at.state().job == 9


def test_a_shipment_counts_only_after_the_job_before_it(database: str) -> None:
    at, table = target(database), placed()
    at.state()
    fill(at, table, rows(row(1, "x")), job=5)
    late = Shipment(JobId(4), JobId(6), AT, AT, [delta(table, rows(), rows(row(2, "y")))], [], [])
    with pytest.raises(Exception, match="not at job 4 any more"):
        at.ship(late)
    assert at.state().job == 5


def test_a_former_owner_ships_nothing(database: str) -> None:
    former, table = target(database, 1), placed()
    former.state()
    fill(former, table, rows(row(1, "x")), job=5)
    assert target(database, 2).state().job == 5
    with pytest.raises(Fenced):
        former.ship(Shipment(JobId(5), JobId(6), AT, AT, [], [], []))
    with pytest.raises(Fenced):
        former.state()


def test_a_schema_of_another_warehouse_and_a_table_of_someone_else_are_left_alone(
    database: str, connection: psycopg.Connection
) -> None:
    target(database).state()
    with pytest.raises(DefiniteError, match="belongs to another warehouse"):
        target(database, 2, "other").state()
    connection.execute("CREATE TABLE shop.t (mine int)")
    with pytest.raises(DefiniteError, match=r"shop\.t at serving that headgate did not make"):
        target(database).begin_fill(placed())


def test_what_others_do_to_a_table_is_found_and_a_fill_repairs_it(
    database: str, connection: psycopg.Connection
) -> None:
    at, table = target(database), placed()
    at.state()
    content = rows(row(1, "x"), row(2, "y"))
    for number, (statement, found) in enumerate(
        {
            "UPDATE shop.t SET big = 1 WHERE a = 1": "was changed by postgres at",
            "TRUNCATE shop.t": "was changed by postgres at",
            "DROP TABLE shop.t": "was dropped",
            "ALTER TABLE shop.t ADD COLUMN more int": "has other columns now",
            "DROP TABLE shop.t; CREATE TABLE shop.t (a int)": "was replaced by another table",
        }.items()
    ):
        fill(at, table, content, before=number, job=number + 1)
        assert at.state().tables["t"].problem is None
        connection.execute(statement)  # type: ignore[call-overload]
        assert found in str(at.state().tables["t"].problem)
    fill(at, table, content, before=5, job=6)
    assert at.state().tables["t"].problem is None
    assert connection.execute("SELECT count(*) FROM shop.t").fetchone() == (2,)


def test_readers_keep_their_privileges_when_a_table_is_filled_anew(
    database: str, connection: psycopg.Connection
) -> None:
    at, table = target(database), placed()
    at.state()
    fill(at, table, rows(row(1, "x")))
    connection.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader; GRANT SELECT ON shop.t TO reader, PUBLIC")
    fill(at, placed(origin="2"), rows(row(1, "x")), before=1, job=2)
    found = connection.execute("SELECT has_table_privilege('reader', 'shop.t', 'SELECT')").fetchone()
    assert found == (True,)
    connection.execute("CREATE VIEW public.over_it AS SELECT a FROM shop.t")
    with pytest.raises(DefiniteError, match="view over_it depends on"):
        fill(at, placed(origin="3"), rows(row(1, "x")), before=2, job=3)
    connection.execute("DROP VIEW public.over_it; DROP OWNED BY reader; DROP ROLE reader")


def test_tables_that_are_no_longer_placed_go(database: str, connection: psycopg.Connection) -> None:
    at, table = target(database), placed()
    at.state()
    fill(at, table, rows(row(1, "x")))
    at.ship(Shipment(JobId(1), JobId(2), AT, AT, [], [], ["t"]))
    assert at.state().tables == {}
    assert connection.execute("SELECT to_regclass('shop.t')").fetchone() == (None,)


def test_a_role_with_a_schema_of_its_own_needs_no_more(database: str, connection: psycopg.Connection) -> None:
    connection.execute(
        "DROP ROLE IF EXISTS shipper; CREATE ROLE shipper LOGIN; CREATE SCHEMA shop AUTHORIZATION shipper"
    )
    at, table = target(database.replace("user=postgres", "user=shipper")), placed()
    at.state()
    fill(at, table, rows(row(1, "x")))
    assert at.state().tables["t"].problem is None
    at.close()
    connection.execute("DROP OWNED BY shipper CASCADE; DROP ROLE shipper")


def test_a_name_that_the_database_would_cut_short_is_refused() -> None:
    with pytest.raises(FlowError, match="its name may have 56 bytes there"):
        placed("t" * 57)
    assert placed("t" * 56).name == "t" * 56
