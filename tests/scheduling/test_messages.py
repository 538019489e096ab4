"""What is told about a wrong query or flow: its place, the user's own words, and nothing of headgate's or Spark's inside."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from headgate import Warehouse
from headgate.errors import DefiniteError
from headgate.runtime.spark.sessions import SparkSessions
from tests.scheduling.bank import open_bank

WRONG = [
    ("SELECT idd FROM bank.accounts", "1:8", "idd"),
    ("SELECT id,\n  balanse\nFROM bank.accounts", "2:3", "balanse"),
    ("SELECT a.nothing FROM bank.accounts a", "1:8", "nothing"),
    ("SELECT id FROM bank.accounts\nWHERE branch = nowhere", "2:16", "nowhere"),
    ("SELECT id FROM bank.acounts", "1:16", "acounts"),
    ("SELECT id FROM\n\n  bank.accounts JOIN bank.branches b ON accounts.id = b.idd", "3:", "idd"),
    ("SELECT branch FROM bank.accounts, bank.branches", "1:8", "branch"),
    ("SELECT SUM(balance) AS s, branch FROM bank.accounts", "1:", "branch|GROUP BY"),
    ("SELECT id FROM bank.accounts WHERE SUM(balance) > 1", "1:", "sum|aggregate"),
    ("SELECT id + array(1) AS x FROM bank.accounts", "1:8", "array"),
    ("SELECT nothing(id) AS x FROM bank.accounts", "1:8", "nothing"),
    ("SELECT id\nFROM bank.accounts WHERE id >", "2:", "end of input|SQL"),
    ("SELECT id FROM bank.accounts GROUP BY", "1:38", "end of input"),
    ("SELECT (id FROM bank.accounts", "1:", "SQL"),
    ("SELECT id, 'open FROM bank.accounts", "1:12", "SQL"),
    ("SELECT id FROM bank.accounts UNION SELECT branch, name FROM bank.branches", "1:", "columns"),
    ("SELECT id FROM bank.accounts WHERE id IN (SELECT branch, name FROM bank.branches)", "1:", "columns|IN"),
    ("SELECT SUM(balance) OVER w AS s FROM bank.accounts", "1:", "w"),
    ("FROM bank.accounts |> SELECT idd", "1:30", "idd"),
    ("FROM bank.accounts\n|> WHERE id > 'x' |> SELEKT id", "2:", "SELEKT"),
    ("SELECT id FROM bank.accounts WHERE EXISTS (SELECT 1 FROM bank.branches WHERE nowhere = 1)", "1:78", "nowhere"),
    ("WITH w AS (SELECT id FROM bank.accounts) SELECT branch FROM w", "1:49", "branch"),
]
INSIDE = re.compile(
    r"headgate_view|\b\w*__(?!commit_at)|hg_|SQLSTATE|\[[A-Z_.]+\]|:0\b|\bline \d|\bpos \d|#\d|SubqueryAlias|'Project"
)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_bank(tmp_path_factory.mktemp("bank"), "") as opened:
        yield opened


def check(error: DefiniteError, file: str, place: str, words: str) -> None:
    told = str(error)
    assert re.match(rf"{file}:{place}", told), told
    assert re.search(words, told), told
    assert not INSIDE.search(told), told
    assert "\n" not in told, told


@pytest.mark.parametrize(("sql", "place", "words"), WRONG)
def test_a_wrong_query_is_told_by_its_place_and_words(bank: Warehouse, sql: str, place: str, words: str) -> None:
    with pytest.raises(DefiniteError) as raised:
        bank.sql(sql).collect()
    check(raised.value, "query", place, words)


@pytest.mark.parametrize(("sql", "place", "words"), WRONG)
def test_a_wrong_flow_is_told_by_its_place_and_words(bank: Warehouse, sql: str, place: str, words: str) -> None:
    with pytest.raises(DefiniteError) as raised:
        bank.flow("wrong", sql)
    check(raised.value, "flow wrong", place, words)


@pytest.mark.parametrize(
    ("name", "sql", "told"),
    [
        (
            "wrong",
            "SELECT id, branch AS x,\n  balance AS X FROM bank.accounts",
            "flow wrong:2:3: .* called 'X', at flow wrong:1:12",
        ),
        ("wrong", "SELECT 1 AS a; SELECT 2 AS b", "flow wrong:1:16: expected one query|expected CREATE"),
        ("wrong", "  ", "flow wrong:1: there is no query"),
        ("a b", "SELECT 1 AS a", "flow a b: a flow cannot be called a b"),
    ],
)
def test_what_only_a_flow_can_have_wrong_is_told_too(bank: Warehouse, name: str, sql: str, told: str) -> None:
    with pytest.raises(DefiniteError, match=told):
        bank.flow(name, sql)
