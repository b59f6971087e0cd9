"""Reports of senders, and the commands for them."""

import json
from typing import Any

import pytest

from pairbus.console.sender_report import InvalidReport, parse_report
from pairbus.console.senders import (
    COMMAND_LIFETIME_S,
    MAX_EVENTS_KEPT,
    MAX_REPORTED_PATHS,
    MAX_SENDERS,
    REMOVED_AFTER_S,
    SILENT_AFTER_S,
    SenderRegistry,
    TooManySenders,
)
from pairbus.events import PathStatus
from tests.console_client import report

NOW = 1_000_000.0


@pytest.fixture
def registry() -> SenderRegistry:
    return SenderRegistry("orders")


def accept(registry: SenderRegistry, now: float = NOW, **changes: Any) -> list[dict[str, str]]:
    commands = registry.accept(parse_report(report(**changes)), now)
    return [command.to_json() for command in commands]


@pytest.mark.rule("O2", "O4")
def test_state_of_a_path_is_the_most_severe_of_all_senders(registry: SenderRegistry):
    for number, state in enumerate(("healthy", "failover", "draining", "failover")):
        accept(registry, sender=f"s{number}", state=state)
    accept(registry, sender="s9", path="invoices")

    summaries = [(path.path, path.state, path.senders) for path in registry.paths()]

    assert summaries == [
        ("orders", PathStatus.FAILOVER, 2),
        ("invoices", PathStatus.HEALTHY, 1),
    ]
    assert registry.paths()[0].cause == "ServiceBusConnectionError: refused"


@pytest.mark.rule("O2")
def test_path_names_the_senders_that_failed_first(registry: SenderRegistry):
    for number in range(6):
        since = f"2026-11-17T17:00:0{9 - number}Z"
        accept(registry, sender=f"s{number}", process=number, state="failover", since=since)
    accept(registry, sender="s6", process=6)
    accept(registry, sender="s7", path="invoices")

    failed, healthy = registry.paths()

    assert failed.named_senders == ("web-1 · 5", "web-1 · 4", "web-1 · 3")
    assert (failed.senders, failed.all_senders) == (6, 7)
    assert healthy.named_senders == ()


@pytest.mark.rule("O2")
def test_throttled_messages_count_from_the_first_report_of_a_sender(registry: SenderRegistry):
    for sender, throttled in (("a", 900), ("a", 905), ("b", 7000), ("a", 905), ("b", 7001)):
        accept(registry, sender=sender, throttled=throttled)
    accept(registry, sender="a", throttled=907, closed=True)

    assert registry.throttled == 5 + 1 + 2


@pytest.mark.rule("O2")
def test_sender_is_silent_then_removed(registry: SenderRegistry):
    accept(registry)
    (sender,) = registry.senders()

    assert not sender.is_silent(NOW + SILENT_AFTER_S)
    assert sender.is_silent(NOW + SILENT_AFTER_S + 1)
    assert sender.to_json(NOW + SILENT_AFTER_S + 1)["silent"] is True
    registry.expire(NOW + REMOVED_AFTER_S)
    assert len(registry.senders()) == 1
    registry.expire(NOW + REMOVED_AFTER_S + 1)
    assert registry.senders() == []


def test_sender_that_was_closed_is_removed_with_its_last_events(registry: SenderRegistry):
    event = {"time": "2026-11-17T17:00:00Z", "kind": "StateChanged", "text": "last"}
    accept(registry)

    assert accept(registry, closed=True, events=[event]) == []
    assert registry.senders() == []
    assert [event.text for event in registry.events] == ["last"]


@pytest.mark.rule("O2", "O4")
def test_command_is_repeated_until_it_is_done(registry: SenderRegistry):
    accept(registry, state="failover")

    assert registry.mark_healthy("orders", NOW) == 1
    (command,) = accept(registry, state="failover")
    assert (command["action"], command["path"]) == ("mark-healthy", "orders")
    assert accept(registry, state="failover") == [command]
    assert accept(registry, state="healthy", done=[command["id"], 7, None]) == []


def test_second_command_for_a_path_waits_for_the_first(registry: SenderRegistry):
    accept(registry, state="failover")
    registry.mark_healthy("orders", NOW)
    registry.mark_healthy("orders", NOW)

    assert len(accept(registry, state="failover")) == 1


def test_command_expires(registry: SenderRegistry):
    accept(registry, state="failover")
    registry.mark_healthy("orders", NOW)

    assert accept(registry, NOW + COMMAND_LIFETIME_S + 1, state="failover") == []


def test_healthy_and_silent_senders_get_no_command(registry: SenderRegistry):
    accept(registry, sender="s1", state="healthy")
    accept(registry, sender="s2", state="failover", now=NOW - SILENT_AFTER_S - 1)

    assert registry.mark_healthy("orders", NOW) == 0


def test_sender_of_another_pairing_is_named_and_not_shown(registry: SenderRegistry):
    accept(registry, primary_name="other", state="failover")

    assert registry.senders() == []
    assert list(registry.foreign()) == [("web-1", "other")]


def test_name_of_the_primary_is_compared_without_case(registry: SenderRegistry):
    accept(registry, primary_name="ORDERS")

    assert len(registry.senders()) == 1


def test_repeated_events_are_kept_once(registry: SenderRegistry):
    events = [
        {"time": f"2026-11-17T17:00:0{n}Z", "kind": "StateChanged", "text": f"event {n}"}
        for n in range(3)
    ]

    accept(registry, events=events[:2])
    accept(registry, events=events)

    assert [event.text for event in registry.events] == ["event 0", "event 1", "event 2"]
    assert {event.source for event in registry.events} == {"web-1 · 4711"}


def test_senders_and_events_are_bounded(registry: SenderRegistry):
    event = {"time": "2026-11-17T17:00:00Z", "kind": "StateChanged", "text": "x"}
    for number in range(MAX_SENDERS):
        accept(registry, sender=f"s{number}", events=[event])

    with pytest.raises(TooManySenders):
        accept(registry, sender="one more")
    assert len(registry.events) == MAX_EVENTS_KEPT


def test_paths_of_all_senders_together_are_bounded(registry: SenderRegistry):
    paths = report()["paths"] * 500
    for number in range(MAX_REPORTED_PATHS // 500):
        accept(registry, sender=f"s{number}", paths=paths)
        accept(registry, sender=f"s{number}", paths=paths)  # the same ones again

    with pytest.raises(TooManySenders, match="paths"):
        accept(registry, sender="one more")
    accept(registry, sender="s0", closed=True, paths=paths)
    accept(registry, sender="one more")


@pytest.mark.rule("O3")
def test_names_are_kept_as_they_are_and_cut_off(registry: SenderRegistry):
    markup = '<script>alert("1")</script>\x00\u202e'
    accept(registry, state="failover", path=markup)
    accept(registry, sender="s2", path="x" * 1_000_000, state="failover")

    paths = {path.path for path in registry.paths()}

    assert markup in paths
    assert max(map(len, paths)) < 400
    assert registry.mark_healthy(markup, NOW) == 1


@pytest.mark.rule("O3")
def test_text_with_lone_surrogates_can_be_encoded(registry: SenderRegistry):
    accept(registry, path=json.loads('"\\ud800"'), state="failover")

    path = registry.paths()[0].to_json()

    assert json.dumps(path, ensure_ascii=False).encode()


def changed(*keys: str, value: Any) -> dict[str, Any]:
    values = report()
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return values


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        "text",
        {},
        changed("version", value=2),
        changed("sender", value=None),
        changed("sender", "id", value=""),
        changed("sender", "id", value="x" * 65),
        changed("sender", "id", value="a\nb"),
        changed("sender", "process", value="4711"),
        changed("sender", "started_at", value="yesterday"),
        changed("secondary_available", value=1),
        changed("paths", value=[{"path": "orders"}]),
        changed("paths", value=[{"path": "a", "state": "x", "since": "2026-11-17", "cause": None}]),
        changed("paths", value=[1]),
        changed("paths", value=report()["paths"] * 501),
        changed("events", value=[{"time": "2026-11-17T00:00Z", "kind": "x", "text": "x"}] * 51),
        changed("events", value=[{"time": 5, "kind": "x", "text": "x"}]),
        changed("counts", value={}),
        changed("counts", "sent", value=-1),
        changed("counts", "sent", value=True),
        changed("counts", "sent", value=2**80),
        changed("done", value="x"),
        changed("done", value=["x"] * 501),
        changed("omitted_paths", value=-1),
    ],
)
def test_invalid_report_is_refused(values: Any):
    with pytest.raises(InvalidReport):
        parse_report(values)
