"""Fixtures of the tests in a real browser: Debian's Chromium, driven by Playwright."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.browser_page import DEADLINE_MS, BrowserPage, launch
from tests.browser.stand_in import StandIn
from tests.browser.states import healthy

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "browser"
"""The folder for screenshots of the pages of a failed test."""

expect.set_options(timeout=DEADLINE_MS)

OpenPage = Callable[..., BrowserPage]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser. It ends with the file, because its event loop would disturb asynchronous tests."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def console() -> Iterator[StandIn]:
    """A server that stands in for the console."""
    console = StandIn(healthy())
    console.start()
    yield console
    console.stop()


@pytest.fixture
def open_url(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Open pages with the arguments of `BrowserPage`, except for the browser. Screenshots of a
    failed test are kept. No page may print an error that its test does not expect."""
    pages: list[BrowserPage] = []

    def open_url(url: str, **options: Any) -> BrowserPage:
        page = BrowserPage(browser, url, **options)
        pages.append(page)
        return page

    yield open_url
    if request.node.stash.get(FAILED, False):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        for number, page in enumerate(page for page in pages if not page.page.is_closed()):
            page.screenshot(SCREENSHOTS / f"{name}-{number}.png")
    for page in pages:
        page.close()
    assert [error for page in pages for error in page.unexpected_errors()] == []


@pytest.fixture
def open_page(console: StandIn, open_url: OpenPage) -> OpenPage:
    """Open pages of the server that stands in for the console. They are closed before it ends."""
    return partial(open_url, console.url)


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Iterator[None]:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
    return report
