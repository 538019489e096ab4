from __future__ import annotations

import pytest

from headgate.errors import FlowError, Location
from headgate.sql.ordering import order_flows
from headgate.sql.statements import CreateAutoCdc, CreateStreamingTable, CreateView, Statement, parse_statements


def name_of(statement: Statement) -> str:
    return statement.flow if isinstance(statement, CreateAutoCdc) else statement.name


def view(name: str, query: str) -> str:
    return f"CREATE MATERIALIZED VIEW {name} AS {query};"


def test_a_file_holds_several_statements_with_comments() -> None:
    text = """-- the item dimension; with a semicolon
CREATE STREAMING TABLE item;
/* ; */ CREATE FLOW item_cdc AS AUTO CDC INTO item FROM stream(shop.item_s)
  KEYS (item_id, `Sub Id`) TRACK HISTORY ON (name) STORED AS SCD TYPE 2 SEQUENCE BY changed;

create or refresh materialized view `Big Sales` COMMENT 'it; ok'
TBLPROPERTIES ('lookup_miss' = 'DROP') AS
-- first
SELECT ';' AS x
FROM shop.sales;
"""
    table, flow, sales = parse_statements(text, "flows/item.sql")
    assert table == CreateStreamingTable("item", Location("flows/item.sql", 2))
    assert isinstance(flow, CreateAutoCdc)
    assert (flow.flow, flow.target, flow.source) == ("item_cdc", "item", "shop.item_s")
    assert (flow.keys, flow.sequence_by, flow.scd_type) == (("item_id", "Sub Id"), "changed", 2)
    assert flow.track == ("name",)
    assert isinstance(sales, CreateView)
    assert (sales.name, sales.comment, sales.properties) == ("Big Sales", "it; ok", {"lookup_miss": "drop"})
    assert sales.query_text == "SELECT ';' AS x\nFROM shop.sales"
    assert (sales.where.line, sales.query_where.line) == (6, 9)


def test_auto_cdc_defaults_to_type_1_and_takes_exceptions() -> None:
    (flow,) = parse_statements("CREATE FLOW f AS AUTO CDC INTO t FROM s.x KEYS (a)", "f.sql")
    assert isinstance(flow, CreateAutoCdc)
    assert (flow.scd_type, flow.sequence_by, flow.track) == (1, None, None)
    text = "CREATE FLOW f AS AUTO CDC INTO t FROM s.x KEYS (a) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (b, c)"
    (flow,) = parse_statements(text, "f.sql")
    assert isinstance(flow, CreateAutoCdc)
    assert flow.track_except == ("b", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nSELECT 1", "f.sql:2:1: expected CREATE, found 'SELECT'"),
        ("CREATE TABLE t", "f.sql:1:8: expected MATERIALIZED VIEW, STREAMING TABLE or FLOW, found 'TABLE'"),
        ("CREATE MATERIALISED VIEW v AS SELECT 1", "did you mean MATERIALIZED?"),
        ("CREATE MATERIALIZED VIEW v\nSELECT 1", "f.sql:2:1: expected COMMENT, TBLPROPERTIES or AS and a query"),
        ("CREATE MATERIALIZED VIEW v AS", "expected a query, found the end of the statement"),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('misses' = 'x') AS SELECT 1",
            "known: advise, indexes, lookup_miss, place, range_column, ranges, target_lag",
        ),
        ("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('lookup_miss' = 'x') AS SELECT 1", "one of: unknown, drop, fail"),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('ranges' = '0', 'range_column' = 'a') AS SELECT 1",
            "give a whole number from 1 to 1000",
        ),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('ranges' = '4') AS SELECT 1",
            "'ranges' and 'range_column' go together",
        ),
        ("CREATE STREAMING TABLE t (a INT)", "expected CONSTRAINT"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM x KEYS (a)", "name it as source.table"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM s.x", "expected KEYS"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM s.x KEYS (a) STORED AS SCD TYPE 3", "expected SCD TYPE 1 or 2"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM s.x KEYS (a) TRACK HISTORY ON (b)", "add STORED AS SCD TYPE 2"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 'x", "f.sql:1:38: cannot read this SQL"),
    ],
)
def test_a_mistake_in_a_statement_names_its_place(text: str, message: str) -> None:
    with pytest.raises(FlowError) as raised:
        parse_statements(text, "f.sql")
    assert message in str(raised.value)


def test_flows_are_ordered_after_what_they_read() -> None:
    text = (
        view("c", "SELECT * FROM B JOIN item ON true")
        + view("b", "WITH c AS (SELECT * FROM a) SELECT * FROM c")
        + view("a", "SELECT 1 AS x FROM s.t")
        + "CREATE FLOW f AS AUTO CDC INTO item FROM s.i KEYS (id); CREATE STREAMING TABLE item;"
    )
    ordered = [name_of(item) for item in order_flows(parse_statements(text, "f.sql"))]
    assert ordered == ["a", "b", "item", "f", "c"]


def test_a_cycle_is_named() -> None:
    text = view("a", "SELECT * FROM c") + "\n" + view("b", "SELECT * FROM A") + "\n" + view("c", "SELECT * FROM b")
    with pytest.raises(FlowError, match=r"a -> c -> b -> a \(f.sql:1, f.sql:3, f.sql:2\)"):
        order_flows(parse_statements(text, "f.sql"))


def test_a_flow_defined_twice_names_both_places() -> None:
    statements = parse_statements(view("a", "SELECT 1"), "one.sql") + parse_statements(view("A", "SELECT 2"), "two.sql")
    with pytest.raises(FlowError, match=r"'A' is defined twice: at one.sql:1 and at two.sql:1"):
        order_flows(statements)
