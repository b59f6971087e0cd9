"""One run with an outage: what the ledgers say, what the namespaces have counted, and what the
forecast makes of the counts are the same (rule C5)."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import SparkSession

from pairbus import PathStatus, SendAvailabilityOptions, pair_namespace
from pairbus.cost.counts import CostKey, MessageGroup, TrafficCounts, calculate_usage
from pairbus.emulator.namespace import LocalNamespace
from pairbus.syphon.syphon import Syphon
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose
from pairbus.usage.records import read_operations
from tests.spark.kit import DEADLINE_S, Backlog, message, wait_until

HEALTHY = PathStatus.HEALTHY


def written(folder: Path) -> Counter[tuple[str, str]]:
    """Operations that were answered, by namespace and kind of the meter."""
    sums: Counter[tuple[str, str]] = Counter()
    for one in read_operations(folder):
        if one["answered"]:
            sums[one["namespace"], OperationKind(one["kind"]).metered.value] += one["operations"]
    return sums


def metered(*namespaces: LocalNamespace) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    for namespace in namespaces:
        for (_, kind), reading in namespace.meter().items():
            sums[f"localhost:{namespace.port}", kind] += reading.operations
    return sums


def forecast(folder: Path, primary: str, secondary: str) -> Counter[tuple[str, str]]:
    """The arithmetic of the forecast, fed with what the ledgers have counted."""
    lots: dict[CostKey, list[MessageGroup]] = {}
    counts: Counter[CostKey] = Counter()
    for one in read_operations(folder):
        if one["answered"]:
            place = (
                NamespaceRole.PRIMARY if one["namespace"] == primary else NamespaceRole.SECONDARY
            )
            slot = CostKey(Purpose(one["purpose"]), place, OperationKind(one["kind"]))
            counts[slot] += one["operations"]
            lots.setdefault(slot, []).append(MessageGroup(one["operations"], 0))

    def of(purpose: Purpose, role: NamespaceRole, kind: OperationKind) -> tuple[MessageGroup, ...]:
        return tuple(lots.pop(CostKey(purpose, role, kind), ()))

    made = calculate_usage(
        TrafficCounts(
            direct_sends=of(Purpose.TRAFFIC, NamespaceRole.PRIMARY, OperationKind.SEND),
            backlog_sends=of(Purpose.BACKLOG, NamespaceRole.SECONDARY, OperationKind.SEND),
            backlog_receives=of(Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.RECEIVE),
            drain_sends=of(Purpose.DRAIN, NamespaceRole.PRIMARY, OperationKind.SEND),
            backlog_completes=sum(
                n for n, _ in of(Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.COMPLETE)
            ),
            pings=sum(n for n, _ in of(Purpose.PINGS, NamespaceRole.PRIMARY, OperationKind.PING)),
            empty_polls=sum(
                n for n, _ in of(Purpose.IDLE, NamespaceRole.SECONDARY, OperationKind.POLL)
            ),
            others={slot: tuple(some) for slot, some in lots.items()},
        )
    )
    return Counter(
        {
            (host, kind.value): amount.operations
            for place, host in (
                (NamespaceRole.PRIMARY, primary),
                (NamespaceRole.SECONDARY, secondary),
            )
            for kind, amount in made.by_kind(place, metered=True).items()
        }
    )


@pytest.mark.rule("C5", "C4", "C2")
def test_ledger_meters_and_forecast_agree_in_a_run_with_an_outage(
    session: SparkSession, tmp_path: Path
) -> None:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        backlog = Backlog(primary, secondary, name="agree")
        orders, bills = backlog.path("orders"), backlog.path("bills")
        before = metered(primary, secondary)
        with ServiceBusClient.from_connection_string(
            primary.connection_string, retry_total=0
        ) as client:
            options = SendAvailabilityOptions(
                secondary=secondary.connection_string,
                primary_name="agree",
                backlog_queue_count=2,
                failover_interval=timedelta(),
                ping_primary_interval=timedelta(seconds=1),
                ping_jitter=0,
                check_duplicate_detection=False,
                ledger=tmp_path,
            )
            with pair_namespace(client, options) as bus:
                for path in (orders, bills):
                    with bus.get_queue_sender(path) as sender:
                        sender.send_messages([ServiceBusMessage("before")] * 10)
                        fault = primary.add_fault("disable", path)
                        for n in range(30):
                            sender.send_messages(ServiceBusMessage(f"during {n}"))
                        sender.send_messages([ServiceBusMessage("x" * 70_000)] * 3)
                        assert fault.fired
                        primary.call(lambda core, fault=fault: core.faults.remove(fault))
                        wait_until(
                            lambda path=path: bus.status().paths[path].state is HEALTHY, "failback"
                        )
                        sender.send_messages(ServiceBusMessage("after"))
        backlog.put_raw([message("poison")])
        asked = backlog.options(ledger=str(tmp_path), poll=timedelta(seconds=2))
        with Syphon(asked, spark=session) as syphon:
            wait_until(lambda: backlog.left() == 0, "the backlog to be moved")
            wait_until(lambda: _polls(tmp_path) >= 2, "two idle polls")

            def counted() -> Counter[tuple[str, str]]:
                theirs = metered(primary, secondary) - before
                theirs[f"localhost:{secondary.port}", "send"] -= 1  # the poison, sent by no pairing
                return +theirs

            # While it is idle: polls under way when it is stopped are not answered.
            here, there = f"localhost:{primary.port}", f"localhost:{secondary.port}"
            ours, theirs, by_forecast = _all_at_once(
                lambda: written(tmp_path), counted, lambda: forecast(tmp_path, here, there)
            )
        assert syphon.status().dead_lettered.total() == 1
        assert len(backlog.arrived(orders)) == len(backlog.arrived(bills)) == 44
    assert ours == theirs == by_forecast
    assert ours[there, "send"] == ours[there, "complete"] == 66
    assert (
        ours[here, "send"] == 22 + 66 + 2
    )  # those before and after, those through the backlog, pings


def _all_at_once(*looks: Callable[[], Any]) -> list[Any]:
    """What several see, with nothing done in between, once the first two agree, if they do."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = [look() for look in looks]
        agree = found[0] == found[1] and found == [look() for look in looks]
        if agree or time.monotonic() > deadline:
            return found


def _polls(folder: Path) -> int:
    return sum(
        one["operations"] for one in read_operations(folder) if one["purpose"] == "idle polls"
    )
