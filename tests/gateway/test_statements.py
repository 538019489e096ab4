"""What clients define and write: flows, comments, rows of producers; and one snapshot per transaction."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import psycopg
import pytest

from tests.gateway.serving import Shop


@pytest.fixture
def connection(shop: Shop) -> psycopg.Connection:
    with psycopg.connect(shop.dsn, autocommit=True) as made:
        yield made


def test_flows_are_created_renamed_and_dropped(connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE MATERIALIZED VIEW public.sold AS SELECT item, sum(qty)::bigint AS qty FROM shop.sales GROUP BY 1"
    )
    connection.execute("CREATE MATERIALIZED VIEW much AS SELECT item FROM sold WHERE qty > 5")
    assert connection.execute("SELECT * FROM much").fetchall() == [(1,)]
    with pytest.raises(psycopg.errors.DuplicateTable):
        connection.execute("CREATE MATERIALIZED VIEW sold AS SELECT 1 AS x")
    connection.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS sold AS SELECT 1 AS x")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        connection.execute("DROP MATERIALIZED VIEW sold")
    connection.execute("ALTER MATERIALIZED VIEW sold RENAME TO sold_items")
    assert connection.execute("SELECT * FROM much").fetchall() == [(1,)]
    connection.execute("SET max_staleness = 'any'")
    connection.execute("INSERT INTO shop.sales VALUES (110, 7, 5), (111, 7, -5)")
    seventh = "SELECT qty FROM sold_items WHERE item = 7"
    assert connection.execute(seventh).fetchall() == []
    connection.execute("REFRESH MATERIALIZED VIEW sold_items")
    assert connection.execute(seventh).fetchall() == [(0,)]
    connection.execute("RESET max_staleness")
    connection.execute("COMMENT ON MATERIALIZED VIEW sold_items IS 'what went'")
    named = "SELECT obj_description('sold_items'::regclass, 'pg_class')"
    assert connection.execute(named).fetchone() == ("what went",)
    told = "\n".join(line for (line,) in connection.execute("EXPLAIN SELECT * FROM sold_items WHERE qty > 6"))
    assert "sold_items" in told and "6" in told
    connection.execute("DROP MATERIALIZED VIEW sold_items CASCADE")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM much")
    connection.execute("DROP MATERIALIZED VIEW IF EXISTS sold_items")


def test_definitions_count_when_their_transaction_is_committed(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as connection, psycopg.connect(shop.dsn, autocommit=True) as other:
        made = "CREATE MATERIALIZED VIEW drafted AS SELECT item, sum(qty)::bigint AS qty FROM shop.sales GROUP BY 1"
        connection.execute(made)
        connection.execute("CREATE MATERIALIZED VIEW drafted_items AS SELECT item FROM drafted")
        connection.execute("COMMENT ON MATERIALIZED VIEW drafted IS 'a draft'")
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("SELECT * FROM drafted")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="counts when it is committed"):
            connection.execute("SELECT * FROM drafted")
        connection.rollback()
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("SELECT * FROM drafted")
        # What is wrong is told at once, and the transaction has failed.
        with pytest.raises(psycopg.Error, match="nothing"):
            connection.execute("CREATE MATERIALIZED VIEW drafted AS SELECT nothing FROM shop.sales")
        connection.rollback()
        connection.execute(made)
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not both"):
            connection.execute("INSERT INTO shop.sales (sale, item, qty) VALUES (900, 9, 9)")
        connection.rollback()
        connection.execute(made)
        connection.execute("CREATE MATERIALIZED VIEW drafted_items AS SELECT item FROM drafted")
        connection.execute("COMMENT ON MATERIALIZED VIEW drafted IS 'a draft'")
        connection.commit()
        assert other.execute("SELECT item FROM drafted_items WHERE item = 1").fetchall() == [(1,)]
        named = "SELECT obj_description('drafted'::regclass, 'pg_class')"
        assert other.execute(named).fetchone() == ("a draft",)
        # As dbt replaces a model: renamed, made anew, the old one dropped with what reads it.
        connection.execute("ALTER MATERIALIZED VIEW drafted RENAME TO drafted_backup")
        connection.execute(made.replace("sum(qty)", "sum(qty) * 2"))
        connection.execute("DROP MATERIALIZED VIEW drafted_backup CASCADE")
        connection.rollback()
        before = other.execute("SELECT qty FROM drafted WHERE item = 1").fetchone()
        connection.execute("ALTER MATERIALIZED VIEW drafted RENAME TO drafted_backup")
        connection.execute(made.replace("sum(qty)", "sum(qty) * 2"))
        connection.execute("DROP MATERIALIZED VIEW drafted_backup CASCADE")
        connection.commit()
        assert other.execute("SELECT qty FROM drafted WHERE item = 1").fetchone() == (before[0] * 2,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("SELECT * FROM drafted_items")
        connection.execute("DROP MATERIALIZED VIEW drafted")
        connection.rollback()
        connection.execute("DROP MATERIALIZED VIEW drafted")
        connection.commit()
        assert "drafted" not in shop.warehouse.tables


def test_what_files_define_is_changed_in_files(connection: psycopg.Connection) -> None:
    for statement in ("DROP MATERIALIZED VIEW top_items", "ALTER MATERIALIZED VIEW top_items RENAME TO x"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="project's files"):
            connection.execute(statement)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="schema"):
        connection.execute("CREATE SCHEMA other")
    connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="materialized views"):
        connection.execute("CREATE TABLE x (a int)")


def test_the_catalogs_list_flows_and_the_schema_of_headgate(connection: psycopg.Connection) -> None:
    described = connection.execute("SELECT obj_description('sales_per_item'::regclass, 'pg_class')").fetchone()
    assert described == ("What was sold of each item",)
    spaces = {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace")}
    assert spaces >= {"headgate", "public", "shop", "pg_catalog", "information_schema"}
    tables = dict(
        connection.execute(
            "SELECT table_schema || '.' || table_name, table_type FROM information_schema.tables"
        ).fetchall()
    )
    known = {"public.top_items": "VIEW", "shop.items": "BASE TABLE", "headgate.tables": "VIEW"}
    assert {name: tables[name] for name in known} == known
    columns = connection.execute("SELECT DISTINCT table_schema || '.' || table_name FROM information_schema.columns")
    assert {name for (name,) in columns} == set(tables)
    told = connection.execute("SELECT * FROM headgate.tables")
    listed = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'headgate' ORDER BY ordinal_position"
    )
    assert [each.name for each in told.description] == [name for (name,) in listed]


def test_rows_are_inserted_and_a_transaction_is_one_snapshot(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as reader, psycopg.connect(shop.dsn, autocommit=True) as writer:
        before = reader.execute("SELECT count(*), sum(qty) FROM shop.sales").fetchone()
        assert (
            writer.execute(
                "INSERT INTO shop.sales (sale, item, qty) VALUES (%s, %s, %s), (101, 2, -1)", (100, 2, 1)
            ).rowcount
            == 2
        )
        with writer.cursor() as cursor, cursor.copy("COPY shop.sales (sale, item, qty) FROM STDIN") as copy:
            copy.write_row((102, 2, 2))
            copy.write_row((103, 2, -2))
        assert writer.execute("SELECT count(*) FROM shop.sales CURRENCY BOUND 0 SEC").fetchone() == (before[0] + 4,)
        # Of a table that this transaction has not named before, too.
        assert reader.execute("SELECT sum(sales) FROM sales_per_item").fetchone() == (before[0],)
        assert reader.execute("SELECT count(*), sum(qty) FROM shop.sales").fetchone() == before
        reader.commit()
        assert reader.execute("SELECT sum(sales) FROM sales_per_item CURRENCY BOUND 0 SEC").fetchone() == (
            before[0] + 4,
        )
        reader.execute("INSERT INTO shop.sales SELECT sale + 1000, item, 0 FROM shop.sales WHERE sale = 1")
        reader.rollback()
        after = writer.execute("SELECT count(*) FROM shop.sales CURRENCY BOUND 0 SEC").fetchone()
        assert after == (before[0] + 4,)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            writer.execute("INSERT INTO top_items VALUES (1, 'x', 1)")


def copied(connection: psycopg.Connection, statement: str, *parts: bytes) -> int:
    with connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            for part in parts:
                copy.write(part)
        return cursor.rowcount


def test_rows_are_copied_in_parts_of_any_size(shop: Shop) -> None:
    lines = b"".join(b"\\N,%d,%d\n" % (9, 10_000 + number) for number in range(3000))
    pieces = [lines[start : start + 777] for start in range(0, len(lines), 777)]
    taken = "SELECT count(*), sum(item), count(qty), max(sale) FROM shop.sales WHERE sale >= 10000"
    with psycopg.connect(shop.dsn) as connection:
        connection.execute("SET max_staleness = '0s'")
        connection.commit()
        statement = r"COPY shop.sales (qty, item, sale) FROM STDIN (DELIMITER ',', NULL '\N')"
        assert copied(connection, statement, *pieces) == 3000
        # What is wrong in a row is told by COPY, not by COMMIT, and costs only this COPY.
        told = pytest.raises(psycopg.errors.InvalidTextRepresentation, match="row 2, column item")
        with told, connection.transaction():
            copied(connection, "COPY shop.sales (sale, item) FROM STDIN (FORMAT csv)", b'7,1\n8,"o\nne"\n')
        connection.rollback()
        assert connection.execute(taken).fetchone() == (0, None, 0, None)
        connection.commit()
        assert copied(connection, statement, *pieces) == 3000
        assert copied(connection, "COPY shop.sales FROM STDIN") == 0
        connection.commit()
        assert connection.execute(taken).fetchone() == (3000, 27_000, 0, 12_999)


def test_rows_that_cannot_be_read_are_refused(shop: Shop) -> None:
    whole = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        before = connection.execute("SELECT count(*) FROM shop.sales CURRENCY BOUND 0 SEC").fetchone()
        for form, data, problem in (
            ("text", b"1\t2\n", "row 1 has 2 columns, expected 3"),
            ("text", b"1\t2\t\xff\n", "not in UTF8"),
            ("csv", b'1,2,"3', "not CSV"),
            ("binary", b"nonsense", "signature"),
            ("binary", whole + b"\x00\x02", "a row has 2 columns"),
            ("binary", whole + b"\x00\x03\x00\x00", "unexpected end"),
            ("binary", whole + b"\x00\x03\x7f\xff\xff\xff", "at most 64"),
        ):
            with pytest.raises(psycopg.Error, match=problem):
                copied(connection, f"COPY shop.sales FROM STDIN (FORMAT {form})", data)
        assert connection.execute("SELECT count(*) FROM shop.sales CURRENCY BOUND 0 SEC").fetchone() == before


def test_a_subscription_gives_rows_and_then_changes(shop: Shop) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as reader, psycopg.connect(shop.dsn, autocommit=True) as writer:
        before = writer.execute("SELECT count(*) FROM shop.items").fetchone()[0]
        reader.execute("SET max_staleness = '0s'")
        with reader.cursor() as cursor:
            changes = cursor.stream("SUBSCRIBE TO shop.items")
            first = [next(changes) for _ in range(before)]
            assert {row[4] for row in first} >= {"Ölkanne"} and all(row[1] == 1 for row in first)
            # The last row of a job says from where another subscription goes on.
            assert [row[2] is None for row in first] == [True] * (before - 1) + [False]
            writer.execute("INSERT INTO shop.items (id, name) VALUES (50, 'new')")
            job, weight, position, number, name, *_ = next(changes)
            assert (weight, number, name) == (1, 50, "new") and job > first[0][0] and position is not None
            reader.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                list(changes)
        assert reader.execute("SELECT 1").fetchone() == (1,)
        # After a position come the changes that its reader has not seen, each once.
        with (
            reader.cursor() as cursor,
            cursor.copy(f"COPY (SUBSCRIBE TO shop.items AS OF '{first[-1][2]}') TO STDOUT") as copy,
        ):
            line = bytes(copy.read()).decode().split("\t")
            assert (line[0], line[1], line[3], line[4]) == (str(job), "1", "50", "new") and line[2] == position
            reader.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                copy.read()
        with reader.transaction():
            reader.execute(f"DECLARE c CURSOR FOR SUBSCRIBE TO shop.items AS OF '{first[-1][2]}'")
            assert [row[3] for row in reader.execute("FETCH ALL c")] == [50]
            writer.execute("INSERT INTO shop.items (id, name) VALUES (51, 'a'), (52, 'b')")
            found = [row[3] for _ in range(2) for row in reader.execute("FETCH 1 c")]
            assert sorted(found) == [51, 52]
    assert shop.server._service.subscriptions._open == set()


def test_a_subscription_has_no_place_of_a_query(shop: Shop) -> None:
    async def follow() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=shop.port, user="tester", database="shop")
        async with connection.transaction():
            cursor = await connection.cursor("SUBSCRIBE TO sales_per_item")
            rows = await cursor.fetch(2)
            assert len({row["item"] for row in rows}) == 2 and {row["__weight"] for row in rows} == {1}
            assert not shop.server._service.queries.running
            assert len(shop.server._service.subscriptions._open) == 1
        assert not shop.server._service.subscriptions._open
        await connection.close()

    asyncio.run(follow())


def test_a_connection_never_goes_back_in_time(shop: Shop) -> None:
    with (
        psycopg.connect(shop.dsn, autocommit=True) as reader,
        psycopg.connect(shop.dsn, autocommit=True) as other,
        psycopg.connect(shop.dsn, autocommit=True) as writer,
    ):
        counted, summed = "SELECT count(*) FROM shop.sales", "SELECT sum(sales)::bigint FROM sales_per_item"
        (before,) = reader.execute(f"{summed} CURRENCY BOUND 0 SEC").fetchone()
        writer.execute("INSERT INTO shop.sales VALUES (120, 8, 1)")
        assert reader.execute(f"{counted} CURRENCY BOUND 0 SEC").fetchone() == (before + 1,)
        for connection, sales in ((other, before), (reader, before + 1), (other, before + 1)):
            # The flow is as old as it may be; only who has seen the row has it brought up to date.
            connection.execute("SET max_staleness = 'any'")
            assert connection.execute(summed).fetchone() == (sales,)


def test_tables_are_shown_and_described_by_their_names(connection: psycopg.Connection) -> None:
    shown = connection.execute("SHOW TABLES")
    kinds = {row[0]: row[1] for row in shown}
    assert (kinds["top_items"], kinds["shop.sales"]) == ("flow", "source")
    expected = [("id", "bigint", "key"), ("name", "string", None), ("qty", "bigint", None)]
    columns = [each[:2] for each in expected]
    for name in ("top_items", "public.top_items", '"top_items"', 'public."top_items"', "shop.public.top_items"):
        for describe in ("DESCRIBE", "DESC", "DESCRIBE TABLE"):
            assert [row[:2] for row in connection.execute(f"{describe} {name}")] == columns
    sales = [("sale", "bigint", "key"), ("item", "bigint", None), ("qty", "int", None)]
    for name in ("shop.sales", '"shop"."sales"', "SHOP.SALES"):
        assert connection.execute(f"DESCRIBE {name}").fetchall() == sales
    told = connection.execute("DESCRIBE EXTENDED public.top_items").fetchall()
    assert [row[:2] for row in told[:3]] == columns and ("Name", "top_items") in [row[:2] for row in told]
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("DESCRIBE public.sales")


def test_transactions_are_read_only_as_set(shop: Shop) -> None:
    insert = "INSERT INTO shop.sales VALUES (900, 9, 1)"
    read_only = psycopg.errors.ReadOnlySqlTransaction
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        shown = "SHOW transaction_read_only"
        connection.execute("SET TRANSACTION READ ONLY")
        assert connection.execute(shown).fetchone() == ("off",)
        connection.execute("BEGIN; SET TRANSACTION READ ONLY; SET TRANSACTION READ WRITE")
        connection.execute(insert)
        connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
        assert connection.execute(shown).fetchone() == ("on",)
        connection.execute("SELECT count(*) FROM shop.sales")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="before any query"):
            connection.execute("SET TRANSACTION READ WRITE")
        connection.execute("ROLLBACK")
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        for begin, is_refused in (("", True), ("BEGIN;", True), ("BEGIN READ WRITE;", False)):
            with pytest.raises(read_only) if is_refused else contextlib.nullcontext():
                connection.execute(f"{begin} {insert}")
            connection.execute("ROLLBACK")
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
        assert connection.execute(shown).fetchone() == ("off",)
        assert connection.execute("SELECT * FROM shop.sales WHERE sale = 900 CURRENCY BOUND 0 SEC").fetchone() is None


def test_a_transaction_keeps_what_it_says(shop: Shop) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        for begin in (
            "BEGIN READ ONLY",
            "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            "BEGIN; SET TRANSACTION READ ONLY",
        ):
            for change in (
                "INSERT INTO shop.sales VALUES (1, 1, 1)",
                "DROP MATERIALIZED VIEW top_items",
                "COPY shop.sales FROM STDIN",
            ):
                connection.execute(begin)
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="read-only transaction"):
                    connection.execute(change)
                connection.execute("ROLLBACK")
        with connection.transaction():
            connection.execute("SELECT count(*) FROM shop.sales CURRENCY BOUND 1 HOUR")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="first query"), connection.transaction():
                connection.execute("SELECT count(*) FROM shop.sales CURRENCY BOUND 0 SEC")
        assert connection.execute("SELECT set_config('max_staleness', '10m', false)").fetchone() == ("10m",)
        assert connection.execute("SHOW max_staleness").fetchone() == ("10m",)
        assert connection.execute("SELECT current_setting('max_staleness')").fetchone() == ("10m",)
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SELECT set_config('max_staleness', 'soon', false)")


def test_what_stands_before_a_views_query_is_kept_or_refused(connection: psycopg.Connection) -> None:
    connection.execute(
        "CREATE MATERIALIZED VIEW named (article, total) COMMENT 'by article' AS"
        " SELECT item, sum(qty) / 2 AS qty FROM shop.sales WHERE sale < 50 GROUP BY item"
    )
    assert sorted(connection.execute("SELECT article, total FROM named").fetchall()) == [(1, 3), (2, 2)]
    assert connection.execute("SELECT obj_description('named'::regclass, 'pg_class')").fetchone() == ("by article",)
    connection.execute("DROP MATERIALIZED VIEW named")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="USING"):
        connection.execute("CREATE MATERIALIZED VIEW never USING heap AS SELECT item, qty FROM shop.sales")
    for wrong in (
        "never WITH (fillfactor = 70) AS SELECT item, qty FROM shop.sales",
        "never TBLPROPERTIES ('target_lag' = 'soon') AS SELECT item, qty FROM shop.sales",
        "never (CONSTRAINT some EXPECT ()) AS SELECT item FROM shop.sales",
        "never (CONSTRAINT some EXPECT (item > 0) ON VIOLATION IGNORE) AS SELECT item FROM shop.sales",
        "never (CONSTRAINT some EXPECT (nothing > 0)) AS SELECT item FROM shop.sales",
        "never (a, b, c) AS SELECT 1 AS x",
        "never (a int) AS SELECT 1 AS x",
        "never WHATEVER AS SELECT 1 AS x",
    ):
        with pytest.raises((psycopg.errors.SyntaxError, psycopg.errors.UndefinedColumn)):
            connection.execute(f"CREATE MATERIALIZED VIEW {wrong}")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM never")


def test_constraints_and_properties_of_a_clients_view_hold_and_are_altered(
    shop: Shop, connection: psycopg.Connection
) -> None:
    def counted() -> list[tuple[object, ...]]:
        return connection.execute("SELECT * FROM checked__expectations").fetchall()

    connection.execute(
        """CREATE MATERIALIZED VIEW checked (article, CONSTRAINT first EXPECT (article ~ '^1' AND "article" <> 'it''s')
               ON VIOLATION DROP ROW, CONSTRAINT few EXPECT (qty / 2 < 1)) WITH (target_lag = '10m')
           AS SELECT item::text, qty FROM shop.sales WHERE sale < 50"""
    )
    kept = "SELECT article, qty FROM checked ORDER BY qty"
    assert connection.execute(kept).fetchall() == [("1", 3), ("1", 4)]
    assert counted() == [(1, 3)]
    assert "'target_lag' = '10m'" in shop.warehouse.declared["checked"]
    with connection.transaction():
        connection.execute("ALTER MATERIALIZED VIEW checked DROP CONSTRAINT first")
        connection.execute("ALTER MATERIALIZED VIEW checked ADD CONSTRAINT known EXPECT (qty IS NOT NULL)")
    assert len(connection.execute(kept).fetchall()) == 3
    assert counted() == [(3, 0)]
    # What is so already is no mistake: a model's hook runs again with every run.
    connection.execute("ALTER MATERIALIZED VIEW checked ADD CONSTRAINT known EXPECT (qty IS NOT NULL)")
    with pytest.raises(psycopg.errors.DuplicateObject):
        connection.execute("ALTER MATERIALIZED VIEW checked ADD CONSTRAINT known EXPECT (qty > 0)")
    with pytest.raises(psycopg.errors.UndefinedObject):
        connection.execute("ALTER MATERIALIZED VIEW checked DROP CONSTRAINT first")
    connection.execute("ALTER MATERIALIZED VIEW checked SET (target_lag = '1h')")
    assert "'target_lag' = '1h'" in shop.warehouse.declared["checked"]
    connection.execute("ALTER MATERIALIZED VIEW checked RESET (target_lag)")
    assert "target_lag" not in shop.warehouse.declared["checked"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="counts what violates"):
        connection.execute("DROP MATERIALIZED VIEW checked__expectations")
    connection.execute("CREATE MATERIALIZED VIEW above AS SELECT qty FROM checked")
    connection.execute("ALTER MATERIALIZED VIEW checked RENAME TO checked_2")
    assert connection.execute("SELECT * FROM checked_2__expectations").fetchall() == [(3, 0)]
    # What counts violations does not keep its flow from being dropped.
    connection.execute("DROP MATERIALIZED VIEW above")
    connection.execute("DROP MATERIALIZED VIEW checked_2")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM checked_2__expectations")


def test_rows_that_break_a_constraint_have_its_state(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation, match="has a row with sale = 1 already"):
        connection.execute("INSERT INTO shop.sales (sale, item, qty) VALUES (1, 1, 1)")
    with pytest.raises(psycopg.errors.NotNullViolation):
        connection.execute("INSERT INTO shop.sales (sale, item, qty) VALUES (NULL, 1, 1)")


def test_tables_are_told_of_inside_a_transaction_that_has_a_snapshot(connection: psycopg.Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT count(*) FROM shop.sales")
        assert connection.execute("DESCRIBE shop.sales").fetchall()
        assert connection.execute("EXPLAIN SELECT * FROM shop.sales").fetchall()
        assert connection.execute("SHOW TABLES").fetchall()
    told = "\n".join(line for (line,) in connection.execute("EXPLAIN MATERIALIZED VIEW top_items"))
    assert "sales_per_item" in told
