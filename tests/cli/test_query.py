"""`headgate query` takes its text from anywhere, writes any format, and ends with a code that says what happened."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import cli, run
from headgate.cli.running import RunningService, announced
from headgate.errors import HeadgateError
from tests.cli.canned import ROWS, Canned, canned_service
from tests.waiting import PATIENCE, eventually

QUERY = "SELECT * FROM revenue"


@pytest.fixture
def service() -> Iterator[Canned]:
    with canned_service() as started:
        yield started


def query(service: Canned, *arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["query", "--url", service.url, *arguments], input=input)


def test_a_query_is_a_table_by_default(service: Canned) -> None:
    found = query(service, QUERY)
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        "item    total",
        "──────  ─────",
        "tea         3",
        "coffee      4",
        "(2 rows)",
    ]
    assert found.stderr == ""


@pytest.mark.parametrize(
    ("content", "telling"),
    [
        (b"SELECT '\xff'", "not UTF-8 text"),
        (b"SELECT 1,\n '\0'", "q.sql:2: the query holds a NUL"),
        (b"x" * (1 << 20) + b"x", "longer than 1,048,576 characters"),
    ],
)
def test_a_file_that_can_be_no_query_is_told_as_that(
    service: Canned, tmp_path: Path, content: bytes, telling: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q.sql"
    file.write_bytes(content)
    assert run(["query", "--url", service.url, "-f", str(file)]) == 1
    said = capsys.readouterr().err
    assert telling in said and "mistake of headgate's own" not in said
    assert service.asked == []


def test_text_comes_from_the_argument_a_file_or_stdin(service: Canned, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("SELECT 2")
    query(service, "SELECT 1")
    query(service, "-f", str(file))
    query(service, "-f", "-", input="SELECT 3")
    query(service, input="SELECT 4")
    assert [asked["sql"] for asked in service.asked] == [f"SELECT {number}" for number in (1, 2, 3, 4)]


def test_freshness_is_handed_on(service: Canned) -> None:
    query(service, QUERY, "--max-staleness", "10m", "--deadline", "5s", "--when-stale", "serve", "--job", "3")
    asked = service.asked[0]
    assert (asked["max_staleness"], asked["deadline"], asked["when_stale"], asked["job"]) == ("10m", "5s", "serve", 3)


def test_rows_in_every_format(service: Canned) -> None:
    assert json.loads(query(service, QUERY, "--json").stdout) == ROWS.to_pylist()
    assert query(service, QUERY, "--format", "csv").stdout == '"item","total"\n"tea",3\n"coffee",4\n'
    assert pa.ipc.open_stream(query(service, QUERY, "--format", "arrow").stdout_bytes).read_all().equals(ROWS)
    parquet = query(service, QUERY, "--format", "parquet").stdout_bytes
    assert pq.read_table(io.BytesIO(parquet)).equals(ROWS)


def test_a_file_is_written_whole_or_not_at_all(service: Canned, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    assert query(service, QUERY, "--format", "csv", "-o", str(file)).exit_code == 0
    before = file.read_bytes()
    assert before.startswith(b'"item"')
    # A format that cannot hold the rows fails in the middle: what was there stays.
    service.rows = pa.table({"a": pa.array([None], pa.month_day_nano_interval())})
    assert query(service, QUERY, "--format", "parquet", "-o", str(file)).exit_code == 1
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_the_receipt_goes_to_stderr(service: Canned) -> None:
    found = query(service, QUERY, "--receipt")
    assert "(2 rows)" in found.stdout
    assert "bound     at most 0 s stale, within 5 s, else fail" in found.stderr
    assert "job       7, closed for this query: no job contains everything that shop has committed" in found.stderr
    assert "ranges    sales: 1 of 10 read ([1, 5)), 1 brought forward, 9 left behind" in found.stderr
    assert "platform  serving" in found.stderr
    assert "rows deleted at the source may still be here" in found.stderr
    found = query(service, QUERY, "--receipt", "--json")
    assert json.loads(found.stderr)["job"] == 7


def test_binary_formats_refuse_a_terminal(service: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["query", "--url", service.url, QUERY, "--format", "arrow"]) == 2
    assert service.asked == []


def test_contradictions_are_wrong_usage(service: Canned, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text(QUERY)
    assert query(service, QUERY, "-f", str(file)).exit_code == 2
    assert query(service, QUERY, "--json", "--format", "csv").exit_code == 2
    assert query(service, "-f", str(tmp_path / "none.sql")).exit_code == 2


@pytest.mark.parametrize(
    ("status", "kind", "code"), [(504, "TooStale", 3), (400, "DefiniteError", 1), (503, "WarehouseBusy", 4)]
)
def test_what_the_service_refuses_is_told(
    service: Canned, status: int, kind: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    service.failure = (status, {"kind": kind, "what": "it cannot be", "where": "query:1", "hint": "ask otherwise"})
    assert run(["query", "--url", service.url, QUERY]) == code
    assert capsys.readouterr().err.splitlines() == ["error: query:1: it cannot be", "hint: ask otherwise"]


def test_a_service_that_opens_its_warehouse_is_asked_again_unless_there_is_a_deadline(
    service: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.failure = (503, {"kind": "NotReady", "what": "the warehouse is being opened", "hint": "ask again"})
    assert run(["query", "--url", service.url, QUERY, "--deadline", "5s"]) == 4
    assert len(service.asked) == 1

    def pause(_: float) -> None:
        service.failure = None

    monkeypatch.setattr("headgate.cli.reaching.time.sleep", pause)
    assert query(service, QUERY).exit_code == 0
    assert len(service.asked) == 3


def test_a_service_that_is_not_there_is_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", "--url", "http://127.0.0.1:1", QUERY]) == 4
    assert "headgate run" in capsys.readouterr().err


def test_the_projects_own_service_is_found_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headgate.yml").write_text("name: shop\nstorage: ./warehouse\n")
    (tmp_path / "warehouse" / "_headgate").mkdir(parents=True)
    with canned_service(token="secret") as service:
        with announced(str(tmp_path / "warehouse"), RunningService(service.url, os.getpid(), "secret")):
            found = CliRunner().invoke(cli, ["query", "--project", str(tmp_path), QUERY])
            assert (found.exit_code, found.stderr) == (0, "")
        refused = query(service, QUERY)
        assert isinstance(refused.exception, HeadgateError)
        monkeypatch.setenv("HEADGATE_TOKEN", "secret")
        assert query(service, QUERY).exit_code == 0


def test_a_warm_query_imports_no_spark(service: Canned) -> None:
    program = (
        "import sys\nfrom headgate.cli.main import run\n"
        f"assert run(['query', '--url', {service.url!r}, 'SELECT 1', '--receipt']) == 0\n"
        "assert not {'pyspark', 'pandas', 'prompt_toolkit', 'pydantic'} & set(sys.modules), sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_a_query_quietly(service: Canned) -> None:
    service.delay = 600.0
    started = subprocess.Popen(
        [sys.executable, "-m", "headgate", "query", "--url", service.url, QUERY],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: bool(service.asked))
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=PATIENCE)
    assert started.returncode == 130
    assert (out, err.strip()) == (b"", b"")
