"""Login, and what the page does when the console or the session ends."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.browser_page import BrowserPage
from tests.browser.stand_in import StandIn
from tests.browser.states import STATES, failover
from tests.waiting import wait_until

OpenPage = Callable[..., BrowserPage]

UNAUTHORIZED = "status of 401"
REFUSED = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING")
REFUSED += ("ERR_EMPTY_RESPONSE", "ERR_SOCKET_NOT_CONNECTED")


def log_in(page: BrowserPage, console: StandIn, token: str) -> None:
    page.page.goto(console.url)
    page.page.get_by_label("Token").fill(token)
    page.page.keyboard.press("Enter")


@pytest.fixture
def protected(console: StandIn) -> StandIn:
    """A console that needs a login."""
    console.needs_login = True
    return console


@pytest.mark.rule("O3")
def test_login_with_a_token(protected: StandIn, open_page: OpenPage):
    page = open_page(loads=False, expected_errors=(UNAUTHORIZED,))
    log_in(page, protected, "wrong")
    expect(page.page.get_by_role("alert")).to_have_text("The token is not valid or has expired.")
    expect(page.get("#dashboard")).to_be_hidden()
    assert page.accessibility_violations() == []

    log_in(page, protected, "viewer-token")
    expect(page.get("#summary-level")).to_have_text("Good.")
    expect(page.get("#role-name")).to_have_text("viewer")
    expect(page.get("#login")).to_be_hidden()
    stored = page.page.evaluate("JSON.stringify([localStorage, sessionStorage, location.href])")
    assert "viewer-token" not in stored + page.page.content()
    assert page.page.evaluate("document.cookie") == ""

    page.button("Log out").click()
    expect(page.get("#login")).to_be_visible()
    expect(page.get("#dashboard")).to_be_hidden()


@pytest.mark.rule("O3")
@pytest.mark.parametrize("wrong", ["wrong", "wrong%E0%A4%A"])
def test_link_with_a_token_logs_in_and_leaves_the_address(
    wrong: str, protected: StandIn, open_page: OpenPage
):
    page = open_page(loads=False, expected_errors=(UNAUTHORIZED,))
    page.page.goto(f"{protected.url}/#token={wrong}")
    expect(page.page.get_by_role("alert")).to_have_text("The token is not valid or has expired.")
    assert page.page.url == f"{protected.url}/"

    page.page.goto(f"{protected.url}/#token=operator-token")
    expect(page.get("#role-name")).to_have_text("operator")
    expect(page.get("#summary-level")).to_have_text("Good.")
    assert page.page.url == f"{protected.url}/"


@pytest.mark.rule("O3")
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_login_form_fits_and_is_accessible(
    width: int, scheme: str, protected: StandIn, open_page: OpenPage
):
    page = open_page(loads=False, width=width, scheme=scheme, expected_errors=(UNAUTHORIZED,))
    page.page.goto(protected.url)

    expect(page.page.get_by_label("Token")).to_be_focused()
    assert page.overflow() == 0
    assert page.accessibility_violations() == []


@pytest.mark.rule("O3")
def test_expired_session_returns_to_the_login(protected: StandIn, open_page: OpenPage):
    page = open_page(loads=False, expected_errors=(UNAUTHORIZED,))
    log_in(page, protected, "operator-token")
    expect(page.get("#summary-level")).to_have_text("Good.")

    protected.sessions.clear()
    # Not a click of the mouse: the page may have noticed it already, and have no button any more.
    page.page.evaluate("""() => {
        const buttons = [...document.querySelectorAll("button")];
        buttons.find(button => button.textContent === "Reset…")?.click();
    }""")

    expect(page.get("#login-reason")).to_have_text("The session has expired. Enter a token again.")
    expect(page.get("#dashboard")).to_be_hidden()
    expect(page.dialog).to_have_count(0)


@pytest.mark.rule("O3")
def test_logout_and_login_apply_to_all_pages_of_a_browser(protected: StandIn, open_page: OpenPage):
    first = open_page(loads=False, expected_errors=(UNAUTHORIZED,))
    log_in(first, protected, "viewer-token")
    expect(first.get("#summary-level")).to_have_text("Good.")
    second = open_page(beside=first, expected_errors=(UNAUTHORIZED,))

    first.button("Log out").click()
    expect(second.get("#login")).to_be_visible()

    log_in(first, protected, "operator-token")
    expect(first.get("#summary-level")).to_have_text("Good.")
    second.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(second.get("#role-name")).to_have_text("operator")
    expect(second.get("#summary-level")).to_have_text("Good.")


@pytest.mark.rule("O2")
def test_page_says_that_it_is_not_connected_and_reconnects(console: StandIn, open_page: OpenPage):
    page = open_page(expected_errors=REFUSED)
    console.stop()

    expect(page.get("#summary-level")).to_have_text("Not connected.")
    expect(page.get("#connection")).to_have_text("Not connected")
    expect(page.get("#summary-sentence")).to_contain_text("The console does not answer.")
    assert page.accessibility_violations() == []

    console.snapshot = failover()
    console.start()
    expect(page.get("#summary-level")).to_have_text("Problem.")
    expect(page.get("#connection")).to_have_text("Live")


@pytest.mark.rule("O3")
def test_session_that_ends_with_the_console_returns_to_the_login(
    protected: StandIn, open_page: OpenPage
):
    page = open_page(loads=False, expected_errors=(*REFUSED, UNAUTHORIZED))
    log_in(page, protected, "viewer-token")
    expect(page.get("#summary-level")).to_have_text("Good.")

    protected.stop()
    protected.sessions.clear()
    protected.start()

    expect(page.get("#login")).to_be_visible()


@pytest.mark.rule("O2")
def test_console_that_stops_answering_is_noticed(console: StandIn, open_page: OpenPage):
    page = open_page(expected_errors=REFUSED, loads=False)
    page.page.clock.install()
    page.load()
    expect(page.get("#connection")).to_have_text("Live")

    with console.frozen():
        page.page.clock.run_for(60_000)

        expect(page.get("#connection")).to_have_text("Not connected")


@pytest.mark.rule("O2")
def test_pages_of_a_browser_share_one_stream(console: StandIn, open_page: OpenPage):
    first = open_page()
    others = [open_page(beside=first) for _ in range(8)]  # more than the connections of a browser
    wait_until(lambda: console.streams == 1, "the only stream", deadline_s=30)

    console.show(STATES["stuck"]())
    for page in [first, *others]:
        expect(page.get("#summary-level")).to_have_text("Problem.")

    assert console.streams == 1
    first.page.close()
    wait_until(lambda: console.streams == 1, "the stream of another page", deadline_s=30)
    console.show(STATES["healthy"]())
    for page in others:
        expect(page.get("#summary-level")).to_have_text("Good.")
