"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.runtime.spark.sessions import SparkSessions

README = Path(__file__).parents[1] / "README.md"


def test_the_example_in_python_runs(
    spark_sessions: SparkSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(r"\|\s*tea\s*\|\s*7\.00\s*\|", printed)
    assert "0 s stale on arrival: met" in printed
    before, after = re.findall(r"Row\(item='tea', total=Decimal\('(.*?)'\)\)", printed)
    assert (before, after) == ("7.00", "4.00")
