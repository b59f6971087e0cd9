"""The texts of actions, and their input."""

from pathlib import Path
from typing import Any

import pytest

from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.backlog.target import InspectionTarget
from pairbus.console.actions import FREE, ConsoleActions
from pairbus.console.estimates import MessageEstimate
from pairbus.console.inspection import NamespaceInspection
from pairbus.console.ledger_cost import OutagePrice
from pairbus.console.peeking import PeekBudget, PeekRequest
from pairbus.console.redrives import RedriveJobs
from pairbus.console.sender_report import parse_report
from pairbus.console.senders import SenderRegistry
from pairbus.cost.prices import Tier, read_prices
from pairbus.errors import ConfigurationError
from pairbus.spark.usage import NO_USAGE
from tests.commands import ONE, TWO
from tests.console_client import report

pytestmark = pytest.mark.rule("O2")

NOW = 1_000_000.0
LONG = "r" * 1_000
TARGET = InspectionTarget.parse(primary=ONE, secondary=TWO, backlog_queue_count=2)
INSPECTION = NamespaceInspection(
    time_ms=0,
    probes={},
    backlog=BacklogContents(
        queues=(QueueContents(path="one/x-servicebus-transfer/7", index=7),), expected=2
    ),
    dead_letters=(
        MessageEstimate("orders", "Broken", 30.0),
        MessageEstimate("orders", None, 5.0),
        MessageEstimate("invoices", LONG, 65.0),
    ),
)


@pytest.fixture
def control(tmp_path: Path) -> ControlFile:
    return ControlFile(tmp_path / "control.json")


@pytest.fixture
def actions(control: ControlFile) -> ConsoleActions:
    price = OutagePrice(read_prices(), Tier.STANDARD)
    return ConsoleActions(TARGET, control, RedriveJobs(NO_USAGE), price)


def test_plan_changes_nothing_until_it_is_run(actions: ConsoleActions, control: ControlFile):
    with control.in_use():
        plan = actions.syphon({"action": "pause", "destination": "orders"})

    assert plan.to_json() == {
        "text": "Pauses the drain to orders until it is resumed. The current micro-batch is "
        "finished. A restart does not end the pause.",
        "cost": FREE,
    }
    assert control.read() == Control()
    assert plan.run() == {"text": "orders is paused."}
    assert control.read() == Control(paused_destinations=("orders",))


def test_rate_and_reset(actions: ConsoleActions, control: ControlFile):
    actions.syphon({"action": "rate", "rate": 100, "destination": None}).run()
    actions.syphon({"action": "rate", "rate": 2.5, "destination": "orders"}).run()
    actions.syphon({"action": "pause"}).run()
    assert control.read() == Control(paused=True, max_rate=100, max_rates={"orders": 2.5})

    assert actions.syphon({"action": "resume"}).run() == {
        "text": "At most 100 messages a second. At most 2.5 messages a second to orders."
    }
    plan = actions.syphon({"action": "reset"})
    assert plan.run() == {"text": "The syphon is not paused, and no rate is set."}
    assert control.read() == Control()


def test_action_says_that_no_syphon_uses_the_file(actions: ConsoleActions):
    assert "No running syphon" in actions.syphon({"action": "resume"}).text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "stop"},
        {"action": ["pause"]},
        {"action": "rate", "rate": 0},
        {"action": "rate", "rate": -1},
        {"action": "rate", "rate": "5"},
        {"action": "rate", "rate": True},
        {"action": "rate", "rate": float("nan")},
        {"action": "pause", "destination": 5},
        {"action": "pause", "destination": "x" * 1_001},
    ],
)
def test_invalid_control_is_refused(actions: ConsoleActions, body: dict[str, Any]):
    with pytest.raises(ConfigurationError):
        actions.syphon(body)


def test_redrive_says_what_it_costs(actions: ConsoleActions):
    plan = actions.redrive({"reason": "Broken", "rate": 10}, INSPECTION)

    assert plan.text == (
        "Moves about 30 dead letters with the reason Broken to their destinations, at most 10 a "
        "second. A message that its destination refuses stays a dead letter."
    )
    assert plan.cost == "About 190 operations, 0.000152 USD."  # 100 peeks, 3 for each of 30


def test_number_of_a_redrive_bounds_its_cost(actions: ConsoleActions):
    plan = actions.redrive({"destination": "orders", "reason": "Broken", "count": 10}, INSPECTION)

    assert plan.text.startswith("Moves about 10 dead letters with the reason Broken to orders.")
    assert plan.cost.startswith("About 130 operations")


def test_dry_run_moves_nothing(actions: ConsoleActions):
    plan = actions.redrive({"dry_run": True}, INSPECTION)

    assert plan.name == "redrive (dry run)"
    assert plan.text == "Reads the dead letters, and counts about 100 dead letters. Moves nothing."
    assert plan.cost.startswith("About 100 operations")


def test_row_without_a_reason_means_messages_without_a_reason(actions: ConsoleActions):
    plan = actions.redrive({"reason": None, "destination": "orders"}, INSPECTION)

    assert plan.text.startswith("Moves about 5 dead letters without a reason to orders.")


def test_long_reason_that_the_page_shows_stands_for_the_whole(actions: ConsoleActions):
    shown = INSPECTION.dead_letters[2].dead_letters_to_json()["reason"]
    assert len(shown) < 400

    assert "about 65 dead letters" in actions.redrive({"reason": shown}, INSPECTION).text


@pytest.mark.parametrize(
    "body",
    [
        {"destination": None},
        {"count": 0},
        {"count": 1.5},
        {"count": "all"},
        {"rate": 0},
        {"rate": -5},
        {"reason": 5},
    ],
)
def test_invalid_redrive_is_refused(actions: ConsoleActions, body: dict[str, Any]):
    with pytest.raises(ConfigurationError):
        actions.redrive(body, INSPECTION)


def test_redrive_without_the_primary_is_refused(control: ControlFile):
    target = InspectionTarget.parse(primary=None, secondary=TWO, primary_name="one")
    price = OutagePrice(read_prices(), Tier.STANDARD)
    actions = ConsoleActions(target, control, RedriveJobs(NO_USAGE), price)

    with pytest.raises(ConfigurationError, match="--primary"):
        actions.redrive({}, INSPECTION)
    assert actions.redrive({"dry_run": True}, INSPECTION)


def test_unknown_redrive_cannot_be_cancelled(actions: ConsoleActions):
    with pytest.raises(ConfigurationError, match="not known"):
        actions.cancel_redrive("x").run()


def test_mark_healthy_reaches_the_senders_that_report(actions: ConsoleActions):
    senders = SenderRegistry("orders")
    senders.accept(parse_report(report(state="failover")), NOW)

    plan = actions.mark_healthy({"path": "orders"}, senders, NOW)

    assert plan.text.startswith("1 sender sends to orders in the primary again")
    assert plan.run() == {"text": "1 sender gets the command for orders with the next report."}


@pytest.mark.parametrize("body", [{}, {"path": ""}, {"path": "invoices"}, {"path": 5}])
def test_path_that_no_sender_has_in_failover_is_refused(
    actions: ConsoleActions, body: dict[str, Any]
):
    senders = SenderRegistry("orders")
    senders.accept(parse_report(report(state="failover")), NOW)

    with pytest.raises(ConfigurationError):
        actions.mark_healthy(body, senders, NOW)


@pytest.mark.rule("O3")
@pytest.mark.parametrize(
    ("queue", "count"),
    [
        ("orders", "1"),
        ("", "1"),
        ("other/x-servicebus-transfer/0", "1"),
        ("one/x-servicebus-transfer/0/$deadletterqueue", "1"),
        ("9" * 5_000, "1"),
        ("0", "0"),
        ("0", "101"),
        ("0", "-1"),
        ("0", "1" * 5_000),
        ("0", "x"),
    ],
)
def test_peek_is_for_some_messages_of_backlog_queues_only(queue: str, count: str):
    with pytest.raises(ConfigurationError):
        PeekRequest.parse(TARGET, queue, count, dead_letters=False, bodies=False)


def test_peek_by_index_and_by_path():
    for queue in ("1", "one/x-servicebus-transfer/1", "ONE/x-servicebus-transfer/1"):
        request = PeekRequest.parse(TARGET, queue, "5", dead_letters=True, bodies=False)
        assert request.path.lower() == "one/x-servicebus-transfer/1"
        assert "5 dead letters" in request.description


def test_messages_that_are_peeked_in_a_minute_are_bounded():
    budget = PeekBudget()

    assert all(budget.take(100, NOW + n) for n in range(10))
    assert not budget.take(1, NOW + 30)
    assert not budget.take(101, NOW + 60)
    assert budget.take(100, NOW + 60)
