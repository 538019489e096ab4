"""Reading a table's definition: its columns, its key, and one clear line for what is missing."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest

from headgate.capture.postgres.catalog import PostgresTable, read_table
from headgate.capture.postgres.column_changes import changed_columns
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.private_server import PostgresServer
from headgate.capture.postgres.problems import SourceSetup


def refusal(connection: psycopg.Connection, name: str, key: tuple[str, ...] | None = None) -> SourceSetup:
    with pytest.raises(SourceSetup) as caught:
        read_table(connection, name, key)
    assert caught.value.hint and "\n" not in str(caught.value)
    return caught.value


def test_a_table_is_read_with_its_key_and_spark_types(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE lines (qty numeric(8,2), line int, purc_id bigint, PRIMARY KEY (purc_id, line))")
    table = read_table(connection, "lines", None, called="lineitems")
    assert (table.qualified, table.primary_key, table.identity_columns) == (
        "public.lines",
        ("purc_id", "line"),
        table.key,
    )
    assert table.source_table.name == "lineitems"
    assert table.source_table.schema.simpleString() == "struct<qty:decimal(8,2),line:int,purc_id:bigint>"
    assert [field.nullable for field in table.source_table.schema.fields] == [True, False, False]
    assert (table.replica_identity, table.partitioned, table.logged) == ("d", False, True)


def test_a_schema_may_be_named_and_letters_count(connection: psycopg.Connection) -> None:
    connection.execute('CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Orders" ("Id" int PRIMARY KEY)')
    table = read_table(connection, "Shop.Orders", None)
    assert (table.qualified, table.key) == ("Shop.Orders", ("Id",))
    assert table.scanned.as_string(connection) == 'ONLY "Shop"."Orders"'
    assert str(refusal(connection, "Orders")).startswith("the database test has no table")


def test_dropped_columns_are_gone_and_generated_ones_can_be_left_out(connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, gone int, a int, b int GENERATED ALWAYS AS (a * 2) STORED);"
        "ALTER TABLE t DROP COLUMN gone"
    )
    assert [column.name for column in read_table(connection, "t", None).columns] == ["id", "a", "b"]
    assert [column.name for column in read_table(connection, "t", None, generated=False).columns] == ["id", "a"]


def test_the_replica_identity_is_told(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE t (id int NOT NULL, a int NOT NULL); CREATE UNIQUE INDEX by_a ON t (a)")
    assert read_table(connection, "t", ("id",)).identity_columns == ()
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    assert read_table(connection, "t", ("id",)).identity_columns == ("id", "a")
    connection.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX by_a")
    table = read_table(connection, "t", None)
    assert (table.replica_identity, table.identity_columns, table.key) == ("i", ("a",), ("a",))


def test_partitioned_tables_are_read_whole_and_unlogged_ones_are_told(connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE UNLOGGED TABLE u (id int PRIMARY KEY)"
    )
    table = read_table(connection, "t", None)
    assert table.partitioned and table.scanned.as_string(connection) == '"public"."t"'
    assert not read_table(connection, "u", None).logged


def test_a_missing_table_is_named_with_the_nearest(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE purchases (id int PRIMARY KEY)")
    assert refusal(connection, "purchase").hint == "did you mean purchases?"
    assert "has no table shop.purchases" in str(refusal(connection, "shop.purchases"))


def test_views_and_temporary_tables_are_refused(connection: psycopg.Connection) -> None:
    connection.execute("CREATE VIEW v AS SELECT 1 AS id; CREATE TEMP TABLE t (id int PRIMARY KEY)")
    assert "public.v is a view" in str(refusal(connection, "v", ("id",)))
    assert "is a temporary table" in str(refusal(connection, "t"))


def test_a_table_without_a_key_needs_a_declared_one(connection: psycopg.Connection) -> None:
    connection.execute("CREATE TABLE t (id int NOT NULL, a int)")
    assert "ALTER TABLE public.t ADD PRIMARY KEY" in str(refusal(connection, "t"))
    assert read_table(connection, "t", ("id",)).key == ("id",)
    assert "ALTER COLUMN a SET NOT NULL" in str(refusal(connection, "t", ("a",)))
    assert refusal(connection, "t", ("ida",)).hint == "did you mean id?"


def test_names_that_cannot_be_columns_are_refused(connection: psycopg.Connection) -> None:
    connection.execute(
        'CREATE TABLE t (id int PRIMARY KEY, "ID" int); CREATE TABLE u (id int PRIMARY KEY, __op int);'
        "CREATE TABLE a (id int[] PRIMARY KEY)"
    )
    assert "id and ID of public.t differ only in case" in str(refusal(connection, "t"))
    assert "__op of public.u begins with two underscores" in str(refusal(connection, "u"))
    assert "id of public.a is an array" in str(refusal(connection, "a"))


def test_missing_privileges_come_with_the_statement_that_grants_them(
    connection: psycopg.Connection, server: PostgresServer
) -> None:
    connection.execute(
        'CREATE SCHEMA shop; CREATE TABLE shop."Orders" (id int PRIMARY KEY, a int); CREATE ROLE "the reader" LOGIN'
    )
    try:
        dsn = server.dsn_of(connection.info.dbname, user="'the reader'")
        with connect(dsn) as reader:
            assert refusal(reader, "shop.Orders").hint == 'GRANT USAGE ON SCHEMA shop TO "the reader"'
            connection.execute(
                'GRANT USAGE ON SCHEMA shop TO "the reader"; GRANT SELECT (id) ON shop."Orders" TO "the reader"'
            )
            problem = refusal(reader, "shop.Orders")
            assert problem.hint == 'GRANT SELECT ON shop."Orders" TO "the reader"' and "(a)" in str(problem)
            connection.execute('GRANT SELECT ON shop."Orders" TO "the reader"')
            assert read_table(reader, "shop.Orders", None).key == ("id",)
    finally:
        connection.execute('DROP OWNED BY "the reader"; DROP ROLE "the reader"')


def altered(connection: psycopg.Connection, statement: LiteralString) -> tuple[PostgresTable, PostgresTable]:
    connection.execute("DROP TABLE IF EXISTS t, u; CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(5) NOT NULL)")
    before = read_table(connection, "t", None)
    connection.execute(statement)
    return before, read_table(connection, "t", None)


def test_an_added_nullable_column_is_harmless(connection: psycopg.Connection) -> None:
    changes = changed_columns(*altered(connection, "ALTER TABLE t ADD c text, ALTER b DROP NOT NULL"))
    assert changes.harmless and [column.name for column in changes.added] == ["c"]
    unchanged = changed_columns(*altered(connection, "ANALYZE t"))
    assert unchanged.harmless and not unchanged.added


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD c int DEFAULT 1",
        "ALTER TABLE t ADD c int NOT NULL",
        "ALTER TABLE t ADD c uuid NOT NULL DEFAULT gen_random_uuid()",
        "ALTER TABLE t ADD c int GENERATED ALWAYS AS (a + 1) STORED",
    ],
)
def test_a_column_that_rows_from_before_have_values_in_is_to_be_read(
    connection: psycopg.Connection, statement: LiteralString
) -> None:
    changes = changed_columns(*altered(connection, statement))
    assert changes.harmless and changes.filled == ("c",)
    assert changes.why_reread == "the column c was added with a default or NOT NULL"
    # What stops the table anyway is not read again by itself.
    assert changed_columns(*altered(connection, f"{statement}, DROP b")).why_reread is None


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE t DROP a", "the column a was dropped"),
        ("ALTER TABLE t RENAME a TO c", "the column a was renamed to c"),
        ("ALTER TABLE t ALTER a TYPE bigint", "the column a was changed from integer to bigint"),
        (
            "ALTER TABLE t ALTER b TYPE varchar(9)",
            "the column b was changed from character varying(5) to character varying(9)",
        ),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, b)", "the key was changed from (id) to (id, b)"),
        (
            "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(5) NOT NULL)",
            "the table was dropped and created again",
        ),
    ],
)
def test_other_changes_are_told_in_words(connection: psycopg.Connection, statement: LiteralString, what: str) -> None:
    changes = changed_columns(*altered(connection, statement))
    assert not changes.harmless and changes.others == (what,)
