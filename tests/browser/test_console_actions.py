"""Actions in a browser with a real console: redrive and its cancel, roles, and bodies."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from pairbus.emulator.namespace import LocalNamespace
from pairbus.transfer import to_backlog
from tests.backlog import Backlog
from tests.browser.browser_page import BrowserPage
from tests.browser.console_process import ConsoleProcess
from tests.browser.states import MARKUP
from tests.browser.test_page_connection import REFUSED
from tests.dead_letters import DeadLetters
from tests.messages import id_of, message, numbered

OpenUrl = Callable[..., BrowserPage]

COUNT = 500


@pytest.fixture
def backlog() -> Iterator[Backlog]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield Backlog(primary, secondary)


@pytest.fixture
def path(backlog: Backlog) -> str:
    return backlog.path("orders")


@pytest.fixture
def letters(backlog: Backlog, path: str) -> Iterator[DeadLetters]:
    """Dead letters of a backlog queue."""
    letters = DeadLetters(backlog.secondary, backlog.queues[0])
    letters.put([to_backlog(payload, path) for payload in numbered(COUNT)], "Broken")
    yield letters
    letters.close()


@pytest.fixture
def waiting_message(backlog: Backlog, path: str) -> None:
    """A message with markup in its id and body. The console shows at once what waits when it
    starts, so list this fixture first."""
    backlog.put(path, [message(MARKUP, body=f"{MARKUP} secret".encode())])


@pytest.fixture
def real_console(tmp_path: Path, backlog: Backlog) -> Iterator[ConsoleProcess]:
    options = [*backlog.arguments, "--no-ledger"]
    with ConsoleProcess(tmp_path / "console", *options, **backlog.variables) as console:
        yield console


@pytest.mark.rule("O2")
def test_redrive_shows_its_progress_and_loses_nothing_when_it_is_cancelled(
    backlog: Backlog,
    path: str,
    letters: DeadLetters,
    real_console: ConsoleProcess,
    open_url: OpenUrl,
):
    page = open_url(real_console.login_url)
    section = page.section("Dead letters")
    expect(section.get_by_role("row", name=f"{path} Broken")).to_contain_text(str(COUNT))

    page.button(f"Redrive: {path}, Broken").click()
    page.dialog.get_by_label("Messages a second").fill("20")
    page.button("Continue").click()
    expect(page.dialog).to_contain_text(f"{COUNT}")
    assert len(letters.ids()) == COUNT
    page.button("Redrive").click()
    progress = section.get_by_role("progressbar")
    expect(section).to_contain_text(f" of {COUNT} moved")
    expect(progress).not_to_have_js_property("value", 0)
    section.get_by_role("button", name="Cancel: ").click()
    page.button("Cancel the redrive").click()
    expect(section.locator(".redrives")).to_contain_text("Cancelled")

    moved, left = [id_of(payload) for payload in letters_of(backlog, path)], letters.ids()
    assert moved
    assert left
    assert sorted(moved + left) == sorted(id_of(payload) for payload in numbered(COUNT))


def letters_of(backlog: Backlog, path: str) -> list[bytes]:
    """Return the messages of a queue of the primary."""
    reader = DeadLetters(backlog.primary, path)
    try:
        return reader.stored(path)
    finally:
        reader.close()


@pytest.mark.rule("O3")
@pytest.mark.usefixtures("waiting_message")
def test_viewer_cannot_act_and_sees_no_bodies(real_console: ConsoleProcess, open_url: OpenUrl):
    token = real_console.token("viewer")
    page = open_url(f"{real_console.url}/#token={token}", expected_errors=("status of 403",))
    expect(page.get("#role-name")).to_have_text("viewer")
    peek = page.section("Backlog queues").get_by_role("button", name="Peek at ")
    peek.wait_for()

    names = {name.partition(" ")[0] for name in page.visible_button_names()}
    assert names == {"Log", "Peek", "Last"}
    peek.click()
    page.button("Continue").click()
    page.button("Peek").click()
    expect(page.dialog).to_contain_text(MARKUP)
    assert "secret" not in page.page.content()
    statuses = page.page.evaluate("""async () => {
        const csrf = (await (await fetch("/api/session")).json()).csrf;
        const headers = {"Content-Type": "application/json", "X-Pairbus-Csrf": csrf};
        const body = JSON.stringify({action: "pause", destination: null, confirm: true});
        const queue = new URLSearchParams({queue: "0", count: 1, bodies: 1, confirm: 1});
        const answers = await Promise.all([
            fetch("/api/syphon", {method: "POST", headers, body}),
            fetch("/api/peek?" + queue),
        ]);
        return answers.map(answer => answer.status);
    }""")
    assert statuses == [403, 403]


@pytest.mark.rule("O3")
@pytest.mark.usefixtures("waiting_message")
def test_body_with_markup_is_shown_as_text_to_an_operator(
    real_console: ConsoleProcess, open_url: OpenUrl
):
    page = open_url(real_console.login_url)
    page.section("Backlog queues").get_by_role("button", name="Peek at ").click()
    page.button("Continue").click()
    page.button("Peek").click()
    expect(page.dialog).to_contain_text(MARKUP)
    expect(page.dialog.locator("pre")).to_have_count(0)
    page.button("Show bodies…").click()
    page.button("Show bodies").click()

    expect(page.dialog.locator("pre")).to_contain_text(MARKUP)
    assert page.page.evaluate("document.body.dataset.hacked") is None
    assert "peek at bodies" in (real_console.folder / "audit.jsonl").read_text()


@pytest.mark.rule("O2")
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_hundred_open_pages_are_updated(
    backlog: Backlog, path: str, real_console: ConsoleProcess, open_url: OpenUrl
):
    link = f"{real_console.url}/#token={real_console.token('viewer')}"
    pages = []
    for _ in range(20):
        # On a machine that is too slow for 100 pages, connections end, and the pages reconnect.
        first = open_url(link, expected_errors=REFUSED)
        others = [
            open_url(real_console.url, beside=first, expected_errors=REFUSED) for _ in range(4)
        ]
        pages += [first, *others]

    backlog.put(path, numbered(7))

    for page in pages:
        expect(page.get("#figures dd").first).to_have_text("7")
    assert len(pages) == 100
