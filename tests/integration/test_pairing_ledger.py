"""The ledger of a pairing agrees with the meters of the namespaces."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import PathStatus
from tests.integration.pairing_kit import BACKLOG, World, quick_sender, wait_for_state, wait_until

LATER = datetime(2999, 1, 1, tzinfo=UTC)
NO_JITTER = {
    "ping_jitter": 0,
    "ping_primary_interval": timedelta(seconds=1),
    "check_duplicate_detection": False,
}


@pytest.fixture(scope="module", params=["sync", "aio"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param) as world:
        yield world


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.iterdir() for line in file.read_bytes().splitlines()]
    return [one for one in map(json.loads, lines) if "format" not in one]


def written(folder: Path, *, answered: bool = True) -> dict[tuple[str, str], list[int]]:
    """Return operations, messages, bytes and units of the ledger, by namespace and kind."""
    sums: dict[tuple[str, str], list[int]] = {}
    for one in records(folder):
        if "kind" not in one or one["answered"] is not answered:
            continue
        kind = {"ping": "send", "poll": "receive"}.get(one["kind"], one["kind"])
        total = sums.setdefault((one["namespace"], kind), [0, 0, 0, 0])
        for place, name in enumerate(("operations", "messages", "bytes", "units")):
            total[place] += one[name]
    return sums


def metered(world: World) -> dict[tuple[str, str], list[int]]:
    """Return the same figures from the meters."""
    sums: dict[tuple[str, str], list[int]] = {}
    for namespace in (world.primary, world.secondary):
        host = f"localhost:{namespace.port}"
        for (_, kind), one in namespace.meter().items():
            total = sums.setdefault((host, kind), [0, 0, 0, 0])
            for place, value in enumerate((one.operations, one.messages, one.bytes, one.units)):
                total[place] += value
    return sums


def since(world: World, before: dict[tuple[str, str], list[int]]) -> dict[Any, list[int]]:
    now = metered(world)
    grown = {
        key: [a - b for a, b in zip(sums, before.get(key, [0] * 4), strict=True)]
        for key, sums in now.items()
    }
    return {key: sums for key, sums in grown.items() if any(sums)}


@pytest.mark.rule("C4", "C5", "C1")
def test_ledger_agrees_with_the_meters_to_the_operation_and_the_byte(
    world: World, tmp_path: Path
) -> None:
    queue = world.queue()
    before = metered(world)
    bus = world.pair(ledger=tmp_path, **NO_JITTER)
    with quick_sender(bus, queue) as sender:
        sender.send_messages(ServiceBusMessage("one"))
        sender.send_messages(ServiceBusMessage("with properties", application_properties={"a": 1}))
        sender.send_messages([ServiceBusMessage("x" * n) for n in range(20)])
        sender.send_messages(ServiceBusMessage("x" * 100_000))
        batch = sender.create_message_batch()
        for n in range(7):
            batch.add_message(ServiceBusMessage("y" * n))
        sender.send_messages(batch)
        assert sender.schedule_messages([ServiceBusMessage("z")] * 3, LATER) != []
        # The fault lasts until everything is stored. Pings that it rejects are not metered.
        fault = world.primary.add_fault("disable", queue)
        sender.send_messages(ServiceBusMessage("the first that failed"))
        sender.send_messages(ServiceBusMessage("stored"))
        sender.send_messages([ServiceBusMessage("x" * n) for n in range(20)])
        assert fault.fired
        world.primary.call(lambda core: core.faults.remove(fault))
        wait_for_state(bus, queue, PathStatus.HEALTHY)
        sender.send_messages(ServiceBusMessage("back again"))
    bus.close()

    ours, theirs = written(tmp_path), since(world, before)
    scheduled = (f"localhost:{world.primary.port}", "schedule")
    # The SDK adds the schedule to the message.
    assert abs(ours[scheduled].pop(2) - theirs[scheduled].pop(2)) < 3 * 100
    assert ours == theirs
    assert ours[f"localhost:{world.secondary.port}", "send"][1] == 22


@pytest.mark.rule("C5")
def test_unanswered_operations_are_separate(world: World, tmp_path: Path) -> None:
    queue = world.queue()
    before = metered(world)
    bus = world.pair(ledger=tmp_path, failover_interval=timedelta(minutes=1), **NO_JITTER)
    with quick_sender(bus, queue) as sender:
        fault = world.primary.add_fault("internal-error", queue, count=1)
        with pytest.raises(Exception, match="internal"):
            sender.send_messages(ServiceBusMessage("refused"))
        assert fault.fired
    bus.close()

    primary = f"localhost:{world.primary.port}"
    assert (primary, "send") not in written(tmp_path)
    assert written(tmp_path, answered=False)[primary, "send"][:2] == [1, 1]
    assert (primary, "send") not in since(world, before)


@pytest.mark.rule("C4")
def test_state_changes_are_in_the_ledger(world: World, tmp_path: Path) -> None:
    queue = world.queue()
    bus = world.pair(ledger=tmp_path, **NO_JITTER)
    with quick_sender(bus, queue) as sender:
        world.fail_over(sender)
        wait_for_state(bus, queue, PathStatus.HEALTHY)
    bus.close()

    changes = [one for one in records(tmp_path) if "to_state" in one]
    assert [(one["entity"], one["from_state"], one["to_state"]) for one in changes] == [
        (queue, "healthy", "failover"),
        (queue, "failover", "healthy"),
    ]
    assert "disabled" in changes[0]["cause"]


@pytest.mark.rule("C4", "S12")
def test_peeks_of_a_drain_are_in_the_ledger(world: World, tmp_path: Path) -> None:
    queue = world.queue()
    before = metered(world)
    bus = world.pair(ledger=tmp_path, failback="after-drain", **NO_JITTER)
    with quick_sender(bus, queue) as sender:
        world.fail_over(sender)
        sender.send_messages(ServiceBusMessage("stored"))
        wait_for_state(bus, queue, PathStatus.DRAINING)
        secondary = f"localhost:{world.secondary.port}"
        wait_until(lambda: (secondary, "peek") in metered(world), "a peek")
        bus.mark_path_healthy(queue)
    bus.close()

    assert written(tmp_path)[secondary, "peek"][:2] == since(world, before)[secondary, "peek"][:2]
    parts = Counter(one["purpose"] for one in records(tmp_path) if one.get("kind") == "peek")
    assert set(parts) == {"drain"}


def test_without_a_ledger_nothing_is_written(world: World, tmp_path: Path) -> None:
    bus = world.pair(**NO_JITTER)
    with quick_sender(bus, world.queue()) as sender:
        sender.send_messages(ServiceBusMessage("one"))

    assert bus.backlog_queues == (BACKLOG,)
    assert list(tmp_path.iterdir()) == []
