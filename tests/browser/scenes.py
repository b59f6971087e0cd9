"""What a person can see on the page: each state, and each dialog and form."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from playwright.sync_api import expect

from pairbus.backlog.syphon_control import Control
from pairbus.console.inspection import SyphonView
from tests.browser.browser_page import BrowserPage
from tests.browser.snapshots import (
    Snapshot,
    destination,
    inspection,
    path,
    queue,
    report,
    snapshot,
    syphon,
)
from tests.browser.stand_in import Request, StandIn, answer_action
from tests.browser.states import STATES, failover, healthy, many_dead_letters, many_paths

BODY = '{\n  "order": 4711,\n  "items": [{"sku": "A-100", "count": 2}],\n  "total": "49.90 EUR"\n}'
PREVIEWS = {
    "/api/paths/mark-healthy": "3 senders send to orders in the primary again, with the next "
    "report. If the primary does not accept messages, failover follows again. Messages in the "
    "backlog may be delivered after newer ones.",
    "/api/redrive": "Moves about 81\u202f202 dead letters with the reason MaxDeliveryCountExceeded "
    "to orders, at most 50 a second. A message that its destination refuses stays a dead letter.",
    "/api/peek": "Shows up to 10 messages of orders/x-servicebus-transfer/7 with their bodies, and "
    "leaves them there.",
}
COSTS = {
    "/api/redrive": "About 343\u202f606 operations, 0.27 USD.",
    "/api/peek": "Up to 10 operations.",
}
REDRIVE = "Redrive: orders, MaxDeliveryCountExceeded"
PEEK = "Peek at orders/x-servicebus-transfer/7"


def answer(request: Request) -> tuple[int, dict[str, Any]]:
    """Answer actions with texts like those of the console."""
    if not request.confirm and request.path in PREVIEWS:
        cost = COSTS.get(request.path, "This costs nothing.")
        return 200, {"text": PREVIEWS[request.path], "cost": cost}
    if request.path == "/api/peek" and request.confirm:
        return 200, {"messages": _messages(request), "text": "3 shown, 3 operations billed."}
    return answer_action(request)


def _messages(request: Request) -> list[dict[str, Any]]:
    message = {"destination": "orders", "enqueued_at": "2026-11-17T16:56:01.000Z", "size": 1024}
    bodies = {"body": BODY, "body_encoding": "utf-8"} if request.values["bodies"] == "1" else {}
    return [
        message | {"sequence_number": number, "message_id": f"order-{number:08}"} | bodies
        for number in (4711, 4712, 4713)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A snapshot, and what a person has done on the page."""

    state: Callable[[], Snapshot]
    act: Callable[[BrowserPage], None] = lambda page: None
    role: str = "operator"
    needs_login: bool = False

    def prepare(self, console: StandIn) -> None:
        """Make a stand-in show the scene."""
        console.snapshot = self.state() | {"role": self.role}
        console.needs_login = self.needs_login
        console.answer = answer

    def show(self, page: BrowserPage) -> None:
        """Load the page, and do what the person has done."""
        if self.needs_login:
            page.page.goto(page.url)
        else:
            page.load()
        self.act(page)


def _log_in_with_a_wrong_token(page: BrowserPage) -> None:
    page.page.get_by_label("Token").fill("wrong")
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_role("alert")).not_to_be_empty()


def _mark_healthy(page: BrowserPage) -> None:
    page.button("Mark healthy: orders").click()
    expect(page.button("Mark healthy")).to_be_focused()


def _redrive_form(page: BrowserPage) -> None:
    page.button(REDRIVE).click()
    page.dialog.get_by_label("Messages a second").fill("50")


def _redrive(page: BrowserPage) -> None:
    _redrive_form(page)
    page.button("Continue").click()
    expect(page.button("Redrive")).to_be_focused()


def _redriven(page: BrowserPage) -> None:
    _redrive(page)
    page.button("Redrive").click()
    expect(page.get("#notice-text")).not_to_be_empty()


def _peek(page: BrowserPage) -> None:
    page.button(PEEK).click()
    page.button("Continue").click()
    page.button("Peek").click()
    page.dialog.get_by_label("Messages", exact=True).wait_for()


def _peek_at_bodies(page: BrowserPage) -> None:
    _peek(page)
    page.button("Show bodies…").click()
    page.button("Show bodies").click()
    page.dialog.locator("pre").nth(2).wait_for()


def _show_all_paths(page: BrowserPage) -> None:
    page.section("Paths").get_by_role("button", name="Show all 200").click()


def _paused() -> Snapshot:
    control = Control(paused=True, paused_destinations=("invoices",), max_rates={"orders": 50.0})
    return snapshot(
        report(1, path("orders")), seen=inspection(), syphon=syphon(control, paused=True)
    )


def _drained() -> Snapshot:
    ended = syphon(running=False, problem="it has drained the backlog and ended", moved=48_120)
    return snapshot(report(1, path("orders")), seen=inspection(), syphon=ended)


def _lower_bounds() -> Snapshot:
    """Return a snapshot of a console without the Manage right."""
    peeked = replace(queue(0, 50, oldest=240), more_messages=True)
    seen = inspection(peeked, destinations=[destination("orders", 50, 240)], estimated=True)
    return snapshot(report(1, path("orders", "failover", since=242)), seen=seen, syphon=syphon())


def _unreadable_status_file() -> Snapshot:
    problem = "The status file cannot be read: [Errno 13] Permission denied: 'status.json'"
    view = SyphonView(problem=problem)
    return snapshot(report(1, path("orders")), seen=inspection(), syphon=view)


SCENES: dict[str, Scene] = {
    **{name: Scene(state=state) for name, state in STATES.items()},
    "viewer": Scene(state=failover, role="viewer"),
    "login": Scene(state=healthy, needs_login=True),
    "login_refused": Scene(state=healthy, needs_login=True, act=_log_in_with_a_wrong_token),
    "mark_healthy": Scene(state=failover, act=_mark_healthy),
    "redrive_form": Scene(state=many_dead_letters, act=_redrive_form),
    "redrive": Scene(state=many_dead_letters, act=_redrive),
    "redriven": Scene(state=many_dead_letters, act=_redriven),
    "peek": Scene(state=failover, act=_peek),
    "peek_at_bodies": Scene(state=failover, act=_peek_at_bodies),
    "all_paths": Scene(state=many_paths, act=_show_all_paths),
    "paused": Scene(state=_paused),
    "drained": Scene(state=_drained),
    "lower_bounds": Scene(state=_lower_bounds),
    "unreadable_status_file": Scene(state=_unreadable_status_file),
}
