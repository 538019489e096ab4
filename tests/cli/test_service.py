"""The first ten minutes, for real: a new project, its service, rows from another process, every command, and a clean end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.output import DummyOutput

from headgate.cli.main import run
from headgate.cli.options import Place
from headgate.cli.reaching import reach
from headgate.cli.running import NOTE, find_service
from headgate.cli.shell import Shell
from tests.cli.processes import headgate, sell, start, stop
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new project whose service runs; ten things are sold already."""
    project = tmp_path_factory.mktemp("projects") / "shop"
    assert run(["init", str(project)]) == 0
    with (project / "headgate.yml").open("a") as file:
        file.write("service: {answer_rows: 1000}\n")
    (project / "tmp").mkdir()
    process, _ = start(project, TMPDIR=str(project / "tmp"))
    try:
        sell(project)
        yield project
    finally:
        assert stop(process) == 0
    assert find_service(str(project / "warehouse")) is None
    assert not (project / "warehouse" / NOTE).exists()


def answered(project: Path, capfd: Captured, *arguments: str) -> object:
    """What a command answers as JSON; it must succeed, and say nothing else."""
    assert run([*arguments, "--project", str(project), "--json"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return json.loads(out)


def test_what_another_process_sold_is_in_the_answer(shop: Path, capfd: Captured) -> None:
    before = answered(shop, capfd, "query", "SELECT SUM(sales) AS sales FROM revenue")
    sell(shop)
    after = answered(shop, capfd, "query", "SELECT SUM(sales) AS sales FROM revenue")
    assert [before, after] == [[{"sales": 10}], [{"sales": 20}]]


@pytest.mark.skipif(
    shutil.which("psql") is None, reason="psql is not installed; .ci/run installs it, and fails without it"
)
def test_psql_is_answered_within_the_projects_limits(shop: Path, capfd: Captured) -> None:
    status = answered(shop, capfd, "status")
    assert isinstance(status, dict)

    def psql(*commands: str) -> subprocess.CompletedProcess[str]:
        each = [word for command in commands for word in ("-c", command)]
        arguments = ["psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", status["postgres"], *each]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=120)

    assert run(["query", "SELECT SUM(sales) AS sales FROM revenue", "--project", str(shop), "--json"]) == 0
    ((sales,),) = [each.values() for each in json.loads(capfd.readouterr().out)]
    done = psql("SELECT sum(sales)::bigint FROM revenue", r"\dm")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, str(sales)), done.stderr
    assert "public|revenue|materialized view" in done.stdout
    assert psql("SET dialect = spark", "SELECT count(*) FROM range(1001)").stdout.split() == ["SET", "1001"]
    assert psql("SET dialect = spark", "SELECT * FROM range(1000)").returncode == 0
    refused = psql("SET dialect = spark", "SELECT * FROM range(1001)")
    assert refused.returncode != 0 and "more than 1,000 rows" in refused.stderr


def test_an_answer_that_cannot_be_fresh_in_time_is_code_3(shop: Path, capfd: Captured) -> None:
    query = ["query", "SELECT * FROM revenue", "--project", str(shop)]
    assert run(query) == 0
    sell(shop)
    assert run([*query, "--deadline", "0s"]) == 3
    err = capfd.readouterr().err
    assert "error: no answer at most 0 s old could be made within 0 s" in err
    assert "WHEN STALE SERVE" in err
    assert run([*query, "--deadline", "0s", "--when-stale", "serve", "--receipt"]) == 0
    assert "missed    the deadline passed" in capfd.readouterr().err


def test_a_mistake_in_a_query_is_told_with_its_remedy(shop: Path, capfd: Captured) -> None:
    assert run(["query", "SELECT * FROM revenu", "--project", str(shop)]) == 1
    assert capfd.readouterr().err == "error: query:1:15: there is no table revenu\nhint: did you mean revenue?\n"


def test_every_command_answers(shop: Path, capfd: Captured) -> None:
    job = answered(shop, capfd, "refresh")
    status = answered(shop, capfd, "status")
    assert isinstance(job, dict) and isinstance(status, dict)
    assert {table["name"]: table["through"] for table in status["tables"]} == {
        "shop.sales": job["job"],
        "revenue": job["job"],
    }
    assert answered(shop, capfd, "resume") == {"failures": []}
    explained = answered(shop, capfd, "explain", "revenue")
    assert isinstance(explained, dict) and explained["is_incremental"]
    history = answered(shop, capfd, "history")
    assert isinstance(history, dict) and job["job"] in [each["id"] for each in history["jobs"]]
    for command in (["status"], ["history"], ["explain", "revenue"]):
        assert run([*command, "--project", str(shop)]) == 0
        assert "revenue" in capfd.readouterr().out


def test_a_setting_is_changed_while_the_service_runs(shop: Path, capfd: Captured) -> None:
    assert run(["set", "retention.jobs", "many", "--project", str(shop)]) == 1
    assert "error: retention.jobs must be a whole number" in capfd.readouterr().err
    assert run(["set", "retention.jobz", "7", "--project", str(shop)]) == 1
    assert "hint: did you mean retention.jobs?" in capfd.readouterr().err
    assert run(["set", "retention.jobs", "7", "--project", str(shop)]) == 0
    assert capfd.readouterr().out == "retention.jobs is 7 from now on\n"
    found = answered(shop, capfd, "settings")
    assert isinstance(found, dict) and found["settings"]["retention.jobs"] == 7
    assert run(["settings", "--project", str(shop)]) == 0
    assert "changed retention.jobs from 20 to 7" in capfd.readouterr().out
    assert run(["set", "retention.jobs", "--reset", "--project", str(shop)]) == 0
    capfd.readouterr()
    found = answered(shop, capfd, "settings")
    assert isinstance(found, dict) and found["settings"]["retention.jobs"] == 20
    assert run(["set", "retention.jobs", "--reset", "--project", str(shop)]) == 0
    assert capfd.readouterr().out == "retention.jobs is 20 from now on\n"


def test_changed_files_are_applied_while_the_service_runs(shop: Path, capfd: Captured) -> None:
    file = shop / "flows" / "dear.sql"
    file.write_text("CREATE MATERIALIZED VIEW dear AS SELECT item, total FROM revenue WHERE total > 0;\n")
    asked = ["apply", "--project", str(shop)]
    assert run([*asked, "--dry-run", "--diff"]) == 0
    out = capfd.readouterr().out
    assert (
        "+ dear  new: built from " in out
        and "; rows added " in out
        and ", removed 0  [" in out
        and "1 other flow untouched\n" in out
    )
    assert run(["query", "SELECT COUNT(*) AS n FROM dear", "--project", str(shop)]) == 1
    assert run([*asked, "--yes"]) == 0
    assert capfd.readouterr().out.endswith("\napplied\n")
    assert answered(shop, capfd, "query", "SELECT COUNT(*) > 0 AS found FROM dear") == [{"found": True}]
    assert run([*asked, "--yes"]) == 0
    assert capfd.readouterr().out == "nothing has changed\n"
    file.write_text(
        "CREATE MATERIALIZED VIEW dear AS SELECT itme FROM revenue;\nCREATE MATERIALIZED VIEW cheap AS SELEC 1;\n"
    )
    assert run([*asked, "--yes"]) == 1
    err = capfd.readouterr().err
    assert f"error: {file}:1:" in err and f"error: {file}:2:" in err


def test_a_hangup_has_the_service_apply_changed_files(shop: Path, capfd: Captured) -> None:
    service = find_service(str(shop / "warehouse"))
    assert service is not None
    (shop / "flows" / "dear.sql").write_text("CREATE MATERIALIZED VIEW dear AS SELECT item FROM revenue;\n")
    os.kill(service.pid, signal.SIGHUP)
    eventually(lambda: "event=applied" in (shop / "log").read_text())
    assert "event=apply ~ dear" in (shop / "log").read_text() or "event=apply + dear" in (shop / "log").read_text()
    assert run(["query", "SELECT item FROM dear", "--project", str(shop)]) == 0
    (shop / "flows" / "dear.sql").unlink()
    assert run(["apply", "--yes", "--project", str(shop)]) == 0
    assert "- dear  removed: " in capfd.readouterr().out


def test_the_shell_knows_the_tables(shop: Path, capfd: Captured) -> None:
    with reach(Place(shop)) as client:
        shell = Shell(client, history=InMemoryHistory(), output=DummyOutput())
        shell.answer("\\d revenue")
        shell.answer("SET max_staleness = '1h'; SELECT COUNT(*) AS items FROM revenue;")
        shell.answer("\\receipt")
    out = capfd.readouterr().out
    assert "total   decimal(20,2)" in out
    assert "max_staleness  1h" in out
    assert "bound     at most 1 h stale" in out


def test_one_process_owns_the_warehouse(shop: Path, capfd: Captured) -> None:
    note = shop / "warehouse" / NOTE
    hidden = note.rename(note.with_name("hidden"))
    try:
        assert run(["query", "SELECT 1", "--project", str(shop)]) == 4
    finally:
        hidden.rename(note)
    err = capfd.readouterr().err
    assert "is in use by" in err
    assert "hint: wait until that process is done, or stop it" in err
    assert run(["reset", "--yes", "--project", str(shop)]) == 4
    assert "a service has the warehouse open" in capfd.readouterr().err


def test_a_running_service_makes_its_backup_itself(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.chdir(shop)
    copy = shop / "copy"
    made = answered(shop, capfd, "backup", "copy")
    assert isinstance(made, dict)
    assert made["folder"] == str(copy)
    assert made["files"] == len(json.loads((copy / "manifest.json").read_text())["files"]) > 0


def test_only_its_user_can_read_what_the_service_writes(shop: Path, capfd: Captured) -> None:
    answered(shop, capfd, "refresh")
    backup = shop / "private"
    answered(shop, capfd, "backup", str(backup))
    temporary = list((shop / "tmp").iterdir())
    assert any(path.name.startswith("headgate-spark-") for path in temporary)
    assert (shop / "warehouse" / NOTE).exists() and (backup / "manifest.json").exists()
    roots = [shop / "warehouse", backup, *temporary]
    found = [path for root in roots for path in (root, *root.rglob("*"))]
    assert len(found) > 50
    # With roles other users produce, too: they reach the socket by its path, and cannot list the folder around it.
    (socket,) = [path for path in found if path.is_socket()]
    reached = {socket: 0o666, socket.parent: 0o711}
    shown = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
    open_to_others = {path: f"{mode:o}" for path, mode in shown.items() if mode & 0o077 and reached.get(path) != mode}
    assert open_to_others == {} and socket.parent.parent == shop / "tmp"


def test_a_port_that_is_taken_is_told_before_spark_starts(shop: Path) -> None:
    service = find_service(str(shop / "warehouse"))
    assert service is not None
    done = headgate("run", "--project", str(shop), "--port", service.url.rpartition(":")[2])
    assert (done.returncode, done.stdout) == (1, "")
    assert "another program may have the port" in done.stderr


def test_beyond_this_machine_a_token_is_needed(shop: Path) -> None:
    command = ("run", "--project", str(shop), "--port", "0", "--host", "0.0.0.0")
    done = headgate(*command, HEADGATE_TOKEN="")
    assert done.returncode == 1
    assert "without a token" in done.stderr
    empty = shop / "token"
    empty.write_text("\n")
    done = headgate(*command, "--token-file", str(empty))
    assert done.returncode == 1
    assert "the token file is empty" in done.stderr


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose warehouse was opened by a query, and closed again."""
    project = tmp_path_factory.mktemp("projects") / "shop"
    assert run(["init", str(project)]) == 0
    output = ("--format", "csv", "-o", str(project / "answer.csv"))
    done = headgate("query", "SELECT COUNT(*) AS items FROM revenue", "--project", str(project), *output)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == "no service runs for this project (headgate run): opening its warehouse takes a while\n"
    return project


def test_without_a_service_a_command_opens_the_warehouse_itself(closed: Path) -> None:
    assert (closed / "answer.csv").read_text() == '"items"\n0\n'
    assert not (closed / "warehouse" / NOTE).exists()


def test_without_a_service_what_opening_would_do_is_shown_before(closed: Path) -> None:
    file = closed / "flows" / "dear.sql"
    file.write_text("CREATE MATERIALIZED VIEW dear AS SELECT item, total FROM revenue WHERE total > 100;\n")
    try:
        done = headgate("apply", "--dry-run", "--project", str(closed))
    finally:
        file.unlink()
    assert done.returncode == 0, done.stderr
    assert "+ dear  new: built from " in done.stdout and "applied" not in done.stdout
    assert not (closed / "warehouse" / "dear").exists()


def test_a_warehouse_is_backed_up_deleted_and_restored(closed: Path, capfd: Captured) -> None:
    backup = closed.parent / "backup"
    made = answered(closed, capfd, "backup", str(backup))
    assert isinstance(made, dict) and made["files"] > 0
    assert run(["backup", str(backup), "--project", str(closed)]) == 1
    assert "is not empty" in capfd.readouterr().err
    assert run(["restore", str(backup), "--project", str(closed)]) == 1
    assert "is not empty" in capfd.readouterr().err
    gone = answered(closed, capfd, "reset", "--yes")
    assert isinstance(gone, dict) and len(gone["deleted"]) == 2
    found = answered(closed, capfd, "restore", str(backup))
    assert isinstance(found, dict)
    assert (found["job"], found["files"], found["bytes"]) == (made["job"], made["files"], made["bytes"])
    assert [source["name"] for source in found["sources"]] == ["shop"]
    assert (closed / "warehouse" / "revenue" / "_delta_log").is_dir()
