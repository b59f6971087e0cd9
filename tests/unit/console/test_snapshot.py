"""The snapshot of the page."""

import json
from typing import Any

import pytest

from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.probe import ProbeResult
from pairbus.backlog.syphon_control import Control
from pairbus.backlog.syphon_file import SyphonSummary
from pairbus.console.estimates import MessageEstimate
from pairbus.console.inspection import NamespaceInspection, SyphonView
from pairbus.console.metrics import console_samples
from pairbus.console.sender_report import parse_report
from pairbus.console.senders import SenderEvent, SenderRegistry
from pairbus.console.snapshot import MAX_EVENTS_SHOWN, MAX_SENDERS_SHOWN, Knowledge, build_snapshot
from pairbus.telemetry.metrics import CONSOLE, METRICS
from pairbus.telemetry.prometheus import render_metrics
from tests.console_client import report

pytestmark = pytest.mark.rule("O2")

NOW = 1_000_000.0
KEYS = {
    "time", "level", "sentence", "problems", "primary", "secondary", "paths", "senders",
    "omitted_senders", "queues", "destinations", "backlog", "syphon", "dead_letters", "throttled",
    "cost", "looks", "redrives", "events",
}  # fmt: skip


def inspection(messages: int = 7, **changes: Any) -> NamespaceInspection:
    queue = QueueContents(
        path="orders/x-servicebus-transfer/0", index=0, messages=messages, dead_lettered=2
    )
    values: dict[str, Any] = {
        "time_ms": int(NOW * 1000),
        "probes": {"primary": ProbeResult("p"), "secondary": ProbeResult("s")},
        "backlog": BacklogContents(queues=(queue,), expected=1),
        "destinations": (MessageEstimate("orders", messages=6.6, oldest_ms=5_000),),
        "dead_letters": (MessageEstimate("orders", "Broken", 2.0),),
    }
    return NamespaceInspection(**(values | changes))


def senders(*reports: dict[str, Any]) -> dict[str, Any]:
    registry = SenderRegistry("orders")
    for values in reports:
        registry.accept(parse_report(values), NOW)
    return {"paths": tuple(registry.paths()), "senders": tuple(registry.senders())}


def test_snapshot_of_nothing_has_all_keys():
    snapshot = build_snapshot(Knowledge(now=NOW))

    assert snapshot.keys() == KEYS
    assert snapshot["level"] == "warning"
    assert snapshot["backlog"] == {
        "known": False,
        "messages": None,
        "dead_letters": None,
        "counted_at": None,
        "sampled": False,
        "estimated": False,
    }


def test_snapshot_shows_what_is_known():
    knowledge = Knowledge(
        now=NOW,
        inspection=inspection(),
        syphon=SyphonView(control=Control(max_rate=5.0, max_rates={"orders": 2.0})),
        throttled=4,
        **senders(report(state="failover")),
    )

    snapshot = build_snapshot(knowledge)

    assert snapshot["queues"] == [
        {
            "queue": "orders/x-servicebus-transfer/0",
            "index": 0,
            "messages": 7,
            "dead_letters": 2,
            "oldest": None,
        }
    ]
    assert snapshot["destinations"] == [
        {"destination": "orders", "messages": 7, "oldest": "1970-01-01T00:00:05.000Z"}
    ]
    assert snapshot["dead_letters"] == [
        {"destination": "orders", "reason": "Broken", "messages": 2}
    ]
    assert snapshot["throttled"] == {"operations": 4, "seconds": 3600}
    assert snapshot["backlog"]["known"]
    assert snapshot["backlog"]["dead_letters"] == 2
    assert snapshot["syphon"]["max_rate"] == 5.0
    assert snapshot["syphon"]["rates"] == {"orders": 2.0}
    assert snapshot["paths"][0]["state"] == "failover"
    assert snapshot["senders"][0]["states"] == {"failover": 1}
    assert knowledge.is_active
    assert json.dumps(snapshot, allow_nan=False)


def test_newer_status_file_replaces_the_count():
    view = SyphonView(
        summary=SyphonSummary(True, moved=5, remaining=3), time_ms=int(NOW * 1000) + 1
    )

    assert Knowledge(now=NOW, inspection=inspection(), syphon=view).backlog_messages == 3


def test_older_status_file_does_not_replace_the_count():
    view = SyphonView(summary=SyphonSummary(True, remaining=3), time_ms=int(NOW * 1000) - 1)

    assert Knowledge(now=NOW, inspection=inspection(), syphon=view).backlog_messages == 7


def test_status_file_of_an_ended_syphon_does_not_replace_the_count():
    view = SyphonView(summary=SyphonSummary(False, remaining=3), time_ms=int(NOW * 1000) + 1)

    assert Knowledge(now=NOW, inspection=inspection(), syphon=view).backlog_messages == 7


def test_ended_syphon_that_left_no_message_replaces_the_count_until_the_next_one():
    view = SyphonView(summary=SyphonSummary(False, remaining=0), time_ms=int(NOW * 1000) + 1)
    drained = Knowledge(now=NOW, inspection=inspection(), syphon=view)
    counted = Knowledge(now=NOW, inspection=inspection(time_ms=int(NOW * 1000) + 2), syphon=view)

    assert (drained.backlog_messages, drained.is_count_outdated) == (0, True)
    assert (counted.backlog_messages, counted.is_count_outdated) == (7, False)


@pytest.mark.parametrize("messages", [0, 7])
def test_count_is_outdated_after_the_syphon_has_drained_its_messages(messages: int):
    view = SyphonView(summary=SyphonSummary(True, remaining=0), time_ms=int(NOW * 1000) + 1)
    knowledge = Knowledge(now=NOW, inspection=inspection(messages), syphon=view)

    assert knowledge.is_count_outdated is (messages > 0)


def test_unavailable_primary_is_an_outage_without_senders():
    probes = {"primary": ProbeResult("p", "refused"), "secondary": ProbeResult("s")}

    assert Knowledge(now=NOW, inspection=inspection(0, probes=probes)).is_active
    assert not Knowledge(now=NOW, inspection=inspection(0)).is_active


def test_numbers_that_json_does_not_have_are_left_out():
    view = SyphonView(summary=SyphonSummary(True, rate=float("nan"), seconds_to_go=float("inf")))

    assert json.dumps(build_snapshot(Knowledge(now=NOW, syphon=view)), allow_nan=False)


def test_lists_are_bounded_and_events_newest_first():
    events = tuple(SenderEvent(n, "web-1 1", f"event {n}") for n in range(500))
    reports = [report(sender=f"s{n}") for n in range(MAX_SENDERS_SHOWN + 3)]

    snapshot = build_snapshot(Knowledge(now=NOW, events=events, **senders(*reports)))

    assert len(snapshot["events"]) == MAX_EVENTS_SHOWN
    assert snapshot["events"][0]["text"] == "event 499"
    assert len(snapshot["senders"]) == MAX_SENDERS_SHOWN
    assert snapshot["omitted_senders"] == 3


def test_senders_in_failover_are_shown_before_others():
    reports = [report(sender=f"s{n:04}") for n in range(MAX_SENDERS_SHOWN)]

    snapshot = build_snapshot(
        Knowledge(now=NOW, **senders(*reports, report(sender="t", state="failover")))
    )

    assert snapshot["senders"][0]["id"] == "t"


@pytest.mark.rule("O1")
def test_metrics_have_the_values_of_the_page():
    knowledge = Knowledge(
        now=NOW,
        inspection=inspection(),
        syphon=SyphonView(summary=SyphonSummary(True, rate=2.5, seconds_to_go=None)),
        cost={"currency": "USD", "so_far": 1.5, "forecast": 2.0},
        inspections={"operations": 12},
        **senders(report(state="failover", path='a"b\\c\nd')),
    )

    text = render_metrics(console_samples(knowledge, "p")).decode()
    lines = text.replace('pairing="p",', "").replace('{pairing="p"}', "").splitlines()

    assert 'pairbus_path_state{path="a\\"b\\\\c\\nd",state="failover"} 1.0' in lines
    assert 'pairbus_path_state{path="a\\"b\\\\c\\nd",state="healthy"} 0.0' in lines
    assert 'pairbus_backlog_messages{destination="orders"} 7.0' in lines
    assert 'pairbus_backlog_oldest_age_seconds{destination="orders"} 999995.0' in lines
    assert 'pairbus_backlog_dead_letters{destination="orders",reason="Broken"} 2.0' in lines
    assert 'pairbus_namespace_available{role="primary"} 1.0' in lines
    assert 'pairbus_console_senders{state="reporting"} 1.0' in lines
    assert "pairbus_console_operations_total 12.0" in lines
    assert "pairbus_drain_rate_per_second 2.5" in lines
    assert 'pairbus_outage_cost{currency="USD"} 1.5' in lines
    assert not [line for line in lines if line.startswith("pairbus_drain_time_to_go")]


@pytest.mark.rule("O1")
def test_labels_of_metrics_are_those_of_the_table():
    knowledge = Knowledge(
        now=NOW,
        inspection=inspection(),
        syphon=SyphonView(summary=SyphonSummary(True, rate=2.5, seconds_to_go=3.0)),
        cost={"currency": "USD", "so_far": 1.5, "forecast": 2.0},
        inspections={"operations": 12},
        **senders(report()),
    )

    samples = list(console_samples(knowledge, "p"))

    by_console = {name for name, metric in METRICS.items() if metric.recorded_by == CONSOLE}
    assert by_console <= {sample.name for sample in samples}
    for sample in samples:
        assert set(sample.labels) == {"pairing", *METRICS[sample.name].attributes}


@pytest.mark.rule("O1")
def test_unknown_values_are_no_metrics():
    text = render_metrics(console_samples(Knowledge(now=NOW), "p")).decode()

    assert text == (
        "# HELP pairbus_console_senders Sender processes that report, and those that stopped "
        "reporting.\n# TYPE pairbus_console_senders gauge\n"
        'pairbus_console_senders{pairing="p",state="reporting"} 0.0\n'
        'pairbus_console_senders{pairing="p",state="silent"} 0.0\n'
    )
