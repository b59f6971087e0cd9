"""Namespaces of the tiers standard and premium: throttling, sizes, partitions, idle links."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.batch import BATCH_FORMAT, make_batch
from pairbus.amqp.client import Client, Management, Receiver, Sender
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.emulator import PREMIUM, STANDARD, LocalNamespace
from pairbus.emulator.tiers import tier_of
from pairbus.errors import Busy, ConnectionLost, LinkLost, MessageTooLarge, Refused
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.limits import KB, MB
from tests.integration.clocks import Clock
from tests.integration.emulator_clients import QUICK_CLOSE, client_of, sdk_client
from tests.integration.emulator_http import send_http_request
from tests.integration.encoded_messages import sized
from tests.waiting import wait_until

pytestmark = [pytest.mark.rule("N1")]
Start = Callable[..., tuple[LocalNamespace, Client]]


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    started = time.time()
    return Clock(lambda: started)


@pytest.fixture
def start(clock: Clock) -> Iterator[Start]:
    """Start a namespace with the queue `q`, and a client of our own. The clock stands still."""
    with ExitStack() as stack:

        def start(tier: Any, **queue: Any) -> tuple[LocalNamespace, Client]:
            namespace = stack.enter_context(
                LocalNamespace("contoso", tier=tier, now_ms=clock.now_ms)
            )
            namespace.create_queue("q", **queue)
            return namespace, stack.enter_context(client_of(namespace))

        yield start


# Throttling.


def test_sends_beyond_the_credits_are_rejected_until_the_next_second(
    start: Start, clock: Clock
) -> None:
    namespace, client = start(replace(STANDARD, credits_per_second=3))
    with Sender(client, "q") as sender:
        sender.send_batch([sized(1100), sized(1100)])
        sender.send(sized(1100))
        with pytest.raises(Busy, match=r"contoso is being throttled\. Error code : 50009\."):
            sender.send(sized(1100))
        clock.ahead = 1
        sender.send(sized(1100))
    assert namespace.meter()["q", "send"].messages == 4


def test_sdk_raises_its_error_for_a_throttled_namespace(start: Start, clock: Clock) -> None:
    namespace, _ = start(replace(STANDARD, credits_per_second=20))
    with (
        sdk_client(namespace) as client,
        client.get_queue_sender("q", **QUICK_CLOSE) as sender,
    ):
        sender.send_messages([ServiceBusMessage("x")] * 1000)
        with pytest.raises(ServiceBusServerBusyError, match="50009"):
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusServerBusyError, match="50009"):
            client.get_queue_receiver("q", **QUICK_CLOSE).receive_messages(1, max_wait_time=10)
        clock.ahead = 60  # less than the idle timeout of a link
        sender.send_messages(ServiceBusMessage("x"))


def test_receiver_that_asks_for_messages_beyond_the_credits_is_detached(
    start: Start, clock: Clock
) -> None:
    namespace, client = start(replace(STANDARD, credits_per_second=4))
    with Sender(client, "q") as sender, Receiver(client, "q", settled=True) as receiver:
        sender.send_batch([sized(1100)] * 3)
        assert len(receiver.receive(1)) == 1
        with pytest.raises(Busy, match="50009"):
            receiver.receive(1)
        clock.ahead = 1
        assert len(receiver.receive(1)) == 1
    assert namespace.meter()["q", "receive"].messages == 2


def test_credit_that_was_granted_before_is_used_later(start: Start, clock: Clock) -> None:
    _, client = start(replace(STANDARD, credits_per_second=4))
    with Sender(client, "q") as sender, Receiver(client, "q", settled=True) as receiver:
        assert receiver.receive(10, timeout_s=0.1) == []
        sender.send_batch([sized(1100)] * 2)
        first = receiver.receive(10, timeout_s=0.5)
        assert len(first) == 2
        clock.ahead = 1
        sender.send_batch([sized(1100)] * 4)
        assert receiver.receive(8, timeout_s=0.1) == []
        clock.ahead = 2
        assert len(receiver.receive(8, timeout_s=20)) == 4


def test_throttled_namespace_refuses_peeks_but_not_settlements(start: Start, clock: Clock) -> None:
    _, client = start(replace(STANDARD, credits_per_second=3))
    with (
        Sender(client, "q") as sender,
        Receiver(client, "q") as receiver,
        Management(client, "q") as management,
    ):
        sender.send(sized(1100))
        (message,) = receiver.receive(1)
        assert len(management.peek(1, 1)) == 1
        with pytest.raises(Busy, match="50009"):
            management.peek(1, 1)
        receiver.settle([message], Accepted())
        clock.ahead = 1
        assert management.peek(1, 1) == []


def test_management_calls_cost_ten_credits(start: Start, clock: Clock) -> None:
    namespace, _ = start(replace(STANDARD, credits_per_second=20))
    options = AdministrationOptions.from_connection_string(namespace.connection_string)
    with AdministrationClient(options) as administration:
        administration.get_queue("q")
        administration.get_queue("q")
        with pytest.raises(Busy, match=r"status 503: .*SubCode=50009"):
            administration.get_queue("q")
        clock.ahead = 1
        administration.get_queue("q")


def test_evaluations_of_filters_cost_credits(start: Start) -> None:
    namespace, client = start(replace(STANDARD, credits_per_second=6))
    namespace.create_topic("t")
    for number in range(2):
        namespace.create_subscription("t", f"s{number}")
    with Sender(client, "t") as sender:
        sender.send(sized(1100))
        sender.send(sized(1100))
        with pytest.raises(Busy):
            sender.send(sized(1100))


def test_premium_namespace_is_throttled_by_bytes(start: Start, clock: Clock) -> None:
    _, client = start(replace(PREMIUM, bytes_per_second=3000))
    with Sender(client, "q") as sender, Receiver(client, "q", settled=True) as receiver:
        sender.send_batch([sized(1100)] * 3)
        with pytest.raises(Busy, match="50009"):
            sender.send(sized(1100))
        assert len(receiver.receive(3)) == 3
        with pytest.raises(Busy):
            receiver.receive(1)
        clock.ahead = 2
        sender.send(sized(1100))


def test_faults_and_meter_stay_reachable_in_a_throttled_namespace() -> None:
    with LocalNamespace(tier=replace(STANDARD, credits_per_second=0)) as namespace:
        assert send_http_request(namespace, "GET", "meter") == (200, [])


# Sizes.


def test_premium_link_has_separate_limits_for_messages_and_batches(start: Start) -> None:
    namespace, client = start(PREMIUM, max_message_size_in_kilobytes=4096)
    namespace.create_queue("default")
    with Sender(client, "q") as sender, Sender(client, "default") as default:
        sender.open()
        default.open()
        assert (sender.max_message_size, sender.max_batch_size) == (4 * MB, MB)
        assert (default.max_message_size, default.max_batch_size) == (MB, MB)
        sender.send(sized(3 * MB))


def forget_limits(sender: Sender) -> None:
    """Let a client send what is too large."""
    sender.open()
    assert sender._link is not None
    assert sender._link.remote is not None
    sender._link.remote = replace(sender._link.remote, properties=None)
    sender._link.remote_max_message_size = None


def test_batch_that_is_too_large_detaches_the_link(start: Start, clock: Clock) -> None:
    namespace, client = start(PREMIUM, max_message_size_in_kilobytes=4096)
    with Sender(client, "q") as sender:
        forget_limits(sender)
        sender.send_batch([sized(MB // 2 - 100)] * 2)
        with pytest.raises(Refused, match="batch message with no data in it") as raised:
            sender.send_batch([sized(MB // 2)] * 2)
        assert raised.value.condition == "amqp:not-allowed"
        clock.ahead = 1
        sender.send(sized(1100))  # over a new link
    assert namespace.meter()["q", "send"].messages == 3


def test_standard_batch_has_the_limit_of_a_message(start: Start) -> None:
    namespace, client = start(STANDARD)
    with Sender(client, "q") as sender:
        sender.open()
        assert sender.max_message_size == sender.max_batch_size == 256 * KB
        forget_limits(sender)
        with pytest.raises(MessageTooLarge, match="currently allowed on the link"):
            sender.send_batch([sized(200 * KB)] * 2)
        sender.send(sized(1100))
    assert namespace.meter()["q", "send"].messages == 1


def test_sdk_reads_the_tier_of_a_namespace() -> None:
    for tier, sku, units in (
        (STANDARD, "Standard", None),
        (PREMIUM, "Premium", 1),
        (tier_of("premium", 4), "Premium", 4),
    ):
        with (
            LocalNamespace(tier=tier) as namespace,
            ServiceBusAdministrationClient.from_connection_string(
                namespace.connection_string, connection_verify=namespace.ca_file
            ) as administration,
        ):
            properties = administration.get_namespace_properties()
            assert (properties.messaging_sku, properties.messaging_units) == (sku, units)
            created = administration.create_queue("q")
            assert created.max_message_size_in_kilobytes == tier.default_message_kb


# Partitioned entities.


def keyed(key: str | None = None, session: str | None = None, id: str | None = "id") -> bytes:
    annotations = None if key is None else {Symbol("x-opt-partition-key"): key}
    return Message.build(
        properties=Properties(message_id=id, group_id=session),
        message_annotations=annotations,
        data=b"x",
    ).encode()


@pytest.mark.parametrize(
    ("messages", "duplicate_detection", "accepted"),
    [
        ([keyed("a"), keyed("a", id="other")], False, True),
        ([keyed("a"), keyed("b")], False, False),
        ([keyed("a"), keyed()], False, False),
        ([keyed(session="a"), keyed(session="b")], False, False),
        ([keyed(session="a"), keyed(session="a", id="other")], True, True),
        ([keyed(), keyed(id="other")], False, True),
        ([keyed(), keyed(id="other")], True, False),
        ([keyed("a"), keyed("a", id="other")], True, True),
    ],
)
def test_partitioned_entity_refuses_a_batch_for_several_partitions(
    messages: list[bytes], duplicate_detection: bool, accepted: bool, start: Start
) -> None:
    namespace, client = start(
        STANDARD, enable_partitioning=True, requires_duplicate_detection=duplicate_detection
    )
    with Sender(client, "q") as sender:
        if accepted:
            sender.send_batch(messages)
        else:
            with pytest.raises(Refused, match="Batching brokered messages with distinct") as raised:
                sender.send_batch(messages)
            assert raised.value.condition == "amqp:not-allowed"
            for message in messages:
                sender.send(message)
    assert namespace.meter()["q", "send"].messages == 2


def test_batch_with_duplicate_detection_needs_a_key_of_its_own(start: Start) -> None:
    _, client = start(PREMIUM, enable_partitioning=True, requires_duplicate_detection=True)
    with Sender(client, "q") as sender:
        with pytest.raises(Refused, match="must have either PartitionKey or MessageId"):
            sender.send(make_batch([keyed()]), message_format=BATCH_FORMAT)
        sender.send_batch([keyed()])


def test_sdk_raises_its_error_for_a_batch_for_several_partitions(start: Start) -> None:
    namespace, _ = start(STANDARD, enable_partitioning=True, requires_duplicate_detection=True)
    with (
        sdk_client(namespace) as client,
        client.get_queue_sender("q", **QUICK_CLOSE) as sender,
    ):
        with pytest.raises(ServiceBusError, match="Batching brokered messages with distinct"):
            sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
        sender.send_messages([ServiceBusMessage(text, partition_key="p") for text in "xy"])


# Idle links and connections.

SHORT_IDLE = replace(
    STANDARD,
    link_idle_timeout=timedelta(minutes=10),
    connection_idle_timeout=timedelta(minutes=5),
)


def links(namespace: LocalNamespace) -> int:
    return namespace.call(
        lambda core: len(core.incoming_links) + sum(map(len, core.outgoing_links.values()))
    )


def test_idle_links_are_detached_and_attached_again(start: Start, clock: Clock) -> None:
    namespace, client = start(SHORT_IDLE)
    with Sender(client, "q") as sender, Receiver(client, "q", settled=True) as receiver:
        sender.send(sized(1100))
        assert len(receiver.receive(1)) == 1
        clock.ahead = 599
        sender.send(sized(1100))
        clock.ahead = 601
        wait_until(lambda: links(namespace) == 1, "the receiver to be detached")
        clock.ahead = 1199
        wait_until(lambda: links(namespace) == 0, "the sender to be detached")
        client.step(client.now() + 1)
        error = sender.error
        assert isinstance(error, LinkLost)
        assert error.condition == "amqp:link:detach-forced"
        assert "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00" in str(error)
        sender.send(sized(1100))
        assert len(receiver.receive(2)) == 2


@pytest.mark.parametrize("detached", [False, True])
def test_receiver_with_credit_is_idle_only_if_the_tier_says_so(
    start: Start, clock: Clock, detached: bool
) -> None:
    namespace, client = start(replace(SHORT_IDLE, detach_idle_receivers=detached))
    with Receiver(client, "q", settled=True) as receiver, Sender(client, "q") as sender:
        sender.open()
        assert receiver.receive(1, timeout_s=0.1) == []
        clock.ahead = 601
        wait_until(lambda: links(namespace) == int(not detached), "idle links to be detached")
        sender.send(sized(1100))
        assert len(receiver.receive(1)) == 1


def test_connection_without_links_is_closed(start: Start, clock: Clock) -> None:
    _, client = start(SHORT_IDLE)
    with Sender(client, "q") as sender:
        sender.send(sized(1100))
    clock.ahead = 299
    client.step(client.now() + 0.2)
    assert client._engine is not None
    clock.ahead = 301
    wait_until(lambda: client.step(client.now() + 0.1) or client._engine is None, "the close")
    assert isinstance(client._lost, ConnectionLost)
    assert client._lost.condition == "amqp:connection:forced"
    assert "inactive for more than the allowed 300000 milliseconds" in str(client._lost)
    with Sender(client, "q") as sender:
        sender.send(sized(1100))  # over a new connection
