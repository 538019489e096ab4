"""What Spark finds wrong while it runs is told in the words of whoever wrote the query or the flow, with its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate import Warehouse
from headgate.errors import DefiniteError, FlowFailed, HeadgateError, Location
from headgate.runtime.spark.problems import _place
from headgate.runtime.spark.sessions import SparkSessions
from headgate.warehouse.spark_errors import without_own_names
from tests.scheduling.bank import deposit, open_bank

FLOWS = """
CREATE MATERIALIZED VIEW shares AS
SELECT a.id,
       a.balance /* per branch */ / a.branch AS share
FROM bank.accounts a;
CREATE MATERIALIZED VIEW newest AS SELECT id FROM bank.accounts ORDER BY id DESC LIMIT 1;
"""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_bank(tmp_path_factory.mktemp("bank"), FLOWS) as opened:
        deposit(opened, (1, 1, 10), (2, 0, 5))
        yield opened


@pytest.mark.parametrize(
    ("query", "condition", "line", "words"),
    [
        ("SELECT id,\n  balance / branch AS share\nFROM bank.accounts", "DIVIDE_BY_ZERO", 2, "in balance / branch"),
        (
            "SELECT cast(concat('x', id) AS int) FROM bank.accounts",
            "CAST_INVALID_INPUT",
            1,
            "cast(concat('x', id) AS int)",
        ),
        ("SELECT array(1, 2)[\n  balance] FROM bank.accounts", "INVALID_ARRAY_INDEX", 1, "array(1, 2)[ balance]"),
        (
            "SELECT id\nFROM bank.accounts\nWHERE raise_error('no such luck') IS NULL",
            "USER_RAISED_EXCEPTION",
            None,
            "no such luck",
        ),
        (
            "SELECT balance * 9223372036854775807 FROM bank.accounts",
            "ARITHMETIC_OVERFLOW",
            1,
            "in balance * 9223372036854775807",
        ),
        (
            "SELECT bank.accounts.balance / a.branch FROM bank.accounts, bank.accounts a",
            "DIVIDE_BY_ZERO",
            1,
            "/ a.branch",
        ),
    ],
)
@pytest.mark.parametrize("read", ["collect", "to_arrow"])
def test_a_query_that_fails_on_its_data_is_told_in_its_own_words(
    bank: Warehouse, query: str, condition: str, line: int | None, words: str, read: str
) -> None:
    with bank.sql(query) as answer, pytest.raises(DefiniteError, match=condition) as raised:
        getattr(answer, read)()
    assert words in raised.value.what and _is_clean(raised.value)
    assert raised.value.where == (None if line is None else Location("query", line))


def test_a_name_that_is_not_there_is_told_with_those_that_are(bank: Warehouse) -> None:
    with pytest.raises(DefiniteError, match=r"`balances`.*Did you mean.*`balance`") as raised:
        bank.sql("SELECT balances FROM bank.accounts")
    assert _is_clean(raised.value)


def test_a_flow_that_fails_names_its_line_and_its_words(bank: Warehouse) -> None:
    with pytest.raises(FlowFailed, match=r"flow shares failed in job 1: \[DIVIDE_BY_ZERO\]") as raised:
        bank.refresh()
    assert raised.value.what.endswith("in a.balance /* per branch */ / a.branch") and _is_clean(raised.value)
    assert raised.value.where is not None and raised.value.where.file.endswith("bank.sql")
    assert raised.value.where.line == 4
    assert "`warehouse.resume()`" in str(raised.value.hint)


def _is_clean(error: HeadgateError) -> bool:
    told = str(error)
    return not any(mark in told for mark in ("headgate_view", "__", "getResult", "An error occurred", "ansi.enabled"))


@pytest.mark.parametrize(
    ("fragment", "found"),
    [
        ("`a__x` / `a__y`", (Location("f.sql", 11), "; in a.x\n / y")),
        ("x * y", (None, "; in x * y")),
        ("`__weight` * 2", (None, "")),
        ("upper ( `b_1` )", (Location("f.sql", 12), "; in upper(b)")),
        (None, (None, "")),
    ],
)
def test_a_part_of_a_text_is_found_though_its_names_changed(
    fragment: str | None, found: tuple[Location | None, str]
) -> None:
    where, place = _place(fragment, "SELECT\na.x\n / y, upper(b)", Location("f.sql", 10))
    assert (where, place) == (found[0], " ".join(found[1].split()) if place else found[1])


def test_names_of_headgates_own_are_left_out() -> None:
    said = (
        "`z` cannot be resolved. Did you mean [`headgate_view_7`.`a`, `__commit_at`, `p__store`]? in headgate_view_12"
    )
    assert without_own_names(said) == "`z` cannot be resolved. Did you mean [`a`, `p`.`store`]? in a table"
