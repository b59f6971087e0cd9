"""A page that is open for days: it does not grow."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.browser_page import BrowserPage
from tests.browser.snapshots import Snapshot, event, inspection, path, report, snapshot, syphon
from tests.browser.stand_in import StandIn
from tests.browser.states import failover
from tests.waiting import wait_until

OpenPage = Callable[..., BrowserPage]

pytestmark = pytest.mark.rule("O2")

SNAPSHOTS = 15
REFRESHES = 10
TOLERANCE = 1.2
NAMES = ("Nodes", "JSEventListeners", "JSHeapUsedSize")


def expect_no_growth(page: BrowserPage, before: dict[str, float]) -> None:
    """Wait until the page has about as many objects as before. The garbage collector may keep some
    for a while, but not those of a leak for ever."""

    def has_not_grown() -> bool:
        after = page.memory()
        return all(after[name] < TOLERANCE * before[name] for name in NAMES)

    wait_until(has_not_grown, f"the page to have no more objects than {before}")


def changing(number: int) -> Snapshot:
    """Return a snapshot that shares no name with those of other numbers."""
    paths = [path(f"path-{number}-{n}", "failover") for n in range(20)]
    events = [event(n, f"path-{number}-{n}: suspect → failover") for n in range(20)]
    return snapshot(
        *(report(100 * number + n, *paths, events=events) for n in range(3)),
        seen=inspection(),
        syphon=syphon(),
    )


def test_page_does_not_grow_with_the_number_of_snapshots(console: StandIn, open_page: OpenPage):
    page = open_page()

    def show(numbers: range) -> dict[str, float]:
        for number in numbers:
            console.show(changing(number))
            expect(page.section("Paths")).to_contain_text(f"path-{number}-0")
        return page.memory()

    before = show(range(SNAPSHOTS))
    show(range(SNAPSHOTS, 3 * SNAPSHOTS))

    expect_no_growth(page, before)


def test_charts_do_not_grow_with_the_number_of_refreshes(console: StandIn, open_page: OpenPage):
    console.snapshot = failover()
    page = open_page()

    def refresh() -> dict[str, float]:
        for _ in range(REFRESHES):
            wanted = console.histories + 1
            page.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            wait_until(lambda wanted=wanted: console.histories >= wanted, "a refresh")
        return page.memory()

    before = refresh()
    refresh()

    expect_no_growth(page, before)
    assert page.get(".chart canvas").count() == 3
