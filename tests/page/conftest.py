"""One market, one service and one browser for the tests of a file, and a tab for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from headgate import Warehouse
from headgate.runtime.spark.sessions import SparkSessions
from headgate.service import Server
from tests.page.browsing import open_browser
from tests.page.market import open_market, sell

PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory, spark_sessions: SparkSessions) -> Iterator[Warehouse]:
    with open_market(tmp_path_factory.mktemp("market")) as warehouse:
        sell(warehouse, (1, "tea", 5), (2, "cup", 9))
        warehouse.refresh()
        yield warehouse


@pytest.fixture(scope="module")
def server(market: Warehouse) -> Iterator[Server]:
    with Server(market, port=0) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of its own; a script that fails, or is refused by the page's policy, fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Security Policy" in said.text else None)
    yield page
    context.close()
    assert wrong == []
