"""The state that the console shows, from real namespaces, files and reports."""

import json
import re
import time
from contextlib import ExitStack
from itertools import islice
from typing import Any

import pytest

from pairbus.backlog.target import InspectionTarget
from pairbus.console import history, outage
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.namespace import LocalNamespace
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.backlog import Backlog
from tests.commands import KEY
from tests.console_client import ConsoleClient, report
from tests.integration.console.sites import Site, Sites
from tests.messages import numbered
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("O2")


def inspected(client: ConsoleClient) -> dict[str, Any]:
    """Wait for the first inspection, and return the snapshot."""

    def snapshot() -> Any:
        values = client.get("/api/state").json
        return values if values["backlog"]["counted_at"] is not None else None

    result: dict[str, Any] = wait_until(snapshot, "the first inspection")
    return result


def snapshot_with(client: ConsoleClient, key: str, value: Any) -> dict[str, Any]:
    def snapshot() -> Any:
        values = client.get("/api/state").json
        return values if values[key] == value else None

    result: dict[str, Any] = wait_until(snapshot, f"{key} {value}")
    return result


def test_healthy_pairing_is_good(site: Site):
    viewer = site.client("viewer")
    site.client("sender").post("/api/reports", report(primary_name=site.backlog.name))

    snapshot = inspected(viewer)

    assert (snapshot["level"], snapshot["problems"]) == ("good", [])
    assert snapshot["sentence"] == "Sending works. The backlog is empty."
    assert [queue["messages"] for queue in snapshot["queues"]] == [0, 0]
    assert snapshot["secondary"] == f"localhost:{site.backlog.secondary.port}"


def test_backlog_is_shown_by_queue_and_destination(sites: Sites, backlog: Backlog):
    orders, invoices = backlog.path("orders"), backlog.path("invoices")
    backlog.put(orders, numbered(30))
    backlog.put(invoices, numbered(12), queue=1)
    backlog.put(orders, numbered(5, "d"), queue=1)
    backlog.dead_letter(12, "Broken", "because", queue=1)

    snapshot = inspected(sites.start().client("viewer"))

    assert [(q["index"], q["messages"], q["dead_letters"]) for q in snapshot["queues"]] == [
        (0, 30, 0),
        (1, 5, 12),
    ]
    assert [(d["destination"], d["messages"]) for d in snapshot["destinations"]] == [(orders, 35)]
    assert snapshot["dead_letters"] == [
        {"destination": invoices, "reason": "Broken", "messages": 12}
    ]
    assert snapshot["backlog"]["messages"] == 35
    assert snapshot["backlog"]["estimated"] is False
    assert snapshot["queues"][0]["oldest"] is not None


def test_large_backlog_is_sampled(sites: Sites, backlog: Backlog):
    orders, invoices = backlog.path("orders"), backlog.path("invoices")
    backlog.put(orders, numbered(1_500))
    backlog.put(invoices, numbered(1_500))

    snapshot = inspected(sites.start().client("viewer"))

    groups = {group["destination"]: group["messages"] for group in snapshot["destinations"]}
    assert snapshot["backlog"]["messages"] == 3_000
    assert snapshot["backlog"]["estimated"] is True
    assert sum(groups.values()) == 3_000
    assert all(600 <= groups[path] <= 2_400 for path in (orders, invoices))
    assert snapshot["looks"]["operations"] <= 1 + 50


def test_inspections_are_billed_recorded_and_shown(sites: Sites, backlog: Backlog):
    backlog.put(backlog.path("orders"), numbered(10))
    peeks = backlog.peeks()
    site = sites.start()

    viewer = site.client("viewer")
    inspected(viewer)
    snapshot_with(viewer, "looks", {"operations": 11, "per_hour": 240 + 600, "interval_s": 15.0})

    assert backlog.peeks() - peeks == 10
    recorded = wait_until(
        lambda: list(read_operations(site.folder / "ledger")), "the ledger to be written"
    )
    assert {(record["kind"], record["operations"]) for record in recorded} == {
        (OperationKind.MANAGEMENT.value, 1),
        (OperationKind.PEEK.value, 10),
    }


def test_own_operations_can_be_recorded_in_another_ledger(sites: Sites, backlog: Backlog):
    own = sites.options(0).audit_file.with_name("own")
    site = sites.start(usage_ledger=own)

    inspected(site.client("viewer"))

    recorded = wait_until(lambda: list(read_operations(own)), "the ledger to be written")
    assert [record["kind"] for record in recorded] == [OperationKind.MANAGEMENT]
    assert not (site.folder / "ledger").exists()


def test_nothing_is_read_again_while_nothing_happens(site: Site):
    viewer = site.client("viewer")
    before = inspected(viewer)["looks"]
    time.sleep(2)

    after = viewer.get("/api/state").json["looks"]

    assert before["operations"] == after["operations"] == 1
    assert after["interval_s"] == outage.IDLE_INTERVAL_S
    with viewer.events():
        wait_until(
            lambda: (
                viewer.get("/api/state").json["looks"]["interval_s"] == outage.WATCHED_INTERVAL_S
            ),
            "the pace of an open page",
        )


def test_interval_of_inspections_can_be_limited(sites: Sites, backlog: Backlog):
    viewer = sites.start(max_inspection_interval_s=0.1).client("viewer")
    first = inspected(viewer)["backlog"]["counted_at"]

    wait_until(
        lambda: viewer.get("/api/state").json["backlog"]["counted_at"] != first,
        "another inspection while nothing happens",
    )


def test_key_with_the_listen_right_alone_is_enough(sites: Sites):
    rule = SharedAccessRule(name="Listen", primary_key=KEY, rights=frozenset({Right.LISTEN}))
    with LocalNamespace("p") as primary, LocalNamespace("s", rules=(rule,)) as secondary:
        backlog = Backlog(primary, secondary)
        backlog.put(backlog.path("orders"), numbered(60))
        target = InspectionTarget.parse(
            primary=None,
            secondary=secondary.connection_string_of("Listen", KEY),
            primary_name=backlog.name,
            backlog_queue_count=2,
        )

        snapshot = inspected(sites.start(target=target).client("viewer"))

    assert snapshot["backlog"]["sampled"] is True
    assert [queue["messages"] for queue in snapshot["queues"]] == [50, 0]
    assert snapshot["primary"] is None


def test_failover_of_a_sender_turns_the_live_page_red(site: Site):
    viewer, sender = site.client("viewer"), site.client("sender")
    name = site.backlog.name
    sender.post("/api/reports", report(primary_name=name))
    snapshot_with(viewer, "level", "good")
    with viewer.events() as events:
        snapshots = iter(events)
        assert next(snapshots)["level"] == "good"

        sender.post("/api/reports", report(primary_name=name, state="failover"))
        red = next(snapshot for snapshot in snapshots if snapshot["level"] == "bad")

        assert red["sentence"].startswith("Failover: messages for orders are stored")
        assert "Cause of the failover: ServiceBusConnectionError: refused" in red["problems"]
        sender.post("/api/reports", report(primary_name=name))
        assert next(snapshot for snapshot in snapshots if snapshot["level"] == "good")
        own = next(events for snapshot in snapshots if len(events := own_events(snapshot)) == 2)
        assert own[1] == "An outage began."
        assert re.fullmatch(r"The outage ended after \d+ .+\.", own[0])


def own_events(snapshot: dict[str, Any]) -> list[str]:
    """Return the texts of the console's own events, the newest first."""
    return [event["text"] for event in snapshot["events"] if event["source"] == "console"]


def test_hundred_open_pages_get_each_change(site: Site):
    viewer, sender = site.client("viewer"), site.client("sender")
    name = site.backlog.name
    sender.post("/api/reports", report(primary_name=name))
    snapshot_with(viewer, "level", "good")
    with ExitStack() as stack:
        pages = [iter(stack.enter_context(viewer.events())) for _ in range(100)]
        assert {next(page)["level"] for page in pages} == {"good"}

        sender.post("/api/reports", report(primary_name=name, state="failover"))

        for page in pages:
            assert next(snapshot for snapshot in page if snapshot["level"] == "bad")
    wait_until(lambda: site.application.watchers == 0, "the pages to be closed")


def test_namespace_that_is_down_is_reported(sites: Sites, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outage, "OUTAGE_INTERVAL_S", 0.2)
    with LocalNamespace("p") as primary, LocalNamespace("s") as secondary:
        backlog = Backlog(primary, secondary)
        target = InspectionTarget.parse(
            primary=primary.connection_string,
            secondary=secondary.connection_string,
            primary_name=backlog.name,
            backlog_queue_count=2,
            timeout_s=5,
        )
        primary.stop()
        viewer = sites.start(target=target).client("viewer")

        snapshot = inspected(viewer)
        assert snapshot["level"] == "bad"
        assert snapshot["sentence"].startswith("The primary is not available. No sender reports.")
        secondary.stop()
        wait_until(
            lambda: any(
                "secondary is not" in text for text in viewer.get("/api/state").json["problems"]
            ),
            "the secondary to be reported",
        )
        secondary.start()
        primary.start()
        snapshot_with(viewer, "level", "good")
        for text in ("An outage began.", "The primary is available again."):
            wait_until(
                lambda text=text: text in str(viewer.get("/api/state").json["events"]),  # type: ignore[misc]
                f"the event {text}",
            )


def test_status_file_of_a_syphon_is_shown(site: Site):
    viewer = site.client("viewer")
    inspected(viewer)
    values = {
        "running": True,
        "healthy": True,
        "problem": None,
        "moved": {"orders": 5},
        "remaining": 1_000,
        "rate": 100.0,
        "seconds_to_go": 10.0,
        "time": time.time() + 1,
    }
    (site.folder / "status.json").write_text(json.dumps(values))

    snapshot = wait_until(
        lambda: (found := viewer.get("/api/state").json)["syphon"]["running"] and found,
        "the status file to be read",
    )

    assert snapshot["backlog"]["messages"] == 1_000
    assert "1\u202f000 messages wait; the drain needs about 10 s." in snapshot["sentence"]


def test_throttled_operations_of_senders_and_syphon_are_added_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(history, "SAMPLE_S", 1)
    viewer, sender = site.client("viewer"), site.client("sender")
    values: dict[str, Any] = {"running": True, "healthy": True, "problem": None, "moved": {}}
    values |= {"remaining": 0, "rate": 0.0, "time": time.time(), "throttled_receives": 100}

    def throttle(by_primary: int, by_senders: int) -> None:
        file = site.folder / "status.draft"
        file.write_text(json.dumps(values | {"throttled_sends": by_primary}))
        file.rename(site.folder / "status.json")
        values_of_sender = report(primary_name=site.backlog.name, throttled=by_senders)
        assert sender.post("/api/reports", values_of_sender).status == 200

    def shown() -> Any:
        return viewer.get("/api/state").json

    throttle(1000, 5000)  # before the console knew them
    wait_until(lambda: shown()["syphon"]["throttled_sends"] == 1000, "the status file to be read")
    known_at = time.time()
    wait_until(
        lambda: viewer.get("/api/history").json["times"][-1:] > [known_at], "a sample of the totals"
    )
    throttle(1003, 5004)

    wait_until(lambda: shown()["throttled"]["operations"] == 7, "the increases")
    assert shown()["syphon"]["throttled_sends"] == 1003


def test_backlog_is_counted_again_when_a_syphon_says_that_it_is_empty(
    sites: Sites, backlog: Backlog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outage, "OUTAGE_INTERVAL_S", 10_000.0)
    backlog.put(backlog.path("orders"), numbered(5))
    site = sites.start()
    viewer = site.client("viewer")
    first = inspected(viewer)["backlog"]
    assert first["messages"] == 5
    values = {
        "running": False,
        "ended": "drained",
        "healthy": True,
        "problem": None,
        "moved": {"orders": 5},
        "remaining": 0,
        "rate": 0.0,
        "time": time.time(),
    }
    (site.folder / "status.json").write_text(json.dumps(values))

    def second_count() -> Any:
        counted = viewer.get("/api/state").json["backlog"]
        return counted if counted["counted_at"] != first["counted_at"] else None

    assert wait_until(second_count, "another count")["messages"] == 5


def test_history_is_returned_in_columns(site: Site):
    viewer = site.client("viewer")
    inspected(viewer)

    columns = wait_until(
        lambda: (found := viewer.get("/api/history?since=60").json)["times"] and found,
        "the first sample",
    )

    assert columns.keys() == {"times", "backlog", "rate", "throttled"}
    assert len({len(column) for column in columns.values()}) == 1
    assert viewer.get("/api/history?since=x").status == 400


def test_session_and_history_survive_a_restart(sites: Sites):
    first = sites.start()
    browser = first.browser("viewer")
    inspected(browser)
    wait_until(lambda: browser.get("/api/history").json["times"], "the first sample")
    sites.close(first)

    sites.start(port=first.port)

    assert browser.get("/api/session").json["role"] == "viewer"
    assert browser.get("/api/history").json["times"]


def test_live_stream_ends_when_the_console_stops(sites: Sites):
    site = sites.start()
    with site.client("viewer").events() as events:
        snapshots = iter(events)
        next(snapshots)
        sites.close(site)

        # One a second would follow. The last may have been sent before the console stopped.
        assert len(list(islice(snapshots, 5))) < 5


@pytest.mark.rule("O4")
def test_sender_gets_the_command_with_its_next_report(site: Site):
    sender, operator = site.client("sender"), site.browser("operator")
    failing = report(primary_name=site.backlog.name, state="failover")
    assert sender.post("/api/reports", failing).json == {"commands": []}
    body = {"path": "orders", "confirm": True}

    assert operator.post("/api/paths/mark-healthy", body | {"confirm": False}).json["cost"]
    assert sender.post("/api/reports", failing).json == {"commands": []}
    assert operator.post("/api/paths/mark-healthy", body).status == 200
    (command,) = sender.post("/api/reports", failing).json["commands"]
    done = report(primary_name=site.backlog.name, done=[command["id"]])

    assert (command["action"], command["path"]) == ("mark-healthy", "orders")
    assert sender.post("/api/reports", done).json == {"commands": []}
    assert operator.post("/api/paths/mark-healthy", body).status == 400
    assert '"mark healthy"' in site.audit


@pytest.mark.parametrize("change", [{"version": 2}, {"paths": 5}, {"counts": {}}])
def test_invalid_report_is_refused(site: Site, change: dict[str, Any]):
    values = report(primary_name=site.backlog.name, **change)

    assert site.client("sender").post("/api/reports", values).status == 400


@pytest.mark.rule("O1")
def test_metrics_are_for_prometheus(sites: Sites, backlog: Backlog):
    backlog.put(backlog.path("orders"), numbered(4))
    viewer = sites.start().client("viewer")
    inspected(viewer)

    answer = viewer.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    labels = f'pairing="{backlog.name}",destination="{backlog.name}-orders"'
    assert f"pairbus_backlog_messages{{{labels}}} 4.0" in answer.body.decode().splitlines()
