"""What people at a desk use: following a table, asking what there is, notebooks, files; over HTTP, by the client and the command line."""

from __future__ import annotations

import io
import json
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import headgate.client
from headgate import Warehouse
from headgate.cli.main import cli
from headgate.client import Client, TableSubscription
from headgate.errors import ConfigError, SnapshotGone, TransientError, UnknownTable
from headgate.runtime.spark.sessions import SparkSessions
from headgate.service import Server, ServiceLimits
from headgate.warehouse.roles import Roles
from tests.scheduling.bank import deposit, open_bank
from tests.service.asking import ask
from tests.waiting import eventually


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_bank(tmp_path_factory.mktemp("followed"), retention={"jobs": 200}) as warehouse:
        deposit(warehouse, (1, 1, 10), (2, 2, 5))
        yield warehouse


@pytest.fixture(scope="module")
def server(bank: Warehouse) -> Iterator[Server]:
    with Server(bank, port=0, limits=ServiceLimits(subscriptions=2)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with headgate.client.connect(server.url) as client:
        yield client


def followed(subscription: TableSubscription, upto: int, state: Counter[tuple[object, ...]]) -> str:
    """Adds what comes until a job is reached; gives the position there."""
    for changes in subscription:
        for *row, weight in zip(*(column.to_pylist() for column in changes.rows.columns), strict=True):
            state[tuple(row)] += weight
        if changes.position is not None and changes.job >= upto:
            assert changes.data_timestamp is not None
            return changes.position
    raise AssertionError


def events(url: str, path: str, count: int, **headers: str) -> list[dict[str, str]]:
    """So many events, as any HTTP client reads them."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 0), timeout=60) as connection:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
        found: list[dict[str, str]] = [{}]
        with connection.makefile("rb") as lines:
            for line in lines:
                name, _, value = line.decode().strip().partition(": ")
                if name in ("event", "id", "data"):
                    found[-1][name] = value
                    if name == "data":
                        if len(found) == count:
                            return found
                        found.append({})
    raise AssertionError(found)


def test_a_client_follows_a_table_and_goes_on_where_it_was(client: Client, bank: Warehouse) -> None:
    state: Counter[tuple[object, ...]] = Counter()
    with client.subscribe("totals", max_staleness="1s") as subscription:
        assert [column["name"] for column in subscription.columns] == ["branch", "total", "__weight"]
        assert subscription.key == ["branch"] and subscription.table == "totals"
        position = followed(subscription, 1, state)
        assert +state == Counter({(1, 10): 1, (2, 5): 1})
        deposit(bank, (3, 1, 7))
        job = bank.refresh()
        position = followed(subscription, job, state)
        assert +state == Counter({(1, 17): 1, (2, 5): 1})
    assert subscription.position == position
    deposit(bank, (4, 9, 1))
    job = bank.refresh()
    with client.subscribe("totals", position) as subscription:
        followed(subscription, job, state)
        assert +state == Counter({(1, 17): 1, (2, 5): 1, (9, 1): 1})
    eventually(lambda: bank.status.subscriptions == 0)


def test_events_resume_by_the_last_ones_id(server: Server, bank: Warehouse) -> None:
    before = bank.refresh()
    deposit(bank, (10, 50, 3))
    job = bank.refresh()
    table, changes = events(server.url, f"/v1/subscribe/totals?as_of={before}", 2)
    assert table["event"] == "table" and json.loads(table["data"])["columns"][-1]["name"] == "__weight"
    told = json.loads(changes["data"])
    assert changes["event"] == "changes" and changes["id"].startswith(f"{job}-")
    assert told["job"] == job and told["complete"] and not told["snapshot"] and told["rows"] == [[50, 3, 1]]
    deposit(bank, (11, 50, 4))
    job = bank.refresh()
    _, changes = events(server.url, "/v1/subscribe/totals", 2, Last_Event_ID=changes["id"])
    assert sorted(json.loads(changes["data"])["rows"]) == [[50, 3, -1], [50, 7, 1]]
    eventually(lambda: bank.status.subscriptions == 0)


def test_what_cannot_be_followed_is_told_at_once(server: Server, client: Client, bank: Warehouse) -> None:
    assert ask(server.url, "GET", "/v1/subscribe/total").status == 400
    with pytest.raises(UnknownTable, match="did you mean totals"):
        client.subscribe("total")
    heard = ask(server.url, "GET", "/v1/subscribe/totals?as_of=99999")
    assert heard.status == 404 and "without AS OF" in heard.error["hint"]
    with pytest.raises(SnapshotGone, match="built anew"):
        client.subscribe("totals", "1-00000000")
    for wrong in ("as_of=never", "max_staleness=soon", "format=xml"):
        assert ask(server.url, "GET", f"/v1/subscribe/totals?{wrong}").status == 400, wrong
    with client.subscribe("totals"), client.subscribe("names"):
        heard = ask(server.url, "GET", "/v1/subscribe/totals")
        assert heard.status == 429 and "2 subscriptions" in heard.error["what"]
    heard = ask(server.url, "POST", "/v1/query", {"sql": "SUBSCRIBE TO totals"})
    assert heard.status == 400 and "GET /v1/subscribe" in heard.error["hint"]
    eventually(lambda: bank.status.subscriptions == 0)


def test_following_needs_a_role_that_can_read(bank: Warehouse) -> None:
    token = Roles(bank.project.storage).add("reader", "read")
    with Server(bank, port=0, token="secret") as server:
        assert ask(server.url, "GET", "/v1/subscribe/totals").status == 401
        with headgate.client.connect(server.url, token) as client, client.subscribe("totals") as subscription:
            assert subscription.table == "totals"
    Roles(bank.project.storage).remove("reader")


def test_a_subscription_hears_that_the_service_stops(bank: Warehouse) -> None:
    with Server(bank, port=0) as server, headgate.client.connect(server.url) as client:
        subscription = client.subscribe("totals", bank.refresh(), max_staleness="any")
        server.stop()
        with pytest.raises(TransientError, match=r"stopping|went away"):
            next(iter(subscription))
    assert bank.status.subscriptions == 0


def test_a_slow_client_is_left_and_holds_nothing(bank: Warehouse) -> None:
    with bank.source("bank").transaction() as transaction:
        for number in range(1_000, 9_000):
            transaction.insert("branches", {"branch": number, "name": "n" * 2_000})
    start = bank.newest_job
    bank.refresh()
    with Server(bank, port=0, limits=ServiceLimits(client=timedelta(milliseconds=300))) as server:
        place = urlsplit(server.url)
        with socket.create_connection((str(place.hostname), place.port or 0)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            path = f"/v1/subscribe/names?as_of={start}"
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            eventually(lambda: bank.status.subscriptions == 1)
            eventually(lambda: bank.status.subscriptions == 0)


def test_the_command_line_writes_changes(server: Server, bank: Warehouse) -> None:
    before = bank.refresh()
    deposit(bank, (20, 60, 3))
    bank.refresh()
    arguments = ["subscribe", "totals", "--url", server.url, "--as-of", str(before), "--jobs", "1"]
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0 and f"{before + 1:>6}  +1  branch=60  total=3\n" in shown.stdout, shown.output
    assert f"headgate subscribe totals --as-of {before + 1}-" in shown.stderr
    lines = CliRunner().invoke(cli, [*arguments, "--json"]).stdout.splitlines()
    first, last = map(json.loads, lines)
    assert first == {"job": before + 1, "weight": 1, "row": {"branch": 60, "total": 3}}
    assert last["position"].startswith(f"{before + 1}-") and not last["snapshot"]


def rows(answer: headgate.Answer) -> list[tuple[object, ...]]:
    with answer:
        return [tuple(row) for row in answer.collect()]


def test_the_warehouse_tells_of_itself_on_every_surface(server: Server, client: Client, bank: Warehouse) -> None:
    bank.refresh()
    tables = {row[0]: row for row in rows(bank.sql("SHOW TABLES;"))}
    assert set(tables) == set(bank.tables) and tables["totals"][1:3] == ("flow", bank.newest_job)
    assert tables["bank.accounts"][1] == "source" and tables["totals"][4] == len(rows(bank.sql("SELECT * FROM totals")))
    with client.sql("show tables") as reply:
        assert {row["table"] for row in reply.rows()} == set(tables) and reply.receipt is None
    shown = CliRunner().invoke(cli, ["query", "SHOW FLOWS", "--url", server.url, "--format", "csv"])
    assert '"totals","materialized view",true,"bank.accounts",' in shown.stdout, shown.output
    assert rows(bank.sql("DESCRIBE totals")) == [("branch", "int", "key"), ("total", "bigint", None)]
    assert rows(bank.sql("DESC TABLE bank.accounts"))[0] == ("id", "bigint", "key")
    extended = {row[0]: row[1] for row in rows(bank.sql("describe extended TOTALS"))}
    assert extended["Kind"] == "materialized view" and extended["Reads"] == "bank.accounts"
    assert extended["Incremental"] == "yes" and "GROUP BY branch" in str(extended["Query"])
    hidden = {row[0]: row[2] for row in rows(bank.sql("DESCRIBE EXTENDED bank.accounts"))}
    assert hidden["__commit_at"] == "hidden: not in *"
    for text in ("DESCRIBE nothing", "SHOW EVERYTHING", "DESCRIBE", "EXPLAIN", "EXPLAIN SELECT * FROM nothing"):
        assert ask(server.url, "POST", "/v1/query", {"sql": text}).status == 400, text


def test_a_query_is_explained_and_not_answered(bank: Warehouse) -> None:
    bank.refresh()
    job = bank.newest_job
    deposit(bank, (30, 1, 1))
    told = [row[0] for row in rows(bank.sql("EXPLAIN SELECT branch FROM totals WHERE total > 1 CURRENCY BOUND 0 SEC"))]
    assert told[0] == "bound: at most 0 s stale" and str(told[1]).startswith("close: ")
    assert told[2] == f"reads totals at job {job}" and "Physical Plan" in "".join(map(str, told))
    assert bank.newest_job == job
    (first, *_) = [row[0] for row in rows(bank.sql("EXPLAIN FLOW totals"))]
    assert first == "flow totals: incremental"


def test_an_answer_shows_itself_in_a_notebook(client: Client, bank: Warehouse) -> None:
    text = "SELECT id, CAST(id AS DOUBLE) / 0.5 AS x, '<b>' AS `<i>`, CAST(NULL AS STRING) AS n FROM range(60)"
    with bank.sql(text) as answer, client.sql(text) as reply:
        for found, told in ((answer, "the first 50 rows"), (reply, "the first 50 rows of 60")):
            drawn = found._repr_html_()
            assert drawn.count("<tr>") == 51 and "<b>" not in drawn and "&lt;b&gt;" in drawn and "&lt;i&gt;" in drawn
            assert "<i>NULL</i>" in drawn and f"{told} · " in drawn and "bound met" in drawn
        assert answer.is_open and answer.to_arrow().num_rows == 60
        assert list(answer.to_pandas().columns) == list(reply.to_pandas().columns) == ["id", "x", "<i>", "n"]
        assert answer.to_polars()["x"].sum() == reply.to_polars()["x"].sum() == 3540.0
    assert "closed" in answer._repr_html_()
    with bank.sql("SELECT 1 AS one", 0) as named:
        assert "1 row</small>" in named._repr_html_()


def test_a_library_that_is_missing_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with client.sql("SELECT 1 AS one") as reply, pytest.raises(ConfigError, match="polars is not installed") as problem:
        reply.to_polars()
    assert "pip install polars" in str(problem.value)


def test_rows_come_as_files(server: Server) -> None:
    text = "SELECT id, ARRAY(id) AS many, IF(id = 1, NULL, 'a,\"b') AS t FROM range(3)"
    heard = ask(server.url, "POST", "/v1/query", {"sql": text, "format": "csv"})
    assert heard.headers["content-type"].startswith("text/csv") and "headgate-receipt" in heard.headers
    assert heard.body.decode().splitlines()[:3] == ['"id","many","t"', '0,"[0]","a,""b"', '1,"[1]",']
    heard = ask(server.url, "POST", "/v1/query", {"sql": text}, headers={"Accept": "application/vnd.apache.parquet"})
    assert pq.read_table(io.BytesIO(heard.body)).column("many").to_pylist() == [[0], [1], [2]]
    empty = ask(server.url, "POST", "/v1/query", {"sql": f"{text} WHERE id > 5", "format": "parquet"})
    assert pq.read_table(io.BytesIO(empty.body)).num_rows == 0


def test_a_column_tells_what_it_is_made_of(server: Server, client: Client, bank: Warehouse) -> None:
    assert client.lineage("totals")["columns"] == {
        "branch": [{"table": "bank.accounts", "column": "branch"}],
        "total": [{"table": "bank.accounts", "column": "balance"}],
    }
    assert client.lineage("bank.accounts")["columns"]["id"] == []
    assert ask(server.url, "GET", "/v1/lineage/nothing").status == 404
