"""The comparison of outputs finds what is wrong and overlooks what differs from run to run."""

from __future__ import annotations

import pytest

from tests.docs.terminal import is_as_shown

RECEIPT = """
bound     at most 10 min 0 s stale
achieved  2026-11-15 17:02:32.665+00:00, 9.3 s stale on arrival: met
source    shop: lag 9.3 s, position 1, not asked
waited    0.151 s (read 0.151)
work      0 jobs, 0 rows
"""


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("", ""),
        ("ok\n", "ok\n"),
        (RECEIPT, RECEIPT.replace("9.3 s", "950 ms").replace("(read 0.151)", "(queue 0.002, spark 0.100, read 0.049)")),
        (RECEIPT, RECEIPT.replace("17:02:32.665", "18:59:00.000").replace("position 1", "position 12")),
        ("shop is open: http://127.0.0.1:8765 (so)", "shop is open: http://127.0.0.1:40123 (so)"),
        ("item   total\n─────  ─────\ntea    16.67\n", "item  total\n────  ─────\ntea    3.20\n"),
        ("first\n…\nlast", "first\na\nb\nlast"),
        ("first\n…\nlast", "first\nlast"),
        ("flow x  […/x.sql:2]", "flow x  [/tmp/a/x.sql:2]"),
        ("1 row", "1 row\n"),
    ],
)
def test_what_may_differ(shown: str, found: str) -> None:
    assert is_as_shown(shown, found)


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("", "something\n"),
        ("ok", ""),
        (RECEIPT, RECEIPT.replace(": met", ": missed")),
        (RECEIPT, RECEIPT.replace("0 jobs", "1 job")),
        (RECEIPT, RECEIPT + "warning   the clock\n"),
        ("sales\n─\n10", "sales\n─\n20"),
        ("first\n…\nlast", "first\na\nlast\nb"),
        ("flow x  […/x.sql:2]", "flow x  [/tmp/a/x.sql:3]"),
    ],
)
def test_what_may_not(shown: str, found: str) -> None:
    assert not is_as_shown(shown, found)
