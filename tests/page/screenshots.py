"""`python -m tests.page.screenshots`: the pictures of the page in the documentation, taken of a shop at work.

Orders come into a private PostgreSQL while readers with different bounds ask; after a minute the page is shown to a camera.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from playwright.sync_api import Browser, Page

import headgate
from headgate.capture.postgres.private_server import PostgresServer
from headgate.errors import HeadgateError
from headgate.service import Server
from tests.page.browsing import open_browser
from tests.scheduling.bank import SPARK

IMAGES = Path(__file__).parents[2] / "docs" / "img"
SECONDS = 75
TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, city text NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, placed date NOT NULL);
CREATE TABLE lines (order_id bigint, line int, item text NOT NULL, price numeric(8,2) NOT NULL, PRIMARY KEY (order_id, line));
INSERT INTO customers SELECT n, (ARRAY['Bern', 'Oslo', 'Porto', 'Turin'])[1 + n % 4] FROM generate_series(1, 200) n;
"""
FLOWS = """
CREATE MATERIALIZED VIEW order_values TBLPROPERTIES ('target_lag' = '20s') AS
SELECT o.id, o.customer, SUM(l.price) AS value FROM shop.orders o JOIN shop.lines l ON l.order_id = o.id GROUP BY o.id, o.customer;
CREATE MATERIALIZED VIEW revenue_by_city AS
SELECT c.city, SUM(v.value) AS revenue, COUNT(*) AS orders FROM order_values v JOIN shop.customers c ON c.id = v.customer GROUP BY c.city;
CREATE MATERIALIZED VIEW top_items AS SELECT item, SUM(price) AS revenue, COUNT(*) AS sold FROM shop.lines GROUP BY item;
"""
READERS = [
    ("SELECT city, revenue FROM revenue_by_city ORDER BY revenue DESC", "10s", 7.0),
    ("SELECT * FROM top_items ORDER BY sold DESC LIMIT 5", "30s", 11.0),
    ("SELECT COUNT(*) AS orders, SUM(value) AS value FROM order_values", "0s", 17.0),
]


@contextmanager
def repeating(*works: tuple[Callable[[], object], float]) -> Iterator[None]:
    """Does each work again and again, with a pause of so many seconds."""
    is_over = threading.Event()

    def repeat(work: Callable[[], object], pause: float) -> None:
        while not is_over.wait(pause):
            work()

    threads = [threading.Thread(target=repeat, args=each) for each in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def seller(connection: psycopg.Connection) -> Callable[[], None]:
    """Places one order per call."""
    chance = random.Random(7)
    orders = iter(range(1, 1_000_000))

    def sell() -> None:
        number = next(orders)
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES (%s, %s, current_date)", (number, chance.randint(1, 200)))
            for line in range(chance.randint(1, 4)):
                row = (number, line, chance.choice(["tea", "cup", "pot", "tray"]), chance.randint(200, 4000) / 100)
                connection.execute("INSERT INTO lines VALUES (%s, %s, %s, %s)", row)

    return sell


def reader(client: headgate.Session, text: str, bound: str) -> Callable[[], None]:
    def read() -> None:
        try:
            with client.sql(text, max_staleness=bound, deadline="5s") as answer:
                answer.collect()
        except HeadgateError:
            # A missed deadline is on the page, too.
            return

    return read


def visit(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1200, "height": 1000}, reduced_motion="reduce")
    page.goto(url)
    page.get_by_label("SQL").fill(READERS[0][0])
    page.get_by_label("Max staleness").fill("10s")
    return page


def main() -> None:
    with tempfile.TemporaryDirectory() as name, PostgresServer() as postgres:
        folder = Path(name)
        postgres.execute(TABLES)
        (folder / "flows").mkdir()
        (folder / "flows" / "shop.sql").write_text(FLOWS)
        tables: dict[str, object] = {"customers": {}, "orders": {}, "lines": {}}
        project = {
            "name": "shop",
            "storage": str(folder / "warehouse"),
            "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
            "spark": SPARK,
            "sources": {"shop": {"type": "postgres", "dsn": postgres.dsn, "capture": "log", "tables": tables}},
            "freshness": {"max_staleness": "1m"},
        }
        with (
            headgate.open(project) as shop,
            psycopg.connect(postgres.dsn, autocommit=True) as connection,
            Server(shop, port=0) as server,
            open_browser() as browser,
        ):
            readers = [(reader(shop.session(), text, bound), pause) for text, bound, pause in READERS]
            with repeating((seller(connection), 0.2), *readers):
                page = visit(browser, server.url)
                time.sleep(SECONDS)
                page.get_by_label("SQL").press("Control+Enter")
                page.get_by_role("button", name="Chart").click()
                page.locator(".plot").wait_for()
                for theme in ("light", "dark"):
                    page.get_by_label("Colours").select_option(theme)
                    page.evaluate("scrollTo(0, 0)")
                    page.screenshot(path=IMAGES / f"page-{theme}.png")


if __name__ == "__main__":
    main()
