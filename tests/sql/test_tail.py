"""The tail of a query and the settings of a session."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import DefiniteError
from headgate.sql.tail import ANY, FreshnessClause, SetStatement, parse_setting, split_tail

MINUTES = timedelta(minutes=10)
SECONDS = timedelta(seconds=5)


@pytest.mark.parametrize(
    ("text", "query", "tail"),
    [
        ("SELECT 1 CURRENCY BOUND 10 MIN", "SELECT 1", FreshnessClause(MINUTES)),
        ("SELECT 1 currency bound 10 minutes;", "SELECT 1", FreshnessClause(MINUTES)),
        ("SELECT 1\n-- why\nCURRENCY BOUND '10m' ; -- end", "SELECT 1\n-- why", FreshnessClause(MINUTES)),
        ("SELECT 1 CURRENCY BOUND ANY", "SELECT 1", FreshnessClause(ANY)),
        ("SELECT 1 CURRENCY BOUND 0.3 SEC", "SELECT 1", FreshnessClause(timedelta(milliseconds=300))),
        (
            "SELECT 1 CURRENCY BOUND 0.3s DEADLINE '1.5s'",
            "SELECT 1",
            FreshnessClause(timedelta(seconds=0.3), timedelta(seconds=1.5)),
        ),
        ("SELECT 1 CURRENCY BOUND 0 DEADLINE 5 SEC", "SELECT 1", FreshnessClause(timedelta(0), SECONDS)),
        ("SELECT 1 DEADLINE 5s /* a */ WHEN STALE Serve", "SELECT 1", FreshnessClause(None, SECONDS, "serve")),
        (
            "SELECT 1 WHEN STALE WAIT CURRENCY BOUND 10M DEADLINE 5000MS",
            "SELECT 1",
            FreshnessClause(MINUTES, SECONDS, "wait"),
        ),
        ("SELECT 1 DEADLINE 1.5 HOURS", "SELECT 1", FreshnessClause(deadline=timedelta(minutes=90))),
        ("SELECT 1 DEADLINE 2D", "SELECT 1", FreshnessClause(deadline=timedelta(days=2))),
        ("SELECT 1 AS deadline DEADLINE 5 SEC", "SELECT 1 AS deadline", FreshnessClause(deadline=SECONDS)),
        ("SELECT 1 DEADLINE DEADLINE 5 SEC", "SELECT 1 DEADLINE", FreshnessClause(deadline=SECONDS)),
        ("SELECT * FROM t `DEADLINE` DEADLINE 5 SEC", "SELECT * FROM t `DEADLINE`", FreshnessClause(deadline=SECONDS)),
        (
            "SELECT CASE WHEN stale THEN 1 END FROM t WHEN STALE FAIL",
            "SELECT CASE WHEN stale THEN 1 END FROM t",
            FreshnessClause(when_stale="fail"),
        ),
    ],
)
def test_the_tail_is_split_off(text: str, query: str, tail: FreshnessClause) -> None:
    assert split_tail(text) == (query, tail)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 AS deadline",
        "SELECT * FROM t deadline",
        "SELECT * FROM t WHERE x = 'CURRENCY BOUND 10 MIN'",
        "SELECT 1 -- CURRENCY BOUND 10 MIN",
        "SELECT 1 /* DEADLINE 5 SEC */;",
        "SELECT currency bound FROM t",
        "FROM t SELECT currency bound",
        "SELECT stale, deadline, t.bound FROM t ORDER BY deadline",
        "SELECT CASE WHEN stale THEN deadline END FROM t",
        'SELECT "DEADLINE 5 SEC"',
        "",
    ],
)
def test_names_strings_and_comments_are_no_tail(text: str) -> None:
    assert split_tail(text) == (text, FreshnessClause())


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("SELECT 1\nDEADLINE 5 SEC\nDEADLINE 6 SEC", 3, "DEADLINE is given twice"),
        ("SELECT deadline FROM t\nDEADLINE 5 SEC WHEN STALE FAIL DEADLINE 6 SEC", 2, "DEADLINE is given twice"),
        ("SELECT 1\nCURRENCY BOUND 10 PARSECS", 2, "PARSECS is not a unit"),
        ("SELECT 1 DEADLINE 5X", 1, "X is not a unit"),
        ("SELECT 1 DEADLINE 5", 1, "5 has no unit"),
        ("SELECT 1 CURRENCY BOUND 10 WHEN STALE FAIL", 1, "10 has no unit"),
        ("SELECT 1 DEADLINE -5 SEC", 1, "not negative"),
        ("SELECT 1 DEADLINE '5 parsecs'", 1, "not a duration"),
        ("SELECT 1 DEADLINE 99999999999999 DAYS", 1, "too long"),
        ("SELECT 1 CURRENCY BOUND", 1, "needs a duration"),
        ("SELECT 1 DEADLINE ANY", 1, "needs a duration, not ANY"),
        ("SELECT 1 WHEN STALE PANIC", 1, "PANIC"),
        ("SELECT * FROM t\nCURRENCY BOUND 10 MIN\nWHERE x", 3, "unexpected WHERE"),
        ("SELECT * FROM t CURRENCY BOUND 10 MIN WHERE x DEADLINE 5 SEC", 1, "unexpected WHERE"),
        ("SELECT * FROM (SELECT 1 CURRENCY BOUND 10 MIN)", 1, r"unexpected \)"),
        ("CURRENCY BOUND 10 MIN", 1, "no query"),
    ],
)
def test_a_mistake_in_the_tail_names_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(DefiniteError, match=what) as mistake:
        split_tail(text)
    assert mistake.value.where is not None
    assert mistake.value.where.line == line
    assert mistake.value.hint


@given(
    st.permutations(
        [
            ("CURRENCY BOUND 10 MIN", FreshnessClause(MINUTES)),
            ("DEADLINE 5 SEC", FreshnessClause(None, SECONDS)),
            ("WHEN STALE SERVE", FreshnessClause()),
        ]
    ),
    st.integers(0, 3),
    st.sampled_from(["SELECT 1", "SELECT deadline FROM t deadline", "SELECT ';' -- DEADLINE 1 SEC\n FROM t"]),
    st.sampled_from(["", ";", " ; -- bye", "\n/* bye */"]),
    st.booleans(),
)
def test_clauses_come_in_any_order_and_case(
    clauses: list[tuple[str, FreshnessClause]], count: int, query: str, end: str, lower: bool
) -> None:
    said = [clause for clause, _ in clauses[:count]]
    tail = "\n".join(said).lower() if lower else "  ".join(said)
    found = split_tail(f"{query} {tail}{end}")
    assert found[1] == FreshnessClause(
        MINUTES if "CURRENCY BOUND 10 MIN" in said else None,
        SECONDS if "DEADLINE 5 SEC" in said else None,
        "serve" if "WHEN STALE SERVE" in said else None,
    )
    assert found[0] == (query if said else f"{query} {end}")


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("SET max_staleness = '10m'", SetStatement("max_staleness", MINUTES)),
        ("set MAX_STALENESS = any;", SetStatement("max_staleness", ANY)),
        ("SET max_staleness = 'ANY'", SetStatement("max_staleness", ANY)),
        ("SET deadline = 5 SEC", SetStatement("deadline", SECONDS)),
        ("SET deadline TO '5s'", SetStatement("deadline", SECONDS)),
        ("SET when_stale = 'Serve'", SetStatement("when_stale", "serve")),
        ("SET when_stale = wait", SetStatement("when_stale", "wait")),
        ("RESET max_staleness", SetStatement("max_staleness")),
        (" -- all\n RESET ;", SetStatement(None)),
        ("SELECT 1", None),
        ("SHOW TABLES", None),
        ("", None),
    ],
)
def test_a_session_sets_what_a_tail_says(text: str, setting: SetStatement | None) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize(
    "text",
    [
        "SET spark.sql.ansi.enabled = false",
        "SET VAR x = 1",
        "SET",
        "SET deadline",
        "SET deadline = ANY",
        "SET deadline = 5",
        "SET deadline = '5s' x",
        "SET when_stale = 'never'",
        "SET `spark.x` = 1",
        "RESET spark.sql.ansi.enabled",
        "RESET deadline, when_stale",
    ],
)
def test_nothing_else_can_be_set(text: str) -> None:
    with pytest.raises(DefiniteError) as mistake:
        parse_setting(text)
    assert mistake.value.hint


def test_settings_add_up_until_they_are_reset() -> None:
    session = FreshnessClause()
    for statement in ("SET deadline = '5s'", "SET max_staleness = ANY", "SET deadline = '6s'"):
        setting = parse_setting(statement)
        assert setting is not None
        session = setting.applied_to(session)
    assert session == FreshnessClause(ANY, timedelta(seconds=6))
    assert SetStatement("deadline").applied_to(session) == FreshnessClause(ANY)
    assert SetStatement(None).applied_to(session) == FreshnessClause()
