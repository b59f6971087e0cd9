"""The ledger of a pairing agrees with the meters of the namespaces."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import PathStatus
from pairbus.servicebus.backlog_paths import backlog_paths
from tests.integration.pairs import Make, Pair, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = datetime(2999, 1, 1, tzinfo=UTC)
NO_JITTER = {
    "ping_jitter": 0,
    "ping_primary_interval": timedelta(seconds=1),
    "backlog_queue_count": 1,
}


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in files(folder) for line in file.read_bytes().splitlines()]
    return [record for record in map(json.loads, lines) if "format" not in record]


def written(folder: Path, *, answered: bool = True) -> dict[tuple[str, str], list[int]]:
    """Return operations, messages, bytes and units of the ledger, by namespace and kind."""
    sums: dict[tuple[str, str], list[int]] = {}
    for record in records(folder):
        if "kind" not in record or record["answered"] is not answered:
            continue
        kind = {"ping": "send", "poll": "receive"}.get(record["kind"], record["kind"])
        total = sums.setdefault((record["namespace"], kind), [0, 0, 0, 0])
        for place, name in enumerate(("operations", "messages", "bytes", "units")):
            total[place] += record[name]
    return sums


def metered(pair: Pair) -> dict[tuple[str, str], list[int]]:
    """Return the same figures from the meters."""
    sums: dict[tuple[str, str], list[int]] = {}
    for namespace in (pair.primary, pair.secondary):
        host = f"localhost:{namespace.port}"
        for (_, kind), reading in namespace.meter().items():
            total = sums.setdefault((host, kind), [0, 0, 0, 0])
            for place, value in enumerate(
                (reading.operations, reading.messages, reading.bytes, reading.units)
            ):
                total[place] += value
    return sums


def since(pair: Pair, before: dict[tuple[str, str], list[int]]) -> dict[Any, list[int]]:
    now = metered(pair)
    grown = {
        key: [a - b for a, b in zip(sums, before.get(key, [0] * 4), strict=True)]
        for key, sums in now.items()
    }
    return {key: sums for key, sums in grown.items() if any(sums)}


@pytest.mark.rule("C4", "C5", "C1")
async def test_ledger_agrees_with_the_meters_to_the_operation_and_the_byte(
    make: Make, tmp_path: Path
) -> None:
    pair = await make(start=False)
    queue, before = pair.queue(), metered(pair)
    await pair.start(ledger=tmp_path, **NO_JITTER)
    async with pair.sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("one"))
        await sender.send_messages(ServiceBusMessage("b", application_properties={"a": 1}))
        await sender.send_messages([ServiceBusMessage("x" * n) for n in range(20)])
        await sender.send_messages(ServiceBusMessage("x" * 100_000))
        batch = await sender.create_message_batch()
        for n in range(7):
            batch.add_message(ServiceBusMessage("y" * n))
        await sender.send_messages(batch)
        assert await sender.schedule_messages([ServiceBusMessage("z")] * 3, LATER) != []
        # The fault lasts until everything is stored. Pings that it rejects are not metered.
        fault = pair.fault("disable", queue)
        await sender.send_messages(ServiceBusMessage("the first that failed"))
        await sender.send_messages(ServiceBusMessage("stored"))
        await sender.send_messages([ServiceBusMessage("x" * n) for n in range(20)])
        assert fault.fired
        pair.remove_faults(fault)
        await pair.until_state(queue, PathStatus.HEALTHY)
        await sender.send_messages(ServiceBusMessage("back again"))
    await pair.close()

    ours, theirs = written(tmp_path), since(pair, before)
    scheduled = (f"localhost:{pair.primary.port}", "schedule")
    # The SDK adds the schedule to the message.
    assert abs(ours[scheduled].pop(2) - theirs[scheduled].pop(2)) < 3 * 100
    assert ours == theirs
    assert ours[f"localhost:{pair.secondary.port}", "send"][1] == 22


@pytest.mark.rule("C5")
async def test_unanswered_operations_are_separate(make: Make, tmp_path: Path) -> None:
    pair = await make(start=False)
    queue, before = pair.queue(), metered(pair)
    await pair.start(ledger=tmp_path, failover_interval=timedelta(minutes=1), **NO_JITTER)
    async with pair.sender(queue) as sender:
        fault = pair.fault("internal-error", queue, count=1)
        with pytest.raises(Exception, match="internal"):
            await sender.send_messages(ServiceBusMessage("refused"))
        assert fault.fired
    await pair.close()

    primary = f"localhost:{pair.primary.port}"
    assert (primary, "send") not in written(tmp_path)
    assert written(tmp_path, answered=False)[primary, "send"][:2] == [1, 1]
    assert (primary, "send") not in since(pair, before)


@pytest.mark.rule("C4")
async def test_state_changes_are_in_the_ledger(make: Make, tmp_path: Path) -> None:
    pair = await make(start=False)
    queue = pair.queue()
    await pair.start(ledger=tmp_path, **NO_JITTER)
    async with pair.sender(queue) as sender:
        await pair.fail_over(sender)
        await pair.until_state(queue, PathStatus.HEALTHY)
    await pair.close()

    changes = [record for record in records(tmp_path) if "to_state" in record]
    assert [(change["entity"], change["from_state"], change["to_state"]) for change in changes] == [
        (queue, "healthy", "failover"),
        (queue, "failover", "healthy"),
    ]
    assert "disabled" in changes[0]["cause"]


@pytest.mark.rule("C4", "S12")
async def test_peeks_of_a_drain_are_in_the_ledger(make: Make, tmp_path: Path) -> None:
    pair = await make(start=False)
    queue, before = pair.queue(), metered(pair)
    await pair.start(ledger=tmp_path, failback="after-drain", **NO_JITTER)
    async with pair.sender(queue) as sender:
        await pair.fail_over(sender)
        await sender.send_messages(ServiceBusMessage("stored"))
        await pair.until_state(queue, PathStatus.DRAINING)
        secondary = f"localhost:{pair.secondary.port}"
        await until(lambda: (secondary, "peek") in metered(pair), "a peek")
        pair.bus.mark_path_healthy(queue)
    await pair.close()

    assert written(tmp_path)[secondary, "peek"][:2] == since(pair, before)[secondary, "peek"][:2]
    parts = Counter(
        record["purpose"] for record in records(tmp_path) if record.get("kind") == "peek"
    )
    assert set(parts) == {"drain"}


async def test_without_a_ledger_nothing_is_written(make: Make, tmp_path: Path) -> None:
    pair = await make()
    await pair.sender(pair.queue()).send_messages(ServiceBusMessage("one"))

    assert pair.backlog_queues == tuple(backlog_paths(pair.name, 3))
    assert files(tmp_path) == []
