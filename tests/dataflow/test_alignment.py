"""Which scans are aligned with a column of a flow's result, and why others are not."""

from __future__ import annotations

import pytest

from headgate.dataflow.alignment import Restriction, align, restriction
from headgate.dataflow.expression import Column, Expression
from headgate.dataflow.graph import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Node,
    Output,
    Projection,
    Scan,
    UnionAll,
    Window,
    WindowCall,
    kept,
)
from headgate.dataflow.rules.join import companion


def scan(table: str, *columns: str, alias: str = "") -> Scan:
    prefix = alias or table
    return Scan(table, tuple(Output(f"{prefix}__{column}", Column(column)) for column in columns))


def longs(node: Node, column: str) -> str:
    return "string" if column.endswith("text") else "bigint"


HEADS = scan("heads", "k", "g")
FACTS = scan("facts", "k", "ref", "v")
REFS = scan("refs", "ref", "text")
RANGED = {"heads": "k", "facts": "k"}


def reasons(root: Node, column: str) -> dict[str, str]:
    return {each.scan.table: each.reason for each in align(root, column, longs).scans}


def test_an_inner_join_carries_the_column_to_both_sides() -> None:
    joined = Join(HEADS, FACTS, "inner", (("heads__k", "facts__k"),))
    assert reasons(joined, "facts__k") == {"heads": "aligned on k", "facts": "aligned on k"}


def test_equal_columns_are_found_through_several_joins() -> None:
    other = scan("others", "k")
    root = Join(Join(HEADS, FACTS, "inner", (("heads__k", "facts__k"),)), other, "inner", (("facts__k", "others__k"),))
    assert reasons(root, "heads__k")["others"] == "aligned on k"


def test_a_dimension_is_joined_by_other_columns() -> None:
    root = Join(FACTS, REFS, "left", (("facts__ref", "refs__ref"),), at_most_one=True)
    assert reasons(root, "facts__k") == {"facts": "aligned on k", "refs": "it is joined by other columns than k"}
    found = restriction(root, "facts__k", longs, (), RANGED)
    assert isinstance(found, Restriction)
    assert found.tables == {"facts"}


def test_the_column_of_the_side_that_an_outer_join_leaves_null_aligns_nothing() -> None:
    root = Join(HEADS, FACTS, "left", (("heads__k", "facts__k"),))
    assert set(reasons(root, "facts__k").values()) == {"the outer join can leave k NULL"}
    assert isinstance(restriction(root, "heads__k", longs, (), RANGED), Restriction)


def test_a_cast_or_computed_column_is_not_aligned() -> None:
    root = Projection(FACTS, (Output("k", Expression("facts__k + 0")),))
    assert reasons(root, "k") == {"facts": "k is computed"}


def test_a_group_without_the_column_is_not_aligned() -> None:
    root = Aggregate(FACTS, ("facts__ref",), (AggregateCall("c", "count"),))
    assert isinstance(restriction(root, "facts__ref", longs, (), RANGED), str)
    total = Aggregate(FACTS, (), (AggregateCall("c", "count"),))
    assert reasons(total, "c") == {"facts": "rows are grouped without c"}


def test_a_window_without_the_column_in_its_partitions_is_not_aligned() -> None:
    call = WindowCall("r", Expression("row_number()"), Expression("facts__v"))
    assert reasons(Window(FACTS, ("facts__k",), (call,)), "facts__k") == {"facts": "aligned on k"}
    assert "partitions" in reasons(Window(FACTS, ("facts__ref",), (call,)), "facts__k")["facts"]


def test_every_branch_of_a_union_has_to_be_aligned() -> None:
    def branch(node: Scan, column: str) -> Projection:
        return Projection(node, (Output("k", kept([column])[0].sql),))

    both = UnionAll((branch(HEADS, "heads__k"), branch(FACTS, "facts__k")))
    assert isinstance(restriction(both, "k", longs, (), RANGED), Restriction)
    mixed = UnionAll((branch(HEADS, "heads__k"), branch(FACTS, "facts__ref")))
    assert isinstance(restriction(mixed, "k", longs, (), RANGED), str)


def test_a_union_that_converts_the_column_is_not_aligned() -> None:
    def types(node: Node, column: str) -> str:
        return "string" if isinstance(node, UnionAll) else "bigint"

    branch = Projection(HEADS, (Output("k", kept(["heads__k"])[0].sql),))
    assert isinstance(restriction(UnionAll((branch, branch)), "k", types, (), RANGED), str)


def test_a_self_join_with_one_aligned_side_reads_the_table_whole() -> None:
    other = scan("facts", "ref", alias="b")
    root = Join(FACTS, other, "inner", (("facts__k", "b__ref"),))
    assert isinstance(restriction(root, "facts__k", longs, (), RANGED), str)
    with_heads = Join(HEADS, root, "inner", (("heads__k", "facts__k"),))
    found = restriction(with_heads, "heads__k", longs, (), RANGED)
    assert isinstance(found, Restriction)
    assert found.tables == {"heads"}


def test_equality_of_different_types_carries_nothing() -> None:
    texts = scan("texts", "k_text")
    root = Join(HEADS, texts, "inner", (("heads__k", "texts__k_text"),))
    assert reasons(root, "heads__k")["texts"] == "it is joined by other columns than k"


@pytest.mark.parametrize("residual", [None, Expression("facts__v > heads__g")])
def test_the_state_of_an_outer_join_has_the_column(residual: Expression | None) -> None:
    root = Join(HEADS, FACTS, "left", (("heads__k", "facts__k"),), residual)
    state = companion(root)
    assert state is not None
    found = restriction(Filter(root, Expression("true")), "heads__k", longs, (state,), RANGED)
    assert isinstance(found, Restriction)
    assert found.states[state] in state.keys


def test_a_state_without_the_column_is_read_whole() -> None:
    root = Join(FACTS, scan("tags", "ref"), "left", (("facts__ref", "tags__ref"),))
    state = companion(root)
    assert state is not None
    found = restriction(root, "facts__k", longs, (state,), RANGED)
    assert isinstance(found, Restriction)
    assert (found.states, found.whole, found.tables) == ({}, {state}, {"facts"})
