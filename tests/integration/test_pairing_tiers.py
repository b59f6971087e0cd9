"""Pairings of namespaces of the tier premium: large messages, throttling, idle links."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from pairbus import MessageTooLargeForBacklog, SendUnavailable
from pairbus.amqp.batch import BATCH_FORMAT
from pairbus.emulator import PREMIUM, LocalNamespace, NamespaceTier
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.events import PathStatus
from pairbus.pairing.sdk import encode
from pairbus.servicebus.limits import KB, MB
from pairbus.transfer import to_backlog
from tests.integration.deliveries import Deliveries
from tests.integration.pairs import Make, Pair, message, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
LARGE_KB = 4096


@pytest.fixture(scope="module")
def tier() -> NamespaceTier:
    return replace(PREMIUM, bytes_per_second=1000 * MB)


async def large_pair(make: Make, **options: Any) -> tuple[Pair, str]:
    """Return a pairing whose backlog queue takes large messages, and the path of that queue."""
    pair = await make(start=False)
    queue = f"{pair.name}/x-servicebus-transfer/0"
    pair.secondary.create_queue(queue, max_message_size_in_kilobytes=LARGE_KB)
    await pair.start(backlog_queue_count=1, **options)
    return pair, queue


def large(size: int = 2 * MB, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id="large", **options)


@pytest.mark.rule("S8", "S9", "N1")
async def test_message_that_is_too_large_for_a_batch_is_stored_alone(
    make: Make, deliveries: Deliveries
) -> None:
    pair, queue = await large_pair(make, ledger=None)
    path = pair.queue(max_message_size_in_kilobytes=LARGE_KB)
    sender = pair.sender(path)
    assert (await sender.create_message_batch()).max_size_in_bytes == MB
    await pair.fail_over(sender)
    deliveries.new(pair.secondary, queue)
    pair.new_in(pair.secondary, queue)
    sent = large(session_id="s", application_properties={"n": 5})

    await sender.send_messages(sent)
    await sender.send_messages([message("a"), sent, message("b"), message("c")])

    made = deliveries.new(pair.secondary, queue)
    assert [delivery.message_format for delivery in made] == [
        0,
        *(0, 0, BATCH_FORMAT),  # only the last two fit into one delivery
    ]
    expected = to_backlog(encode(sent), path)
    stored = pair.new_in(pair.secondary, queue)
    assert [stored[0], stored[2]] == [expected] * 2
    assert len(stored) == 5
    with pytest.raises(MessageTooLargeForBacklog, match=f"allows {LARGE_KB * KB} bytes"):
        await sender.send_messages(large(LARGE_KB * KB))
    assert pair.new_in(pair.secondary, queue) == []


@pytest.mark.rule("S8")
async def test_check_of_the_backlog_size_uses_the_limits_of_the_secondary(make: Make) -> None:
    pair, _ = await large_pair(make, check_backlog_size=True)
    path = pair.queue(max_message_size_in_kilobytes=2 * LARGE_KB)
    sender = pair.sender(path)

    await sender.send_messages(large())

    assert len(pair.arrived(path)) == 1
    with pytest.raises(MessageTooLargeForBacklog, match=f"allows {LARGE_KB * KB} bytes"):
        await sender.send_messages(large(LARGE_KB * KB))
    assert len(pair.arrived(path)) == 1


def use_tokens(tokens: int) -> Callable[[NamespaceRuntime], None]:
    """Use the throughput of a namespace, or give it back."""

    def use(core: NamespaceRuntime) -> None:
        assert core.throttle is not None
        core.throttle.count("send", tokens)

    return use


@pytest.mark.rule("S2", "N1")
async def test_throttled_namespace_is_busy_and_causes_no_failover(make: Make) -> None:
    pair = await make(backlog_queue_count=1)
    healthy, failed = pair.sender(pair.queue()), pair.sender(pair.queue())
    await healthy.send_messages(message())
    await pair.fail_over(failed)
    tokens = 10**15
    for namespace in (pair.primary, pair.secondary):
        namespace.call(use_tokens(tokens))
    try:
        with pytest.raises(ServiceBusServerBusyError, match="Error code : 50009"):
            await healthy.send_messages(message())
        with pytest.raises(SendUnavailable) as raised:
            await failed.send_messages(message())
    finally:
        for namespace in (pair.primary, pair.secondary):
            namespace.call(use_tokens(-tokens))

    assert isinstance(raised.value.backlog_error, ServiceBusServerBusyError)
    assert pair.state(healthy.entity_name) is PathStatus.HEALTHY
    assert all(queue.in_rotation for queue in pair.bus.status().backlog.values())
    await healthy.send_messages(message())
    await failed.send_messages(message())


def incoming_links(namespace: LocalNamespace, path: str) -> int:
    return namespace.call(lambda core: sum(link.path == path for link in core.incoming_links))


@pytest.fixture
def short_idle_timeout(
    namespaces: tuple[LocalNamespace, LocalNamespace], tier: NamespaceTier
) -> Iterator[None]:
    """Let the namespaces detach idle links of new connections soon."""
    short = replace(tier, link_idle_timeout=timedelta(seconds=0.2))
    for namespace in namespaces:
        namespace.call(lambda core: setattr(core, "tier", short))
    yield
    for namespace in namespaces:
        namespace.call(lambda core: setattr(core, "tier", tier))


@pytest.mark.rule("N1")
async def test_senders_survive_that_idle_links_are_detached(
    short_idle_timeout: None, make: Make
) -> None:
    pair = await make(backlog_queue_count=1, sdk={"retry_total": 3, "retry_backoff_factor": 0.02})
    healthy, failed = pair.sender(pair.queue()), pair.sender(pair.queue())
    await healthy.send_messages(message("one"))
    await pair.fail_over(failed)
    (queue,) = pair.backlog_queues
    await until(
        lambda: not incoming_links(pair.primary, healthy.entity_name), "the primary's detach"
    )
    await until(lambda: not incoming_links(pair.secondary, queue), "the secondary's detach")

    await healthy.send_messages(message("two"))
    await failed.send_messages(message("three"))

    assert len(pair.arrived(healthy.entity_name)) == 2
    assert len(pair.in_queue(queue)) == 2
    assert pair.state(healthy.entity_name) is PathStatus.HEALTHY
    assert pair.bus.status().backlog[queue].in_rotation
