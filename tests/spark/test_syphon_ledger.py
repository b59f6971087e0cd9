"""One run with an outage: ledgers, meters of the namespaces and forecast agree."""

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
from pairbus.syphon.query import Syphon
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose
from pairbus.usage.records import read_operations
from tests.backlog import Backlog
from tests.messages import message
from tests.waiting import DEADLINE_S, wait_until

HEALTHY = PathStatus.HEALTHY


def ledger_operations(folder: Path) -> Counter[tuple[str, str]]:
    """Return operations that were answered, by namespace and kind of the meter."""
    operations: Counter[tuple[str, str]] = Counter()
    for record in read_operations(folder):
        if record["answered"]:
            kind = OperationKind(record["kind"]).metered.value
            operations[record["namespace"], kind] += record["operations"]
    return operations


def metered_operations(*namespaces: LocalNamespace) -> Counter[tuple[str, str]]:
    """Return the operations that the meters counted, by namespace and kind."""
    operations: Counter[tuple[str, str]] = Counter()
    for namespace in namespaces:
        for (_, kind), reading in namespace.meter().items():
            operations[f"localhost:{namespace.port}", kind] += reading.operations
    return operations


def forecast(folder: Path, primary: str, secondary: str) -> Counter[tuple[str, str]]:
    """Return the operations of a forecast from the counts in the ledger."""
    groups: dict[CostKey, list[MessageGroup]] = {}
    for record in read_operations(folder):
        if record["answered"]:
            role = (
                NamespaceRole.PRIMARY if record["namespace"] == primary else NamespaceRole.SECONDARY
            )
            key = CostKey(Purpose(record["purpose"]), role, OperationKind(record["kind"]))
            groups.setdefault(key, []).append(MessageGroup(record["operations"], 0))

    def of(purpose: Purpose, role: NamespaceRole, kind: OperationKind) -> tuple[MessageGroup, ...]:
        return tuple(groups.pop(CostKey(purpose, role, kind), ()))

    usage = calculate_usage(
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
            others={key: tuple(others) for key, others in groups.items()},
        )
    )
    return Counter(
        {
            (host, kind.value): amount.operations
            for role, host in (
                (NamespaceRole.PRIMARY, primary),
                (NamespaceRole.SECONDARY, secondary),
            )
            for kind, amount in usage.by_kind(role, metered=True).items()
        }
    )


@pytest.mark.rule("C5", "C4", "C2")
def test_ledger_meters_and_forecast_agree_in_a_run_with_an_outage(
    session: SparkSession, tmp_path: Path
) -> None:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        backlog = Backlog(primary, secondary, name="agree")
        orders, bills = backlog.path("orders"), backlog.path("bills")
        before = metered_operations(primary, secondary)
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
                            lambda path=path: bus.status().paths[path].status is HEALTHY, "failback"
                        )
                        sender.send_messages(ServiceBusMessage("after"))
        backlog.put_raw([message("poison"), message("more poison")])
        syphon_options = backlog.options(ledger=str(tmp_path), poll=timedelta(seconds=2))
        with Syphon(syphon_options, spark=session) as syphon:
            wait_until(lambda: backlog.left() == 0, "the backlog to be empty")
            wait_until(lambda: _polls(tmp_path) >= 2, "two idle polls")

            primary_host = f"localhost:{primary.port}"
            secondary_host = f"localhost:{secondary.port}"

            def metered_in_run() -> Counter[tuple[str, str]]:
                metered = metered_operations(primary, secondary) - before
                metered[secondary_host, "send"] -= 2  # the test sent the poison messages
                return +metered

            # Compared while the syphon runs: when it stops, the last polls are not answered.
            ledger, metered, forecasted = _read_in_agreement(
                lambda: ledger_operations(tmp_path),
                metered_in_run,
                lambda: forecast(tmp_path, primary_host, secondary_host),
            )
        assert syphon.status().dead_lettered.total() == 2
        assert len(backlog.arrived(orders)) == len(backlog.arrived(bills)) == 44
    assert ledger == metered == forecasted
    assert ledger[secondary_host, "send"] == ledger[secondary_host, "complete"] == 66
    # Before and after the outage, through the backlog, and pings.
    assert ledger[primary_host, "send"] == 22 + 66 + 2


def _read_in_agreement(*readers: Callable[[], Any]) -> list[Any]:
    """Read several values until the first two agree and none changes, or until the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        values = [read() for read in readers]
        agree = values[0] == values[1] and values == [read() for read in readers]
        if agree or time.monotonic() > deadline:
            return values


def _polls(folder: Path) -> int:
    return sum(
        record["operations"]
        for record in read_operations(folder)
        if record["purpose"] == "idle polls"
    )
