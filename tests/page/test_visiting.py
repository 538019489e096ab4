"""Who comes to the page, with what: its policy, a service that goes and comes back, the token, small screens, keyboards."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from headgate import Warehouse
from headgate.capture.source import Progress
from headgate.service import Server
from tests.page.browsing import needs_chromium, row
from tests.service.asking import ask

pytestmark = needs_chromium


def test_the_browser_refuses_inline_scripts_and_html_from_text(server: Server) -> None:
    for path in ("/", "/page.js", "/page.css"):
        heard = ask(server.url, "GET", path)
        policy = heard.headers["content-security-policy"]
        assert heard.status == 200 and "default-src 'self'" in policy and "require-trusted-types-for" in policy
    html = ask(server.url, "GET", "/").body.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|https?://", html)


def test_the_page_says_when_the_service_is_gone_and_comes_back(page: Page, market: Warehouse) -> None:
    first = Server(market, port=0).start()
    port = urlsplit(first.url).port or 0
    try:
        page.goto(first.url)
        expect(page.locator("#verdict")).to_have_text("Fresh")
    finally:
        first.stop()
    expect(page.locator("#verdict")).to_have_text("No answer")
    expect(page.locator("#notice")).to_contain_text("the service does not answer, since")
    expect(page.locator("#tables")).to_be_visible()
    with Server(port=port) as second:
        expect(page.locator("#verdict")).to_have_text("Not ready")
        expect(page.locator("#notice")).to_contain_text("being opened")
        second.tell_load("shop_db", Progress(1000, 4000, None, table="item"))
        expect(page.locator("#notice")).to_contain_text("shop_db: read 1,000 of about 4,000 rows (25 %), item")
        second.attach(market)
        expect(page.locator("#facts")).to_contain_text("shop_db: read 1,000 of about 4,000 rows (25 %), item")
        second.tell_load("shop_db", Progress(4000, 4000, None, is_done=True))
        expect(page.locator("#facts")).not_to_contain_text("Loading")
        expect(page.locator("#verdict")).to_have_text("Fresh")
        expect(page.locator("#notice")).to_be_empty()
        page.goto("about:blank")


def test_the_token_is_asked_for_and_kept_in_the_tab(page: Page, market: Warehouse) -> None:
    with Server(market, port=0, token="s3cret") as locked:
        page.goto(locked.url)
        expect(page.locator("#notice")).to_contain_text("the service asks for a token")
        expect(page.locator("#main")).to_be_hidden()
        field = page.get_by_label("Token of the service")
        expect(field).to_be_focused()
        field.fill("wrong")
        field.press("Enter")
        expect(page.locator("#notice")).to_contain_text("the token is wrong")
        field.fill("s3cret")
        field.press("Enter")
        expect(page.locator("#verdict")).to_have_text("Fresh")
        page.reload()
        expect(page.locator("#verdict")).to_have_text("Fresh")
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.goto("about:blank")


def test_nothing_is_asked_while_nobody_looks(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.locator("#verdict")).to_have_text("Fresh")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    page.wait_for_timeout(500)
    asked.clear()
    page.wait_for_timeout(2_500)
    assert asked == []
    with page.expect_request("**/v1/status"):
        page.evaluate(hide, False)


def test_what_was_seen_of_lags_outlives_a_reload(page: Page, server: Server) -> None:
    page.goto(server.url)
    line = row(page, "revenue").locator("path.line")
    expect(line).to_have_attribute("d", re.compile("L.*"))
    page.reload()
    expect(line).to_have_attribute("d", re.compile("L.*"))


@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_readable_at_any_width_in_light_and_dark(page: Page, server: Server, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(server.url)
    page.get_by_label("Colours").select_option(theme)
    expect(page.locator("#tables tbody tr")).to_have_count(6)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    assert page.evaluate(CONTRASTS) == []
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == theme


CONTRASTS = """() => {
  const colour = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (text) => {
    const [r, g, b] = colour(text).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = getComputedStyle(at).backgroundColor;
      if (colour(found)[3] !== 0) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *:not(svg, svg *, option, script)")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim());
    if (!hasText || !element.checkVisibility()) continue;
    const [one, other] = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) bad.push(`${element.tagName}.${element.className} ${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return bad;
}"""
"""Texts with less contrast than 4.5 to 1."""


def test_every_control_has_a_label_and_can_be_reached_by_keyboard(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.locator("#verdict")).to_have_text("Fresh")
    names = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea')].filter((field) => !field.labels.length).map((field) => field.id)"
    )
    assert names == []
    seen = set()
    page.keyboard.press("Tab")
    for _ in range(20):
        seen.add(page.evaluate("document.activeElement.id"))
        page.keyboard.press("Tab")
    assert {"theme", "pipeline", "sql", "max-staleness", "deadline", "run", "setting", "value", "who", "reset"} <= seen
