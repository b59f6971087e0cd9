"""The actions of the page: each asks once, shows what it will do, and sends what was entered."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.browser_page import BrowserPage
from tests.browser.stand_in import CSRF, Request, StandIn, answer_action
from tests.browser.states import MARKUP, STATES, failover

OpenPage = Callable[..., BrowserPage]
Values = dict[str, Any]

pytestmark = pytest.mark.rule("O2")


def confirmed(console: StandIn) -> list[tuple[str, str, Values]]:
    """Return the confirmed actions. Each must have the value against forgery, unless it reads."""
    requests = console.confirmed()
    assert {request.csrf for request in requests if request.method != "GET"} <= {CSRF}
    return [(request.method, request.path, request.values) for request in requests]


def test_action_shows_what_it_will_do_before_it_is_confirmed(console: StandIn, open_page: OpenPage):
    page = open_page()

    page.button("Pause…").click()
    page.dialog.get_by_label("Destination (optional)").fill("orders")
    page.button("Continue").click()
    expect(page.dialog).to_contain_text("Will do: /api/syphon")
    expect(page.dialog).to_contain_text("12 operations, 0.0000 USD")
    assert confirmed(console) == []
    page.button("Pause").click()

    expect(page.dialog).to_have_count(0)
    expect(page.get("#notice-text")).to_have_text("Done: /api/syphon")
    expected = {"action": "pause", "destination": "orders"}
    assert confirmed(console) == [("POST", "/api/syphon", expected)]


@pytest.mark.parametrize("end", ["Cancel", "Escape"])
def test_cancelled_dialog_does_nothing(end: str, console: StandIn, open_page: OpenPage):
    page = open_page()
    page.button("Reset…").click()
    expect(page.dialog).to_contain_text("Will do: /api/syphon")

    if end == "Escape":
        page.page.keyboard.press("Escape")
    else:
        page.button("Cancel").click()

    expect(page.dialog).to_have_count(0)
    expect(page.button("Reset…")).to_be_focused()
    assert [request.confirm for request in console.requests] == [False]


def test_rate_of_a_destination_is_set_by_keyboard_alone(console: StandIn, open_page: OpenPage):
    page = open_page()
    keyboard = page.page.keyboard

    page.button("Set rate…").focus()
    keyboard.press("Enter")
    expect(page.dialog.get_by_label("Messages a second")).to_be_focused()
    keyboard.type("2.5")
    keyboard.press("Tab")
    keyboard.type("invoices")
    keyboard.press("Enter")
    expect(page.button("Set rate")).to_be_focused()
    keyboard.press("Enter")

    expect(page.dialog).to_have_count(0)
    expected = {"action": "rate", "rate": 2.5, "destination": "invoices"}
    assert confirmed(console) == [("POST", "/api/syphon", expected)]
    expect(page.button("Set rate…")).to_be_focused()


def test_paused_syphon_can_be_resumed(console: StandIn, open_page: OpenPage):
    snapshot = failover()
    snapshot["syphon"] |= {"paused": True}
    console.snapshot = snapshot
    page = open_page()

    expect(page.section("Syphon")).to_contain_text("Paused")
    expect(page.button("Pause…")).to_have_count(0)
    page.button("Resume…").click()
    page.button("Continue").click()
    page.button("Resume").click()

    expect(page.get("#notice-text")).to_have_text("Done: /api/syphon")
    expected = {"action": "resume", "destination": None}
    assert confirmed(console) == [("POST", "/api/syphon", expected)]


def test_pause_of_a_syphon_that_does_not_run_is_shown(console: StandIn, open_page: OpenPage):
    console.snapshot = failover()
    console.snapshot["syphon"] |= {"known": False, "paused": True}
    page = open_page()

    expect(page.section("Syphon")).to_contain_text("A syphon that starts is paused.")
    expect(page.button("Resume…")).to_be_visible()
    expect(page.button("Pause…")).to_have_count(0)


def test_redrive_sends_number_rate_and_dry_run(console: StandIn, open_page: OpenPage):
    console.snapshot = STATES["many_dead_letters"]()
    page = open_page()

    page.button("Redrive: invoices, EntityNotFound").click()
    expect(page.dialog).to_contain_text("18\u202f000 dead letters for invoices")
    page.dialog.get_by_label("Number of messages").fill("500")
    page.dialog.get_by_label("Messages a second").fill("50")
    page.dialog.get_by_label("Dry run").check()
    page.button("Continue").click()
    page.button("Back").click()
    page.dialog.get_by_label("Messages a second").fill("")
    page.button("Continue").click()
    page.button("Redrive").click()

    expect(page.get("#notice-text")).to_have_text("Done: /api/redrive")
    expected = {"destination": "invoices", "reason": "EntityNotFound", "count": 500}
    expected |= {"rate": None, "dry_run": True}
    assert confirmed(console) == [("POST", "/api/redrive", expected)]


def test_dead_letters_without_a_destination_cannot_be_redriven(
    console: StandIn, open_page: OpenPage
):
    group = {"destination": None, "reason": None, "messages": 3}
    console.snapshot = failover() | {"dead_letters": [group, group | {"destination": "orders"}]}
    page = open_page()

    section = page.section("Dead letters")
    expect(section).to_contain_text("unknown destination")
    expect(section.get_by_role("button")).to_have_count(1)
    page.button("Redrive: orders, no reason").click()
    page.button("Continue").click()
    page.button("Redrive").click()

    expect(page.get("#notice-text")).to_have_text("Done: /api/redrive")
    ((_, _, values),) = confirmed(console)
    assert (values["destination"], values["reason"]) == ("orders", None)


def test_running_redrive_shows_its_progress_and_can_be_cancelled(
    console: StandIn, open_page: OpenPage
):
    console.snapshot = STATES["many_dead_letters"]()
    page = open_page()
    progress = page.section("Dead letters").get_by_role("progressbar")

    expect(progress).to_have_count(1)
    assert progress.evaluate("node => node.value / node.max") == pytest.approx(23_456 / 104_658)
    page.button("Cancel: Redrive: orders, MaxDeliveryCountExceeded").click()
    page.button("Cancel the redrive").click()

    expect(page.get("#notice-text")).to_have_text("Done: /api/redrive/redrive-running")
    assert confirmed(console) == [("DELETE", "/api/redrive/redrive-running", {})]


def test_path_is_marked_healthy(console: StandIn, open_page: OpenPage):
    console.snapshot = failover()
    page = open_page()

    expect(page.button("Mark healthy: returns")).to_have_count(0)
    page.button("Mark healthy: orders").click()
    page.button("Mark healthy").click()

    expect(page.get("#notice-text")).to_have_text("Done: /api/paths/mark-healthy")
    assert confirmed(console) == [("POST", "/api/paths/mark-healthy", {"path": "orders"})]


def peek_answer(request: Request) -> tuple[int, dict[str, Any]]:
    if not request.confirm:
        return answer_action(request)
    message = {"sequence_number": 7, "message_id": MARKUP, "destination": "orders", "size": 1024}
    if request.values["bodies"] == "1":
        message["body"] = f"{MARKUP}\n\u202e{'x' * 100_000}"
    return 200, {"messages": [message], "text": "Shown: 1 of 12430 messages."}


@pytest.mark.rule("O3")
def test_bodies_are_shown_only_on_a_second_request(console: StandIn, open_page: OpenPage):
    console.snapshot = failover()
    console.answer = peek_answer
    page = open_page(width=390)

    page.button("Peek at orders/x-servicebus-transfer/7").click()
    page.button("Continue").click()
    page.button("Peek").click()
    expect(page.dialog).to_contain_text(MARKUP)
    expect(page.dialog.locator("pre")).to_have_count(0)
    page.button("Show bodies…").click()
    page.button("Show bodies").click()
    body = page.dialog.locator("pre")
    expect(body).to_contain_text(MARKUP)
    expect(body).to_contain_text("⟨U+202E⟩xxx")

    assert len(body.text_content() or "") < 25_000
    assert page.overflow() == 0
    assert page.accessibility_violations() == []
    queue = {"queue": "orders/x-servicebus-transfer/7", "count": "10", "dead_letters": "0"}
    assert confirmed(console) == [
        ("GET", "/api/peek", queue | {"bodies": "0"}),
        ("GET", "/api/peek", queue | {"bodies": "1"}),
    ]


@pytest.mark.rule("O3")
def test_viewer_sees_no_actions(console: StandIn, open_page: OpenPage):
    console.snapshot = failover() | {"role": "viewer"}
    console.snapshot["dead_letters"] = STATES["many_dead_letters"]()["dead_letters"]
    console.answer = peek_answer
    page = open_page()

    names = {name.partition(" at ")[0] for name in page.visible_button_names()}
    assert names == {
        "Log out",
        "Peek",
        "Last 1 h",
        "Last 6 h",
        "Last 24 h",
    }
    page.button("Peek at orders/x-servicebus-transfer/7").click()
    page.button("Continue").click()
    page.button("Peek").click()
    expect(page.dialog).to_contain_text("Shown: 1 of 12430 messages.")
    expect(page.button("Show bodies…")).to_have_count(0)


def test_refused_action_is_reported_in_the_dialog(console: StandIn, open_page: OpenPage):
    def refuse(request: Request) -> tuple[int, dict[str, Any]]:
        if request.confirm:
            return 409, {"error": "No syphon reads this control file."}
        return answer_action(request)

    console.answer = refuse
    page = open_page(expected_errors=("status of 409",))

    page.button("Reset…").click()
    page.button("Reset").click()
    expect(page.dialog.get_by_role("alert")).to_have_text("No syphon reads this control file.")
    expect(page.button("Reset")).to_be_enabled()
    assert page.accessibility_violations() == []


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (390, "light")])
def test_dialog_fits_and_is_accessible(
    width: int, scheme: str, console: StandIn, open_page: OpenPage
):
    console.snapshot = STATES["long_names"]()
    page = open_page(width=width, scheme=scheme)
    page.section("Dead letters").get_by_role("button", name="Redrive: ").first.click()

    expect(page.dialog.get_by_label("Number of messages")).to_be_focused()
    assert page.overflow() == 0
    assert page.accessibility_violations() == []
