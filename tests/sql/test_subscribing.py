"""SUBSCRIBE as it is written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headgate.errors import DefiniteError
from headgate.sql.subscribing import Subscribe, parse_subscribe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SUBSCRIBE TO totals", Subscribe("totals")),
        ("subscribe totals;", Subscribe("totals")),
        ("/* first */ Subscribe To bank.accounts As Of 12", Subscribe("bank.accounts", "12")),
        ("SUBSCRIBE TO `odd table` AS OF '12-00ff00ff'", Subscribe("odd table", "12-00ff00ff")),
        ("SUBSCRIBE TO to", Subscribe("to")),
        ("SUBSCRIBE TO t AS OF 3 CURRENCY BOUND 10 SEC", Subscribe("t", "3", timedelta(seconds=10))),
        ("SUBSCRIBE TO t CURRENCY BOUND ANY;", Subscribe("t", None, "any")),
        ("SELECT subscribe FROM t", None),
        ("SELECT 'SUBSCRIBE TO t'", None),
        ("SELECT 1", None),
    ],
)
def test_a_subscription_is_read(text: str, expected: Subscribe | None) -> None:
    assert parse_subscribe(text) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SUBSCRIBE", "names no table"),
        ("SUBSCRIBE TO", "names no table"),
        ("SUBSCRIBE TO t WHERE x > 1", "unexpected WHERE"),
        ("SUBSCRIBE TO t AS OF", "unexpected AS"),
        ("SUBSCRIBE TO a, b", "unexpected ,"),
        ("SUBSCRIBE TO t DEADLINE 5 SEC", "no deadline"),
    ],
)
def test_what_is_wrong_with_a_subscription_is_told(text: str, what: str) -> None:
    with pytest.raises(DefiniteError, match=what) as problem:
        parse_subscribe(text)
    assert problem.value.hint
