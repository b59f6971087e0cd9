"""The level, the sentence and the problems."""

from typing import Any

import pytest

from pairbus.console.sentence import Situation, describe, duration, number
from pairbus.events import PathStatus

pytestmark = pytest.mark.rule("O2")

RUNNING = {"known": True, "running": True, "healthy": True, "paused": False, "problem": None}
STOPPED = {"known": True, "running": False, "healthy": False, "problem": "it was stopped"}


def situation(**changes: Any) -> Situation:
    values: dict[str, Any] = {
        "senders": 3,
        "inspected": True,
        "waiting": 0,
        "paths": {PathStatus.HEALTHY: ("orders",)},
        "syphon": RUNNING,
    }
    return Situation(**(values | changes))


def in_state(status: PathStatus, *paths: str) -> dict[PathStatus, tuple[str, ...]]:
    return {status: paths or ("orders",)}


def test_healthy_pairing_is_good():
    description = describe(situation())

    assert description.level == "good"
    assert description.sentence == "Sending works. The backlog is empty."
    assert description.problems == ()


def test_drain_is_a_warning_with_time_to_go():
    description = describe(
        situation(
            waiting=12_430, destinations=("orders",), syphon=RUNNING | {"seconds_to_go": 240.0}
        )
    )

    assert description.level == "warning"
    assert description.sentence == (
        "Sending works. 12\u202f430 messages wait for orders; the drain needs about 4 min."
    )


def test_failover_is_bad_and_says_why():
    description = describe(
        situation(
            paths=in_state(PathStatus.FAILOVER, "orders", "invoices"),
            causes=("refused", "refused"),
            waiting=1,
            destinations=("orders", "invoices", "shipments"),
        )
    )

    assert description.level == "bad"
    assert description.sentence == (
        "Failover: messages for orders and invoices are stored in the backlog. 1 message waits for "
        "orders and 2 others; the syphon is running."
    )
    assert description.problems == ("Cause of the failover: refused",)


def test_cause_of_failed_sends_is_not_called_that_of_a_failover():
    description = describe(
        situation(paths=in_state(PathStatus.SUSPECT), causes=("refused",), waiting=0)
    )

    assert description.problems == ("Cause of the failed sends: refused",)


@pytest.mark.parametrize(
    ("changes", "level", "sentence"),
    [
        (
            {"paths": in_state(PathStatus.FAILOVER), "without_secondary": 2},
            "bad",
            "Sending fails for orders: neither namespace is available to 2 senders.",
        ),
        (
            {"paths": in_state(PathStatus.SUSPECT)},
            "bad",
            "Sends to orders fail; failover follows.",
        ),
        ({"silent": 3}, "bad", "It is not known if sending works: all senders are silent."),
        ({"senders": 0}, "good", "The namespaces are available. No sender reports."),
        (
            {"senders": 0, "inspected": False, "waiting": None},
            "warning",
            "Nothing is known yet. No sender reports.",
        ),
        (
            {"senders": 0, "unavailable": {"primary": "refused"}},
            "bad",
            "The primary is not available. No sender reports.",
        ),
        ({"waiting": None}, "bad", "Sending works. The backlog could not be read."),
    ],
)
def test_sending(changes: dict[str, Any], level: str, sentence: str):
    description = describe(situation(**changes))

    assert description.level == level
    assert description.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a" * 80,), "a" * 80),
        (("a" * 200,), "a" * 79 + "…"),
        (("orders", "invoices"), "orders and invoices"),
        (("orders", "x" * 200), "orders and 1 other"),
        (("orders", "invoices", "returns"), "orders and 2 others"),
    ],
)
def test_names_of_paths(names: tuple[str, ...], text: str):
    description = describe(situation(paths=in_state(PathStatus.SUSPECT, *names)))

    assert description.sentence.startswith(f"Sends to {text} fail;")


def test_backlog_is_not_called_empty_in_failover():
    description = describe(situation(paths=in_state(PathStatus.FAILOVER)))

    assert description.sentence == "Failover: messages for orders are stored in the backlog."


def test_messages_that_were_not_counted_are_a_lower_bound():
    description = describe(situation(waiting=350, waiting_is_lower_bound=True))

    assert "At least 350 messages wait;" in description.sentence


@pytest.mark.parametrize(
    ("syphon", "level", "text"),
    [
        (STOPPED, "bad", "no syphon is running."),
        ({"known": False}, "warning", "it is not known if a syphon is running."),
        (RUNNING | {"paused": True}, "warning", "the syphon is paused."),
        (RUNNING | {"healthy": False, "problem": "x"}, "bad", "the syphon makes no progress."),
    ],
)
def test_waiting_messages(syphon: dict[str, Any], level: str, text: str):
    description = describe(situation(waiting=2, syphon=syphon))

    assert description.level == level
    assert description.sentence == f"Sending works. 2 messages wait; {text}"


@pytest.mark.parametrize(
    ("changes", "level", "problem"),
    [
        (
            {"unavailable": {"secondary": "refused\n"}},
            "bad",
            "The secondary is not available: refused⟨U+000A⟩.",
        ),
        ({"without_secondary": 1}, "bad", "The secondary is not available to 1 sender."),
        ({"silent": 1}, "warning", "1 sender has stopped reporting."),
        ({"dead_letters": 100_000}, "warning", "100\u202f000 messages are dead-lettered."),
        ({"backlog_problem": "no right"}, "bad", "Backlog: no right."),
        (
            {"paths": in_state(PathStatus.DRAINING), "waiting": 5},
            "warning",
            "orders: the primary is back, and the backlog is drained first.",
        ),
        ({"paths": in_state(PathStatus.DRAINING)}, "warning", "orders: failback follows."),
        ({"syphon": RUNNING | {"problem": "stuck"}}, "bad", "Syphon: stuck."),
        ({"queue_mismatch": "--backlog-queues is 1"}, "warning", "--backlog-queues is 1"),
        (
            {"foreign": (("web-9", "other"),)},
            "warning",
            "The sender on web-9 reports the pairing 'other', which this console does not show.",
        ),
        ({"problems": ("The disk is full.",)}, "warning", "The disk is full."),
    ],
)
def test_problems(changes: dict[str, Any], level: str, problem: str):
    description = describe(situation(**changes))

    assert description.level == level
    assert problem in description.problems


def test_stopped_syphon_is_no_problem_without_a_backlog():
    assert describe(situation(syphon=STOPPED)).problems == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (99, "99 s"),
        (240, "4 min"),
        (9_000, "2 h 30 min"),
        (7_200, "2 h"),
        (400_000, "4 d 15 h"),
        (30 * 86_400, "30 d"),
    ],
)
def test_duration_in_words(seconds: float, text: str):
    assert duration(seconds) == text


def test_number_has_thin_spaces():
    assert number(1_234_567) == "1\u202f234\u202f567"
