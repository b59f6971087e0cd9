"""The page in every state: it fits every width, it is accessible, and names are only text."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.browser_page import BrowserPage
from tests.browser.scenes import SCENES
from tests.browser.snapshots import NOW, Snapshot
from tests.browser.stand_in import StandIn
from tests.browser.states import HEBREW, LONG_NAME, MARKUP, OVERRIDE, STATES, failover
from tests.browser.views import WIDTHS

OpenPage = Callable[..., BrowserPage]

pytestmark = pytest.mark.rule("O2")

CHECKED_VIEWS: list[tuple[int, str, tuple[str, ...]]] = [
    (1400, "light", ()),
    (390, "dark", ("color-contrast", "target-size")),
]
"""The views in which accessibility is checked: each layout and each scheme once, with the rules of
axe-core. Nothing but colors and sizes depends on the view."""
ONLY_PICTURES = {"all_paths", "redrive_form", "redriven", "peek", "login"}
"""Scenes that have nothing that others do not have."""
ALWAYS_CHECKED = {
    "failover",
    "healthy",
    "login_refused",
    "many_paths",
    "names_with_markup",
    "redrive",
    "right_to_left_names",
}
"""The other scenes are checked by `make soak`: each takes seconds of CPU time."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ALWAYS_CHECKED else pytest.mark.soak)
        for name in sorted(SCENES.keys() - ONLY_PICTURES)
    ],
)
def test_page_fits_every_width_and_is_accessible(name: str, console: StandIn, open_page: OpenPage):
    scene = SCENES[name]
    scene.prepare(console)
    page = open_page(loads=False, expected_errors=("status of 401",))
    scene.show(page)
    problems = []
    for width in WIDTHS:
        page.set_view(width, "light")
        if overflow := page.overflow():
            problems.append(f"{width}: {overflow} pixels too wide")
        problems += [f"{width}: cut off: {text}" for text in page.cut_off_texts()]
    for width, scheme, rules in CHECKED_VIEWS:
        page.set_view(width, scheme)
        problems += [f"{width} {scheme}: {each}" for each in page.accessibility_violations(*rules)]

    assert problems == []


@pytest.mark.parametrize(
    ("name", "level", "title"),
    [
        ("healthy", "Good.", "Good. pairbus console"),
        ("draining", "Warning.", "Warning. pairbus console"),
        ("stuck", "Problem.", "Problem. pairbus console"),
    ],
)
def test_level_is_shown_as_word_icon_and_title(
    name: str, level: str, title: str, console: StandIn, open_page: OpenPage
):
    console.snapshot = STATES[name]()
    page = open_page()

    expect(page.get("#summary .sentence")).to_have_text(f"{level} {console.snapshot['sentence']}")
    expect(page.get("#summary svg")).to_have_count(1)
    expect(page.page).to_have_title(title)


def test_sections_show_the_figures_of_the_snapshot(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["draining"]()
    page = open_page()

    figures = page.get("#figures > div").all_inner_texts()
    assert [figure.replace("\u202f", " ").split("\n") for figure in figures] == [
        ["Waiting", "12 430"],
        ["Oldest", "4 min"],
        ["Drain rate", "812 /s"],
        ["Time to go", "4 min"],
        ["Dead letters", "0"],
        ["Throttled in 60 min", "17"],
        ["Cost so far", "0.0257 USD"],
    ]
    expect(page.section("Paths")).to_contain_text("2 draining.")
    expect(page.section("Backlog").get_by_role("row", name="orders 9 810 4 min")).to_be_visible()
    expect(page.section("Syphon")).to_contain_text("At most 100 messages a second to invoices.")
    expect(page.section("Syphon")).to_contain_text("14 sends, 0 receives")
    expect(page.section("Senders").get_by_role("row", name="web-2")).to_contain_text("2 draining")
    forecast = "The forecast, with the drain of what waits, is 0.3100 USD."
    expect(page.section("Cost")).to_contain_text(forecast)


def test_senders_show_what_is_wrong_with_them(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["secondary_down"]()
    console.snapshot["senders"][0] |= {"silent": True, "omitted_paths": 7}
    console.snapshot["omitted_senders"] = 1200
    page = open_page()

    section = page.section("Senders")
    expect(section).to_contain_text("1\u202f203 senders; 1 silent; 1\u202f200 not listed.")
    row = section.get_by_role("row", name="web-1")
    for text in ("secondary not available", "2 failover", "and 7 others", "silent"):
        expect(row.get_by_text(text, exact=True)).to_be_visible()


def test_path_names_the_senders_that_have_it_in_its_state(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["many_paths"]()
    suspect = console.snapshot["paths"][31]
    suspect |= {"senders": 2, "named_senders": ["web-1 · 4701", f"{HEBREW} · 4702"]}
    page = open_page()

    rows = page.section("Paths").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("web-0 · 4700, web-1 · 4701, web-2 · 4702 and 209 other")
    expect(rows.nth(1).get_by_role("cell").nth(2)).to_have_text("212")
    page.section("Paths").get_by_role("searchbox").fill(suspect["path"])
    expect(rows.nth(1)).to_contain_text(f"web-1 · 4701, {HEBREW} · 4702")
    expect(rows.nth(1).get_by_role("cell").nth(2)).to_have_text("2 of 212")


def test_unknown_backlog_is_not_called_empty(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["secondary_down"]()
    page = open_page()

    figures = page.get("#figures")
    for label in ("Waiting", "Dead letters"):
        figure = figures.locator("div", has=page.page.get_by_text(label, exact=True))
        expect(figure.locator("dd")).to_have_text("\u2013")
    expect(page.section("Backlog")).to_contain_text("The backlog could not be read at 16:59:48.")
    for section in ("Backlog queues", "Dead letters"):
        expect(page.section(section)).to_contain_text("not known, because the backlog was not read")
    expect(page.get("#dashboard")).not_to_contain_text("No messages wait.")
    expect(page.get("#dashboard")).not_to_contain_text("No dead letters.")


def test_syphon_that_has_ended_is_a_problem_only_while_messages_wait(
    console: StandIn, open_page: OpenPage
):
    console.snapshot = SCENES["drained"].state()
    page = open_page()
    badge = page.section("Syphon").locator(".badge")
    expect(badge).to_have_attribute("data-state", "stopped")
    expect(page.section("Syphon")).to_contain_text("Reason: it has drained the backlog and ended.")

    waiting = failover()
    console.show(waiting | {"syphon": waiting["syphon"] | {"running": False}})

    expect(badge).to_have_attribute("data-state", "bad")


def test_new_snapshot_appears_without_a_reload(console: StandIn, open_page: OpenPage):
    page = open_page()
    expect(page.get("#summary-level")).to_have_text("Good.")

    console.show(failover())

    expect(page.get("#summary-level")).to_have_text("Problem.")
    rows = page.section("Paths").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("failover")
    expect(page.get("#announcer")).to_contain_text("Failover: messages for invoices and orders")


def test_charts_show_the_history_and_describe_it(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["draining"]()
    page = open_page()

    chart = page.section("History").get_by_role("img").first
    label = "Waiting messages of the last 60 min: now 12\u202f430, at most 24\u202f860."
    expect(chart).to_have_attribute("aria-label", label)
    page.button("Last 6 h").click()
    expect(chart).to_have_attribute("aria-label", re.compile("of the last 6 h: "))
    expect(page.button("Last 6 h")).to_have_attribute("aria-pressed", "true")
    expect(page.button("Last 1 h")).to_have_attribute("aria-pressed", "false")


@pytest.mark.parametrize(
    ("history", "description"),
    [
        ({"times": [], "backlog": [], "rate": [], "throttled": []}, "no data yet."),
        (
            {"times": [NOW.timestamp()], "backlog": [2], "rate": [None], "throttled": [0]},
            "of the last 60 min: now 2, at most 2.",
        ),
        (
            {"times": [1, 2], "backlog": [None, None], "rate": [None, 1], "throttled": [0, 0]},
            "no data yet.",
        ),
    ],
)
def test_charts_of_a_new_console(
    history: dict[str, list[Any]], description: str, console: StandIn, open_page: OpenPage
):
    console.history = history
    page = open_page()

    chart = page.section("History").get_by_role("img").first
    expect(chart).to_have_attribute("aria-label", re.compile(re.escape(description)))


def test_pointer_on_a_chart_shows_the_value_at_that_time(console: StandIn, open_page: OpenPage):
    console.snapshot = failover()
    page = open_page()
    value = page.section("History").locator(".value").first
    expect(value).to_have_text("12\u202f430")

    page.get(".chart .u-over").first.hover()

    expect(value).to_have_text(re.compile(r" at 16:30$"))


def test_accessibility_check_finds_missing_labels_and_weak_contrast(open_page: OpenPage):
    page = open_page()
    page.page.evaluate("""() => {
        document.getElementById("logout").textContent = "";
        document.getElementById("role").style.color = "#aaa";
    }""")

    ids = {violation.partition("\n")[0] for violation in page.accessibility_violations()}
    assert ids == {"button-name", "color-contrast"}


@pytest.mark.rule("O3")
def test_names_with_markup_are_shown_as_text(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["names_with_markup"]()
    page = open_page()

    for section in ("Summary", "Paths", "Backlog", "Dead letters", "Senders", "Syphon", "Events"):
        expect(page.section(section)).to_contain_text(MARKUP)
    assert page.page.evaluate("document.body.dataset.hacked") is None
    assert page.get("main img, main script, main b, main [onload]").count() == 0


@pytest.mark.rule("O3")
def test_invisible_characters_are_shown_as_codes(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["right_to_left_names"]()
    page = open_page()

    shown = "orders⟨U+202E⟩gnp.exe⟨U+0000⟩⟨U+200B⟩⟨U+000A⟩"
    expect(page.section("Paths").get_by_text(shown, exact=True).first).to_be_visible()
    expect(page.section("Paths").get_by_text(HEBREW, exact=True).first).to_be_visible()
    text = page.page.evaluate("document.body.textContent")
    assert not set("\u202e\u0000\u200b") & set(text)
    assert set("\u202e\u0000\u200b") < set(OVERRIDE)


@pytest.mark.rule("O3")
def test_text_of_a_megabyte_is_cut(console: StandIn, open_page: OpenPage):
    snapshot: Snapshot = failover()
    snapshot["paths"][0]["cause"] = "x" * 1_000_000
    snapshot["events"][0]["text"] = "\u202e" * 1_000_000
    console.snapshot = snapshot
    page = open_page(width=390)

    expect(page.section("Paths")).to_contain_text("… (1\u202f000\u202f000 characters)")
    assert page.overflow() == 0
    assert len(page.page.evaluate("document.body.textContent")) < 30_000


def test_long_name_is_shown_in_full(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["long_names"]()
    page = open_page(width=390)

    expect(page.section("Paths").get_by_text(LONG_NAME, exact=True).first).to_be_visible()


def test_long_table_is_cut_filtered_and_shown_on_request(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["many_paths"]()
    page = open_page()
    section = page.section("Paths")
    rows = section.locator("tbody tr")

    expect(section).to_contain_text("31 failover, 2 suspect, 9 draining, 158 healthy.")
    expect(rows).to_have_count(15)
    expect(rows.first).to_contain_text("failover")
    section.get_by_role("button", name="Show all 200").click()
    expect(rows).to_have_count(200)
    section.get_by_role("searchbox", name="Filter: Paths").fill("tenant-19")
    expect(rows).to_have_count(10)
    assert page.overflow() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_tab_key_reaches_every_control_in_reading_order_with_a_visible_focus(
    width: int, scheme: str, console: StandIn, open_page: OpenPage
):
    console.snapshot = STATES["many_dead_letters"]() | {"paths": failover()["paths"]}
    page = open_page(width=width, scheme=scheme)
    controls = page.focusable_names()
    assert controls[:2] == ["Skip to the content", "Log out"]
    assert {"Mark healthy: orders", "Pause…", "Redrive: invoices, EntityNotFound"} < set(controls)

    reached = []
    for _ in controls:
        page.page.keyboard.press("Tab")
        focus = page.focused()
        assert focus.outline_px >= 2, focus
        assert focus.is_in_view, focus
        reached.append(focus.name)

    assert reached == controls


def test_focus_stays_on_a_row_that_moves(console: StandIn, open_page: OpenPage):
    snapshot = failover()
    snapshot["paths"] = snapshot["paths"][:2]
    console.snapshot = snapshot
    page = open_page()
    mark = page.button("Mark healthy: orders")
    mark.focus()

    changed = failover()
    changed["paths"][0]["state"] = "draining"  # invoices, which was before orders, is now after it
    console.show(changed)

    expect(page.section("Paths").locator("tbody tr").first).to_contain_text("orders")
    expect(mark).to_be_focused()
