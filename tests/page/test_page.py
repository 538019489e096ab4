"""What the page shows and does, in a real browser over a real warehouse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from playwright.sync_api import Page, Route, expect
from pyarrow import csv

from headgate import Warehouse
from headgate.service import Server
from tests.page.browsing import needs_chromium, row
from tests.page.market import EVIL, FLOWS, sell
from tests.waiting import eventually

pytestmark = needs_chromium


def change_status(page: Page, change: Callable[[Any], None]) -> None:
    """What the service says about the warehouse reaches the page with this change."""

    def answer(route: Route) -> None:
        response = route.fetch()
        status = response.json()
        change(status)
        route.fulfill(response=response, body=json.dumps(status))

    page.route("**/v1/status", answer)


def test_one_look_tells_that_the_warehouse_is_fresh(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    expect(page.locator("#verdict")).to_have_text("Fresh")
    expect(page).to_have_title("Fresh · market")
    expect(page.locator("#facts")).to_contain_text(f"Newest job{market.newest_job}")
    expect(row(page, "revenue")).to_contain_text("target lag 1 h")
    expect(row(page, "revenue")).to_contain_text("fresh")
    expect(row(page, "best")).to_contain_text("on demand (bound 0 s)")
    label = row(page, "revenue").locator("svg title")
    expect(label).to_have_text(re.compile(r"Lag of revenue in the last 1 min: .* bound 1 h"))
    expect(page.locator("#sources article")).to_contain_text("Stream log")


def test_where_postgresqls_clients_connect_is_shown(page: Page, server: Server) -> None:
    change_status(page, lambda status: status.update(postgres="postgresql://127.0.0.1:5433/market"))
    page.goto(server.url)
    expect(page.locator("#facts")).to_contain_text("postgresql://127.0.0.1:5433/market")


def test_a_spark_that_was_started_again_is_told(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    expect(page.locator("#facts")).not_to_contain_text("started again")
    told = {
        "count": 2,
        "last_at": "2026-11-15T16:30:00+00:00",
        "last_why": "its Java process was killed (SIGKILL)",
    }
    change_status(page, lambda status: status.update(restarts=told))
    expect(page.locator("#facts")).to_contain_text("Spark was started again2 times, last ")
    expect(page.locator("#facts")).to_contain_text("its Java process was killed (SIGKILL)")


def test_a_scaled_warehouse_shows_size_load_and_limit_of_its_parts_over_time(
    page: Page, server: Server, market: Warehouse
) -> None:
    page.goto(server.url)
    expect(page.locator("#tables")).to_contain_text("revenue")
    expect(page.locator("#scaled")).to_be_hidden()
    part = {
        "size": 2,
        "most": 8,
        "load": 0.8,
        "reason": f"queries took 48 s {EVIL}",
        "is_limiting": False,
        "fixed": False,
    }
    idle = {**part, "size": 1, "load": None, "reason": "there were no folds", "is_limiting": True, "fixed": True}
    change = {
        "at": "2026-11-15T16:30:00+00:00",
        "part": "query",
        "before": 1,
        "after": 2,
        "reason": "queries took 70 s",
    }
    told = {"parts": {"query": part, "load": idle}, "executors": 3, "executor_hours": 1.5, "changes": [change]}
    change_status(page, lambda status: status.update(scaling=told))
    query = page.locator("#scaling [data-key='part query']")
    expect(query).to_contain_text("2 of 8")
    expect(query).to_contain_text("80 % of its limit")
    expect(query.locator("svg title")).to_have_text(
        "query in the last 1 min: size from 2 to 2, load now 80 % of its limit"
    )
    part |= {"size": 4, "load": 1.2}
    expect(query.locator("svg title")).to_have_text(re.compile("size from 2 to 4, load now 120 % of its limit"))
    expect(query.locator("svg .size")).to_have_attribute("d", re.compile("V"))
    load = page.locator("#scaling [data-key='part load']")
    expect(load).to_contain_text("limits")
    expect(load).to_contain_text("1 of 8 (set by hand)")
    expect(page.locator("#scaling .changes")).to_contain_text("query from 1 to 2: queries took 70 s")
    expect(page.locator("#scaling")).to_contain_text("3 executors at work, 1.50 executor hours today.")
    assert page.evaluate("document.body.dataset.evil") is None


def test_the_pipeline_shows_what_reads_what_and_where_jobs_are(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    nodes = page.locator("#pipeline .node")
    expect(nodes).to_have_count(1 + 2 + 4)
    expect(page.locator("#pipeline .edge")).to_have_count(2 + 4)
    places = {
        name: page.locator(f"[data-key='{name}']").bounding_box() for name in ("source market", "table market.sales")
    }
    places |= {name: page.locator(f"[data-key='table {name}']").bounding_box() for name in ("revenue", "best")}
    lefts = [place["x"] for place in places.values() if place]
    assert lefts == sorted(set(lefts)) and len(lefts) == 4
    best = page.locator("[data-key='table best']")
    before = market.newest_job
    expect(best).to_contain_text(f"job {before}")
    sell(market, (100, "tea", 1))
    with market.sql("SELECT * FROM revenue") as answer:
        assert answer.job == before + 1
    expect(best).to_contain_text("1 job behind")
    expect(page.locator("[data-key='table revenue']")).to_contain_text(f"job {before + 1}")
    expect(row(page, "best")).to_contain_text("waits for a query")
    market.refresh()
    expect(best).not_to_contain_text("behind")


def test_a_query_is_answered_with_its_receipt(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    page.get_by_label("Max staleness").fill("0s")
    page.get_by_label("Deadline").fill("30s")
    page.get_by_label("SQL").fill(f"SELECT id, CAST(NULL AS STRING) AS nothing, '{EVIL}' AS `{EVIL}` FROM range(300)")
    page.get_by_label("SQL").press("Control+Enter")
    expect(page.locator("#asked")).to_contain_text("The first 200 rows (there are more)")
    expect(page.locator("#answer tbody tr")).to_have_count(200)
    expect(page.locator("#answer tbody tr").first).to_have_text(f"0NULL{EVIL}")
    expect(page.locator("#answer thead")).to_contain_text(EVIL)
    expect(page.locator("#answer .receipt")).to_contain_text("at most 0 s stale, within 30 s, else fail")
    latest = page.locator("#queries details").first
    expect(latest).to_contain_text("FROM range(300)")
    latest.locator("summary").click()
    expect(latest.locator("dl")).to_contain_text("Waited")
    # A look leaves open what is open; it is over when the next one begins.
    for _ in range(2):
        with page.expect_request("**/v1/status"):
            pass
    expect(latest.locator("dl")).to_be_visible()
    assert page.evaluate("document.body.dataset.evil") is None


def test_a_query_that_is_wrong_gets_what_to_do(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_label("SQL").fill("SELECT * FROM revenu")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#answer .problem")).to_contain_text("revenu")
    expect(page.locator("#answer .hint")).to_contain_text("did you mean revenue")
    expect(page.locator("#asked")).to_contain_text("No answer")


def test_a_waiting_query_is_shown_and_can_be_cancelled(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    with market._engine.executor.paused():
        sell(market, (200, "tea", 1))
        page.get_by_label("SQL").fill("SELECT * FROM best")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#queries .open")).to_contain_text("SELECT * FROM best")
        expect(page.locator("#facts")).to_contain_text("Open queries1")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#asked")).to_contain_text("Cancelled")
        eventually(lambda: not server._service.queries.running)
    expect(page.locator("#queries .open li")).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()


def test_a_setting_is_changed_and_who_did_it_is_shown(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    page.get_by_label("Setting", exact=True).select_option("freshness.max_staleness")
    expect(page.get_by_label("Value")).to_have_value("0s")
    page.get_by_label("Value").fill("soon")
    page.get_by_label("Who changes it").fill(f"Ada {EVIL}")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#changed")).to_contain_text("What to do")
    page.get_by_label("Value").fill("10m")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#changed")).to_have_text("freshness.max_staleness is 10m now.")
    expect(page.locator(".changes li").first).to_contain_text(
        f"Ada {EVIL} changed freshness.max_staleness from 0s to 10m"
    )
    expect(row(page, "best")).to_contain_text("default bound 10 min")
    assert market.tuning.current()["freshness.max_staleness"] == "10m"
    page.get_by_role("button", name="As in the file").click()
    expect(page.locator("#changed")).to_have_text("freshness.max_staleness is 0s now.")
    assert market.tuning.current()["freshness.max_staleness"] == "0s"
    assert page.evaluate("document.body.dataset.evil") is None


def test_a_table_that_is_older_than_its_bound_is_behind(page: Page, server: Server) -> None:
    def age(status: Any) -> None:
        for table in status["tables"]:
            if table["name"] == "revenue":
                table["lag"] = 7500.0

    change_status(page, age)
    page.goto(server.url)
    expect(page.locator("#verdict")).to_have_text("Behind")
    expect(page.locator("#reasons")).to_have_text("revenue is 2 h 5 min old; its target lag is 1 h")
    expect(row(page, "revenue").locator(".badge")).to_have_text("behind")
    expect(page.locator("[data-key='table revenue']")).to_have_class(re.compile("behind"))


def test_troubles_of_sources_are_said_with_gears_and_retained_wal(page: Page, server: Server) -> None:
    def break_source(status: Any) -> None:
        status["sources"]["market"] |= {
            "gear": {"period": 0.12, "workers": 2},
            "reason": "nobody waits",
            "retained_wal": 900 << 20,
            "retained_wal_limit": 1 << 30,
            "alarms": [f"retained WAL is near its limit {EVIL}"],
            "problems": {"sales": {"position": 1, "what": "a column went", "hint": "add it again"}},
        }

    change_status(page, break_source)
    page.goto(server.url)
    expect(page.locator("#verdict")).to_have_text("In trouble")
    expect(page.locator("#reasons")).to_contain_text(f"market: retained WAL is near its limit {EVIL}")
    source = page.locator("#sources article")
    expect(source).to_contain_text("looks every 120 ms, 2 workers")
    expect(source).to_contain_text("nobody waits")
    expect(source).to_contain_text("900 MiB of 1.0 GiB")
    # Each problem is said once, at the top.
    expect(page.locator("#reasons")).to_contain_text("What to do: add it again")
    expect(page.get_by_text("a column went")).to_have_count(1)
    expect(source).to_contain_text("see the top")
    expect(page.locator("[data-key='source market']")).to_contain_text("in trouble")
    assert page.evaluate("document.body.dataset.evil") is None


def test_the_partitions_of_a_queue_are_told_with_reason_and_last_change(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.locator("#sources article")).not_to_contain_text("artition")
    queue = {"partitions": [{}, {}], "reason": "stay: 2 partitions fit what waits", "last_change": f"split: {EVIL}"}
    change_status(page, lambda status: status["sources"]["market"].update(queue=queue))
    page.reload()
    source = page.locator("#sources article")
    expect(source).to_contain_text("2 partitions; stay: 2 partitions fit what waits")
    expect(source).to_contain_text(f"split: {EVIL}")
    assert page.evaluate("document.body.dataset.evil") is None


def test_numbers_are_said_as_people_read_them(page: Page, server: Server) -> None:
    page.goto(server.url)
    texts = """async () => {
      const { bytes, duration, parseDuration } = await import("/words.js");
      const ages = [0, 0.0004, 0.25, 0.9996, 9.96, 59.6, 200, 7500, 3600, 100000].map(duration);
      return [ages, ["0s", "1h30m", "250ms", "2d", "any", "", null].map(parseDuration), [0, 1023, 1536, 2 ** 30].map(bytes)];
    }"""
    ages, parsed, sizes = page.evaluate(texts)
    expected = ["0 s", "0 s", "250 ms", "1 s", "10 s", "1 min", "3 min 20 s", "2 h 5 min", "1 h", "1 d 3 h"]
    assert ages == expected
    assert parsed == [0, 5400, 0.25, 172800, None, None, None]
    assert sizes == ["0 B", "1023 B", "1.5 KiB", "1.0 GiB"]


def test_no_edge_of_the_pipeline_runs_behind_a_node(page: Page, server: Server) -> None:
    """The flow of the last layer also reads a replica of the first: that edge has a place of its own between them."""
    page.goto(server.url)
    layers = """async () => {
      const { layout } = await import("/graph.js");
      const table = (name, reads) => ({ name, kind: reads ? "flow" : "source", reads: reads ?? [] });
      const { nodes, edges } = layout(["s"], [table("s.a"), table("s.b"), table("c", ["s.a"]), table("d", ["c", "s.b"])]);
      const [long] = edges.filter((stops) => stops.length === 3);
      const overlaps = ({ x, y, height }) => nodes.some((node) => node.x === x && node.y < y + height && y < node.y + node.height);
      return [nodes.map(({ name, layer }) => [name, layer]), overlaps(long[1])];
    }"""
    assert page.evaluate(layers) == [[["s", 0], ["s.a", 1], ["s.b", 1], ["c", 2], ["d", 3]], False]


def test_names_from_the_warehouse_are_text(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(row(page, EVIL)).to_have_count(1)
    expect(page.locator("#pipeline .node title").filter(has_text=EVIL)).to_have_count(1)
    expect(page.locator("img")).to_have_count(0)
    assert page.evaluate("document.body.dataset.evil") is None


def test_a_failed_flow_is_named_with_what_to_do(page: Page, server: Server, market: Warehouse) -> None:
    file = Path(market.project.flow_files[0])
    page.goto(server.url)
    sell(market, (300, "gift", 0))
    try:
        page.get_by_label("SQL").fill("SELECT * FROM shares")
        page.get_by_label("SQL").press("Control+Enter")
        expect(page.locator("#answer .problem")).to_contain_text("DIVIDE_BY_ZERO")
        expect(page.locator("#verdict")).to_have_text("In trouble")
        expect(page.locator("#reasons")).to_contain_text(file.name)
        expect(page.locator("#reasons .hint")).to_contain_text("What to do")
        expect(row(page, "shares")).to_contain_text("see the top")
        expect(row(page, "shares")).not_to_contain_text("DIVIDE_BY_ZERO")
        expect(page.locator("[data-key='table shares']")).to_contain_text("failed after job")
        expect(row(page, "revenue").locator(".badge")).to_have_text("fresh")
    finally:
        file.write_text(FLOWS.replace("1000 DIV price", "try_divide(1000, price)"))
        market.resume()
    expect(page.locator("#verdict")).to_have_text("Fresh")


def test_the_query_box_is_first_and_completes_tables_columns_and_words(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(row(page, "revenue")).to_have_count(1)
    expect(page.locator("main h2").first).to_have_text("Ask")
    box, offered = page.get_by_label("SQL"), page.locator("#offers li")
    box.press_sequentially("SEL")
    expect(offered).to_have_text(["SELECT"])
    box.press("Tab")
    box.press_sequentially(" * FROM reve")
    expect(offered.first).to_contain_text("revenue")
    box.press("Enter")
    expect(box).to_have_value("SELECT * FROM revenue")
    box.press_sequentially(" WHERE to")
    expect(offered).to_have_text(["totalrevenue · bigint"])
    box.press("Escape")
    expect(page.locator("#offers")).to_be_hidden()
    box.fill("SELECT * FROM ")
    box.press_sequentially("market.")
    expect(offered).to_have_text(["salestable", "itemstable"])
    box.press("ArrowDown")
    box.press("Tab")
    expect(box).to_have_value("SELECT * FROM market.items")
    box.press("Control+Enter")
    expect(page.locator("#asked")).to_contain_text("0 rows")


def test_an_answer_is_a_chart_and_files(page: Page, server: Server, market: Warehouse) -> None:
    page.goto(server.url)
    page.get_by_label("SQL").fill("SELECT item, total, sales FROM revenue ORDER BY item")
    page.get_by_label("SQL").press("Control+Enter")
    expect(page.locator("#answer tbody tr").first).to_contain_text("cup")
    rows = page.locator("#answer tbody tr").count()
    page.get_by_role("button", name="Chart").click()
    expect(page.locator(".plot .bar")).to_have_count(2 * rows)
    expect(page.locator(".plot .bar title").first).to_have_text(re.compile(r"cup: total \d+"))
    expect(page.locator(".legend")).to_have_text("totalsales")
    # Files have all rows, not only those that are shown.
    page.get_by_label("SQL").fill("SELECT id, id * 2 AS twice FROM range(300)")
    page.get_by_label("SQL").press("Control+Enter")
    expect(page.locator(".plot .line")).to_have_count(1)
    for kind, read in (("Parquet", pq.read_table), ("CSV", csv.read_csv), ("Arrow", read_stream)):
        with page.expect_download() as found:
            page.get_by_role("button", name=kind).click()
        assert read(found.value.path()).column("twice").to_pylist()[-1] == 598
    page.get_by_role("button", name="Table").click()
    expect(page.locator("#answer tbody tr")).to_have_count(200)
    page.get_by_label("SQL").fill("SHOW TABLES")
    page.get_by_label("SQL").press("Control+Enter")
    expect(page.locator("#answer tbody")).to_contain_text("market.sales")


def read_stream(file: Path) -> pa.Table:
    return pa.ipc.open_stream(file.read_bytes()).read_all()


def test_a_column_shows_what_it_is_made_of(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.locator("[data-key='table best']").click()
    expect(page.locator("#lineage .chip")).to_have_text(["item", "total"])
    page.locator("#lineage .chip").nth(1).click()
    expect(page.locator("#lineage li .name")).to_have_text(["best.total", "revenue.total", "market.sales.price"])
    expect(page.locator(".node.traced")).to_have_count(3)
    expect(page.locator(".edge.traced")).to_have_count(2)
    page.locator("[data-key='table best']").click()
    expect(page.locator("#lineage")).to_be_hidden()
    expect(page.locator(".node.traced")).to_have_count(0)


def test_on_a_phone_the_pipeline_tells_that_it_goes_on(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url)
    frame = page.locator(".cued")
    expect(frame).to_have_class("cued more-right")
    expect(page.locator("#cue")).to_be_visible()
    page.locator("#pipeline").evaluate("place => place.scrollTo(place.scrollWidth, 0)")
    expect(frame).to_have_class("cued more-left")
    # Nothing else is wider than the screen.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1600, "height": 900})
    expect(page.locator("#cue")).to_be_hidden()


def test_violations_are_told_with_their_table(page: Page, server: Server) -> None:
    def violate(status: Any) -> None:
        for table in status["tables"]:
            if table["name"] == "revenue":
                told = {"condition": f"total > 0 {EVIL}", "job": 3}
                table["expectations"] = [
                    {"name": "positive", "action": "drop", "violations": 2, **told},
                    {"name": EVIL, "action": "warn", "violations": 0, **told},
                ]
        counts = {**status["tables"][0], "name": "revenue__expectations"}
        status["tables"].append(counts)

    change_status(page, violate)
    page.goto(server.url)
    expect(row(page, "revenue")).to_contain_text("positive: 2 rows dropped")
    expect(row(page, "revenue")).to_contain_text(f"{EVIL}: holds")
    expect(row(page, "revenue__expectations")).to_have_count(0)
    assert page.evaluate("document.body.dataset.evil") is None


def test_stored_results_are_told_with_what_others_would_gain(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_text("What storing other results of flows would gain").click()
    told = page.locator("#advised > div").filter(has=page.locator(".name:text-is('best')"))
    expect(told.locator("tbody tr")).to_contain_text(["scan of revenue", "filter"])
    expect(told).to_contain_text("Stored behind")
    expect(page.locator("#advised")).to_contain_text("The whole result stays stored: best takes its changes.")


def test_the_ranges_of_a_table_are_told_with_their_jobs(page: Page, server: Server, market: Warehouse) -> None:
    def cut(status: Any) -> None:
        table = next(each for each in status["tables"] if each["name"] == "revenue")
        table.update(ranges={"(, 10)": market.newest_job, "[10, )": 0}, missing={"[10, )": "a job failed"})

    page.goto(server.url)
    expect(row(page, "revenue")).not_to_contain_text("ranges")
    change_status(page, cut)
    expect(row(page, "revenue")).to_contain_text("1 of 2 ranges there")
    row(page, "revenue").locator("summary").click()
    expect(row(page, "revenue").locator("li.failure")).to_have_text("[10, ): job 0, missing")


def test_a_receipt_tells_the_ranges_that_were_read(page: Page, server: Server, market: Warehouse) -> None:
    market.change_ranges("market.items", bounds=["m"])
    with market.source("market").transaction() as transaction:
        for item in ("bowl", "pot"):
            transaction.insert("items", {"item": item})
    page.goto(server.url)
    page.get_by_label("Max staleness").fill("0s")
    page.get_by_label("SQL").fill("SELECT item FROM market.items WHERE item = 'bowl'")
    page.get_by_label("SQL").press("Control+Enter")
    told = "Ranges of market.items1 of 2 read ((, 'm')), 1 brought forward, 1 left behind"
    expect(page.locator("#answer .receipt")).to_contain_text(told)
    latest = page.locator("#queries details").first
    expect(latest).to_contain_text("WHERE item = 'bowl'")
    expect(latest.locator("dl")).to_contain_text(told)
    market.change_ranges("market.items", bounds=[])
