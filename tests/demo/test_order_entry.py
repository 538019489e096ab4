"""The demo as a command: its arguments, and what it shows on a machine without a PostgreSQL server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from examples.order_entry import __main__ as order_entry
from examples.order_entry import show
from examples.shop import __main__ as shop

from headgate.errors import ConfigError, EnvironmentProblem
from headgate.runtime.spark.sessions import SparkSessions

Captured = pytest.CaptureFixture[str]


def without_server() -> Path:
    raise EnvironmentProblem("there is no PostgreSQL server on this machine", hint="install the package postgresql")


def test_without_a_server_it_says_what_to_install_and_shows_the_shop(
    spark_sessions: SparkSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(order_entry, "server_binaries", without_server)
    # A copy keeps its warehouse beside it.
    folder = shutil.copytree(shop.PROJECT.parent, tmp_path / "examples" / "shop")
    monkeypatch.setattr(shop, "PROJECT", folder / "headgate.yml")
    assert order_entry.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("there is no PostgreSQL server on this machine. To see orders captured from one, install")
    assert "checked: store_sales at job 3 equals the flow run from scratch" in out
    assert (tmp_path / "demo-warehouse").is_dir()


@pytest.mark.parametrize(("right", "code"), [(True, 0), (False, 1)])
def test_its_exit_code_says_whether_the_numbers_were_right(
    right: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_entry, "server_binaries", lambda: Path("bin"))
    monkeypatch.setattr(show, "run", lambda seconds: right and seconds == 15)
    assert order_entry.main(["--seconds", "15"]) == code


def test_what_keeps_it_from_starting_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def fail(seconds: float) -> bool:
        raise ConfigError("the port is taken", hint="stop that program")

    monkeypatch.setattr(order_entry, "server_binaries", lambda: Path("bin"))
    monkeypatch.setattr(show, "run", fail)
    assert order_entry.main([]) == 1
    assert capsys.readouterr().err == "error: the port is taken\nhint: stop that program\n"


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_seconds_are_a_positive_number(text: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        order_entry.main([f"--seconds={text}"])
    assert ended.value.code == 2
    assert "--seconds" in capsys.readouterr().err
