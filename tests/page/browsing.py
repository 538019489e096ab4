"""A real browser: Debian's chromium, driven by Playwright, which reaches this machine alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

CHROMIUM = os.environ.get("HEADGATE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
MISSING = "no chromium: install it (Debian: apt install chromium), or name one in HEADGATE_CHROMIUM"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def open_browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        raise SystemExit(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_QUIET)
        try:
            yield browser
        finally:
            browser.close()


def row(page: Page, table: str) -> Locator:
    """The line about a table in the list of tables."""
    return page.locator("#tables tbody tr").filter(has=page.locator(f".name:text-is('{table}')"))
