"""Shapes of graphs that matter for speed: keys, pushed conditions, read columns, shared nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.dataflow.graph import Aggregate, AsOfJoin, Filter, Fragment, Join, Node, Scan, Window, walk
from headgate.sql.lower import lower_view
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import SHOP, Table, TestCatalog

TPCH_COLUMNS = {
    "part": (1, "p_partkey p_name p_mfgr p_brand p_type p_size p_container p_retailprice p_comment"),
    "supplier": (1, "s_suppkey s_name s_address s_nationkey s_phone s_acctbal s_comment"),
    "partsupp": (2, "ps_partkey ps_suppkey ps_availqty ps_supplycost ps_comment"),
    "customer": (1, "c_custkey c_name c_address c_nationkey c_phone c_acctbal c_mktsegment c_comment"),
    "orders": (
        1,
        "o_orderkey o_custkey o_orderstatus o_totalprice o_orderdate o_orderpriority o_clerk o_shippriority o_comment",
    ),
    "lineitem": (
        0,
        "l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag "
        "l_linestatus l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment",
    ),
    "nation": (1, "n_nationkey n_name n_regionkey n_comment"),
    "region": (1, "r_regionkey r_name r_comment"),
}
TPCH = TestCatalog(
    {
        f"tpch.{name}": Table(", ".join(columns.split()), key=tuple(columns.split()[:width]) or None)
        for name, (width, columns) in TPCH_COLUMNS.items()
    }
)
QUERIES = sorted((Path(__file__).parent.parent / "tpch" / "queries").glob("q*.sql"))


def graph(query: str, catalog: TestCatalog = SHOP, properties: str = "") -> Node:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v {properties} AS {query}", "v.sql")
    assert isinstance(statement, CreateView)
    result = lower_view(statement, catalog).result
    assert isinstance(result, Node)
    return result


def joins(node: Node) -> list[Join]:
    return [part for part in walk(node) if isinstance(part, Join)]


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_tpch_query_is_a_graph_without_avoidable_cross_joins(path: Path) -> None:
    node = graph(path.read_text(), TPCH)
    for join in joins(node):
        assert join.keys or join.at_most_one


def test_a_table_is_read_under_the_name_its_catalog_has() -> None:
    (scan,) = (part for part in walk(graph("SELECT A FROM S.T")) if isinstance(part, Scan))
    assert scan.table == "s.t"


def test_only_the_columns_in_use_are_read() -> None:
    (scan,) = (part for part in walk(graph("SELECT a FROM s.t WHERE b = 1")) if isinstance(part, Scan))
    assert [output.sql for output in scan.outputs] == ["a", "b"]


def test_conditions_of_one_side_go_below_the_join() -> None:
    node = graph("SELECT t.c FROM s.t JOIN s.k ON t.a = k.a WHERE t.b > 1 AND k.g = 2")
    (join,) = joins(node)
    assert isinstance(join.left, Filter) and isinstance(join.right, Filter)
    assert join.at_most_one and join.residual is None


def test_a_computed_key_is_a_column_below_the_join() -> None:
    (join,) = joins(graph("SELECT t.b FROM s.t JOIN s.u ON t.a + 1 = u.a"))
    assert join.keys == (("key_1", "u__a"),)


def test_a_common_table_is_one_node_however_often_it_is_read() -> None:
    node = graph("WITH x AS (SELECT a, count(*) AS n FROM s.t GROUP BY a) SELECT p.a FROM x p JOIN x q ON p.n = q.a")
    assert len([part for part in walk(node) if isinstance(part, Aggregate)]) == 1


@pytest.mark.parametrize(("value", "miss"), [("drop", "drop"), ("fail", "fail"), ("unknown", "unknown")])
def test_a_lookup_miss_follows_the_view_s_property(value: str, miss: str) -> None:
    query = "SELECT t.a, i.__sk AS sk FROM s.t JOIN item FOR SYSTEM_TIME AS OF t.__commit_at i ON i.item_id = t.a"
    node = graph(query, properties=f"TBLPROPERTIES ('lookup_miss' = '{value}')")
    (lookup,) = (part for part in walk(node) if isinstance(part, AsOfJoin))
    assert lookup.miss == miss
    assert lookup.surrogate_key is not None and lookup.at.endswith("__commit_at")
    left = graph(query.replace(" JOIN item", " LEFT JOIN item"))
    assert [part.miss for part in walk(left) if isinstance(part, AsOfJoin)] == ["null"]


def test_functions_that_number_rows_break_ties_and_ranks_do_not() -> None:
    node = graph(
        "SELECT a, row_number() OVER (PARTITION BY a ORDER BY b) AS n, "
        "rank() OVER (PARTITION BY a ORDER BY b) AS r FROM s.t"
    )
    (window,) = (part for part in walk(node) if isinstance(part, Window))
    assert [call.tie_break for call in window.calls] == [True, False]


@pytest.mark.parametrize(
    ("condition", "context"),
    [("b >= DATE 'today'", True), ("b = 'now'", True), ("CASE WHEN a > 1 THEN 'today' ELSE 'never' END > ''", False)],
)
def test_a_word_that_means_the_time_of_the_call_is_not_incremental(condition: str, context: bool) -> None:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS SELECT a FROM s.t WHERE {condition}", "v.sql")
    assert isinstance(statement, CreateView)
    result = lower_view(statement, SHOP).result
    assert (isinstance(result, Fragment) and result.context) is context


def test_a_fragment_says_why_and_reads_only_what_it_needs() -> None:
    (statement,) = parse_statements(
        "CREATE MATERIALIZED VIEW v AS SELECT t.a, rand() AS r FROM s.t JOIN s.k ON t.a = k.a WHERE g > 1", "v.sql"
    )
    assert isinstance(statement, CreateView)
    fragment = lower_view(statement, SHOP).result
    assert isinstance(fragment, Fragment)
    assert fragment.context and fragment.reasons == ("rand() depends on when and where it is called",)
    assert fragment.sql == "SELECT t__a_3 AS `a`, rand() AS `r` FROM __input_1"
    ((name, node),) = fragment.inputs
    assert name == "__input_1" and len(joins(node)) == 1
