"""The blocks of the pages that no reader types from top to bottom are run too: Python, requests, commands, what is asked of a database."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.capture.postgres.private_server import PostgresServer
from headgate.cli.main import run
from headgate.producing import Connection
from headgate.runtime.spark.sessions import SparkSessions
from tests.cli.processes import headgate as command
from tests.cli.test_service import stop
from tests.docs.commands import calls, command_lines
from tests.docs.markdown import ROOT, Block, blocks

DOCS = ROOT / "docs"
REVENUE = "CREATE MATERIALIZED VIEW revenue AS SELECT item, SUM(amount) AS total FROM etl.sales GROUP BY item;"


def python(page: str) -> list[Block]:
    return blocks("python", pages=(DOCS / page,))


def execute(block: Block, names: dict[str, object]) -> None:
    """Runs a block, and closes the connections that it opens: those without a name after their statement."""
    for statement in ast.parse(block.text).body:
        if isinstance(statement, ast.Expr):
            found = eval(compile(ast.Expression(statement.value), str(block), "eval"), names)
            if isinstance(found, Connection):
                found.close()
        else:
            exec(compile(ast.Module([statement], []), str(block), "exec"), names)
    for value in names.values():
        if isinstance(value, Connection):
            value.close()


@pytest.fixture
def project(spark_sessions: SparkSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of the page about producers, with a flow; the working folder is its folder."""
    sources, _ = blocks("yaml", pages=(DOCS / "producers.md",))
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "revenue.sql").write_text(REVENUE, encoding="utf-8")
    head = "name: shop\nstorage: ./warehouse\nlibraries: [{glob: {include: flows/**}}]\n"
    (tmp_path / "headgate.yml").write_text(head + sources.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "headgate.yml"


def test_what_a_producer_writes(project: Path) -> None:
    rows = [(number, 7, 10) for number in range(2, 5)]
    arrow_table = pa.table({"sale": [5, 6], "item": [8, 8], "amount": [1, 1]})
    first, policies = python("producers.md")
    execute(first, {"rows": rows, "arrow_table": arrow_table})
    execute(policies, {"headgate": headgate, "project": project})
    with headgate.open(project) as warehouse, warehouse.sql("SELECT * FROM revenue ORDER BY item") as answer:
        assert [tuple(row) for row in answer.collect()] == [(7, 130), (8, 2)]


def test_a_procedure_is_told(project: Path) -> None:
    *_, block = python("queries.md")
    sent: list[tuple[int, int]] = []

    def send(rows: list[object], job: int) -> None:
        sent.append((len(rows), job))

    class Opened:
        """Uses the warehouse that the block opens before it is closed."""

        Procedure = headgate.Procedure

        @staticmethod
        def open(*arguments: object, **options: object) -> None:
            with headgate.open(*arguments, **options) as warehouse:  # type: ignore[arg-type]
                with headgate.connect(warehouse, tables=["sales"]) as connection:
                    connection.cursor().execute("INSERT INTO sales VALUES (1, 7, 100)")
                    connection.commit()
                warehouse.refresh()

    (project.parent / "flows" / "revenue.sql").write_text(REVENUE.replace("revenue", "store_sales"), encoding="utf-8")
    execute(block, {"send": send, "headgate": Opened})
    assert sent == [(1, 1)]


def test_a_service_in_python_its_client_and_its_requests(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The client's block and the requests are used while the block with the server runs: where it prints its address."""
    server, client = python("service.md")
    (requests,) = (block for block in blocks("", pages=(DOCS / "service.md",)) if block.text.startswith("curl"))
    with headgate.connect(project, tables=["sales"]) as connection:
        connection.cursor().execute("INSERT INTO sales VALUES (1, 7, 100)")
        connection.commit()
    answers: list[str] = []

    def use(url: str) -> None:
        execute(patient(replaced(client, "http://127.0.0.1:8765", url)), {})
        for line in command_lines(patient(replaced(requests, "http://127.0.0.1:8765", url))):
            done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60, check=True)
            answers.append(done.stdout)

    execute(replaced(server, "port=8765", "port=0"), {"print": use})
    shown = capsys.readouterr().out
    assert "total: [[100]]" in shown and "'max_staleness': 600.0" in shown
    rows, empty, status, setting = answers
    assert json.loads(rows)["rows"] == [[7, 100]]
    assert empty == ""
    assert pa.ipc.open_stream(Path("revenue.arrows").read_bytes()).read_all().to_pylist() == [{"item": 7, "total": 100}]
    assert "etl" in json.loads(status)["sources"]
    assert "5m" in setting


def replaced(block: Block, shown: str, used: str) -> Block:
    assert shown in block.text
    return Block(block.page, block.line, block.language, block.kind, block.text.replace(shown, used))


def patient(block: Block) -> Block:
    """The deadline that is shown is for a machine that has nothing else to do."""
    return replaced(block, '"5s"', '"10m"')


def typed(page: str, start: str) -> Iterator[list[str]]:
    """What a page has `headgate` given, in the order of the page, where it begins so."""
    for block in blocks("", "sh", pages=(DOCS / page,)):
        for line in command_lines(block):
            yield from (found for found in calls(line.partition("  #")[0]) if found[0] == start)


@pytest.mark.slow
def test_a_service_for_others_is_backed_up_and_restored(tmp_path: Path) -> None:
    """The commands as they stand, except for folders that need root, and the port."""
    place = tmp_path / "shop"
    assert run(["init", str(place)]) == 0
    secret = tmp_path / "token"
    secret.write_text("open sesame\n", encoding="utf-8")
    secret.chmod(0o600)
    own: Callable[[str], str] = lambda text: (  # noqa: E731
        text.replace("/run/secrets/headgate", str(secret))
        .replace("/var/backups/headgate", str(tmp_path))
        .replace("/etc/headgate", str(place))
    )
    (listen,) = (found for found in typed("service.md", "run") if len(found) > 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate", *map(own, listen), "--project", str(place), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("w"),
        text=True,
    )
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline() or "{}")
        assert told, (tmp_path / "log").read_text()
        port = told["url"].rpartition(":")[2]
        address = f"http://127.0.0.1:{port}/v1/status"
        asked = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: warehouse.example.com"]
        assert subprocess.run([*asked, address], capture_output=True, text=True).stdout == "401"
        allowed = [*asked, "-H", "Authorization: Bearer open sesame", address]
        assert subprocess.run(allowed, capture_output=True, text=True).stdout == "200"
        subprocess.run([sys.executable, str(place / "sell.py")], check=True, timeout=120)
        backups = list(typed("operations.md", "backup"))
        assert len(backups) == 2
        for arguments in [*backups, *typed("operations.md", "status")]:
            given = [*map(own, arguments)]
            given += [] if "--project" in given else ["--project", str(place)]
            done = command(*given)
            assert done.returncode == 0, done.stderr
    finally:
        code = stop(process)
    assert code == 0, (tmp_path / "log").read_text()
    (place / "warehouse").rename(tmp_path / "broken")
    (restore,) = typed("operations.md", "restore")
    done = command(*map(own, restore))
    assert done.returncode == 0, done.stderr
    done = command(
        "query", "SELECT SUM(sales) AS sales FROM revenue CURRENCY BOUND ANY", "--project", str(place), "--json"
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, [{"sales": 10}])


def test_what_is_asked_of_a_database(tmp_path: Path) -> None:
    """Statement by statement, as its owner, in a database that has what the page speaks of."""
    found = [block for name in ("capture.md", "operations.md") for block in blocks("sql", pages=(DOCS / name,))]
    assert len(found) == 3 and all(block.kind == "postgres" for block in found)
    with PostgresServer() as server:
        server.execute("CREATE ROLE headgate LOGIN")
        server.execute("CREATE DATABASE shop")
        with server.connect("shop") as connection:
            connection.execute("CREATE TABLE purchases (id int PRIMARY KEY, updated_at timestamptz)")
            connection.execute("CREATE TABLE lines (id int PRIMARY KEY)")
            connection.execute("SELECT pg_create_logical_replication_slot('headgate_shop_shop_db', 'pgoutput')")
            seen = []
            for block in found:
                for statement in re.sub(r"--.*", "", block.text).split(";"):
                    if statement.strip():
                        # The page's own text, as a reader would paste it.
                        done = connection.execute(statement.encode())
                        seen += done.fetchall() if done.description else []
    (slot, *_), dropped = seen[0], seen[1:]
    assert slot == "headgate_shop_shop_db" and len(dropped) == 1
