"""Backlog queues that exist with other settings, with the real SDK and real sockets."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError

from pairbus.events import BacklogQueueMismatch
from pairbus.servicebus.backlog_paths import backlog_paths
from tests.integration.pairs import SENDS, Make, Pair, error_of, message

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS: dict[str, Any] = {
    "max_size_in_megabytes": 5120,
    "max_delivery_count": 2147483647,
    "dead_lettering_on_message_expiration": True,
}


def create(pair: Pair, index: int, **settings: Any) -> str:
    """Create a backlog queue before the pairing, with our settings but for these."""
    path = backlog_paths(pair.name, 3)[index]
    pair.secondary.create_queue(path, **(OURS | settings))
    return path


def description(pair: Pair, path: str) -> Any:
    return pair.secondary.call(lambda core: core.entities.get(path).description)


def mismatches(pair: Pair) -> list[tuple[str, str, str, str]]:
    return [
        (event.queue, event.setting, event.value, event.expected)
        for event in pair.of(BacklogQueueMismatch)
    ]


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns the warnings of the pairing so far."""
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "pairbus.pairing" and record.levelname == "WARNING"
    ]


@pytest.mark.rule("P5")
async def test_worse_settings_are_reported_and_not_altered(
    make: Make, warnings: Callable[[], list[str]]
) -> None:
    pair = await make(start=False)
    first = create(pair, 0, lock_duration=timedelta(seconds=10))
    second = create(pair, 1, lock_duration=timedelta(seconds=10), max_delivery_count=10)
    before = [description(pair, path) for path in (first, second)]

    await pair.start()

    assert [description(pair, path) for path in (first, second)] == before
    assert mismatches(pair) == [
        (first, "LockDuration", "PT10S", "PT1M"),
        (second, "LockDuration", "PT10S", "PT1M"),
        (second, "MaxDeliveryCount", "10", "2147483647"),
    ]
    assert all(event.consequence for event in pair.of(BacklogQueueMismatch))
    locks, deliveries = warnings()
    assert locks.startswith(f"LockDuration of {first}, {second} is PT10S instead of PT1M: ")
    assert "delivered repeatedly" in locks
    assert deliveries.startswith(f"MaxDeliveryCount of {second} is 10 instead of 2147483647: ")
    assert "dead-lettered" in deliveries
    assert pair.backlog_queues == tuple(backlog_paths(pair.name, 3))


@pytest.mark.rule("P5")
async def test_queues_that_pairing_created_and_better_ones_are_not_reported(
    make: Make, warnings: Callable[[], list[str]]
) -> None:
    pair = await make(start=False)
    create(pair, 0, lock_duration=timedelta(minutes=5), max_size_in_megabytes=81920)
    create(pair, 1)
    await pair.start()
    await pair.close()

    await pair.start()  # all queues exist now

    assert mismatches(pair) == []
    assert warnings() == []


@pytest.mark.rule("P5")
async def test_backlog_queue_with_sessions_is_reported_and_its_sends_fail(
    make: Make, warnings: Callable[[], list[str]]
) -> None:
    pair = await make(start=False)
    path = create(pair, 0, requires_session=True)
    await pair.start(backlog_queue_count=1)
    assert mismatches(pair) == [(path, "RequiresSession", "true", "false")]
    assert "every send to the queue fails" in warnings()[0]

    queue = pair.queue()
    fault = pair.fault("internal-error", queue)
    error = await error_of(pair.sender(queue).send_messages(message()))

    assert fault.fired
    assert isinstance(error, ServiceBusError)
    assert pair.in_queue(path) == []


@pytest.mark.rule("P5", "S12")
async def test_partitioned_queue_is_reported_if_order_is_kept(make: Make) -> None:
    plain, ordered = await make(start=False), await make(start=False)
    create(plain, 0, enable_partitioning=True)
    path = create(ordered, 0, enable_partitioning=True)

    await plain.start()
    await plain.close()
    await ordered.start(failback="after-drain")

    assert mismatches(plain) == []
    assert mismatches(ordered) == [(path, "EnablePartitioning", "true", "false")]


@pytest.mark.rule("P6")
async def test_without_creation_nothing_is_read_and_nothing_is_reported(make: Make) -> None:
    pair = await make(start=False)
    create(pair, 0, max_delivery_count=10)
    send_only = pair.secondary.connection_string_of(SENDS.name, SENDS.primary_key)

    await pair.start(secondary=pair.connect(send_only), create_backlog=False, backlog_queue_count=1)

    assert mismatches(pair) == []


@pytest.mark.rule("P5")
async def test_queue_that_another_process_creates_meanwhile_is_checked(make: Make) -> None:
    pair = await make(start=False)
    (path,) = backlog_paths(pair.name, 1)

    def overtake(core: Any) -> None:
        create_entity = core.entities.create

        def create_first(description: Any, *args: Any) -> Any:
            core.entities.create = create_entity
            pair_made = type(description)(name=path, **(OURS | {"max_delivery_count": 5}))
            create_entity(pair_made, core.now_ms())
            return create_entity(description, *args)

        core.entities.create = create_first

    pair.secondary.call(overtake)

    await pair.start(backlog_queue_count=1)

    assert mismatches(pair) == [(path, "MaxDeliveryCount", "5", "2147483647")]
