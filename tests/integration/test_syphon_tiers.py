"""Forwarding and long polls in namespaces of the tier premium, without Spark."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, size_in_batch, split_batch
from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender, sender
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.emulator import PREMIUM, LocalNamespace
from pairbus.servicebus.annotations import PARTITION_KEY
from pairbus.servicebus.limits import KB, MAX_BATCH_SIZE_PREMIUM, MB
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import ReceivedMessage, locked_until_of
from pairbus.spark.outcome import Outcome
from pairbus.syphon.restore import restore
from pairbus.transfer import to_backlog
from tests.integration.deliveries import Deliveries
from tests.messages import id_of, peek_all
from tests.waiting import wait_until

pytestmark = [pytest.mark.rule("N1")]
TIER = replace(PREMIUM, bytes_per_second=1000 * MB)
IDLE_TIER = replace(TIER, link_idle_timeout=timedelta(seconds=0.3), detach_idle_receivers=True)
"""A busy machine may detach links of this tier that are in use: only for tests of that."""
numbers = count(1)


@pytest.fixture(scope="module", params=[TIER], ids=[""])
def namespace(request: pytest.FixtureRequest) -> Iterator[LocalNamespace]:
    """One namespace is both source and target: only the queues matter here."""
    with LocalNamespace("both", tier=request.param) as namespace:
        yield namespace
        connections.close_all()


detaches_idle_links = pytest.mark.parametrize("namespace", [IDLE_TIER], indirect=True, ids=["idle"])


@pytest.fixture
def options(namespace: LocalNamespace) -> ClientOptions:
    return ClientOptions.from_connection_string(namespace.connection_string, operation_timeout_s=20)


def create_queue(namespace: LocalNamespace, **settings: Any) -> str:
    name = f"q{next(numbers)}"
    namespace.create_queue(name, **settings)
    return name


def ids(namespace: LocalNamespace, path: str) -> list[str]:
    return [id_of(message) for message in peek_all(namespace.connection_string, path)]


def payload(id: str, size: int = 100) -> bytes:
    return Message.build(properties=Properties(message_id=id), data=b"x" * size).encode()


class BacklogQueue:
    """A backlog queue with messages for a destination, and their forwarding."""

    def __init__(self, namespace: LocalNamespace, options: ClientOptions, path: str) -> None:
        self._options = options
        self._destination = path
        self.path = create_queue(namespace, max_message_size_in_kilobytes=4096)

    def put(self, *messages: bytes) -> None:
        sender = connections.sender_for(self._options, self.path)
        for message in messages:
            sender.send(to_backlog(message, self._destination))

    def forward(self) -> Outcome:
        """Receive all messages, and forward them."""
        with Client(self._options) as client:
            receiver = Receiver(client, self.path, confirm=False)
            received = [
                restore(
                    ReceivedMessage(
                        self.path, item.payload, item.tag, locked_until_of(item.payload)
                    ),
                    None,
                )
                for batch in receiver.receive_available(100)
                for item in batch
            ]
        forwarder = Forwarder(self._options, self._options)
        forwarder.forward(received)
        return forwarder.finish()


@pytest.mark.rule("S8")
def test_batches_and_single_messages_have_their_own_limits(
    namespace: LocalNamespace, options: ClientOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_queue(namespace, max_message_size_in_kilobytes=4096)
    backlog = BacklogQueue(namespace, options, path)
    sizes = [600 * KB, 300 * KB, 200 * KB, 3 * MB, 100, 100]
    backlog.put(*(payload(str(n), size) for n, size in enumerate(sizes)))
    deliveries = Deliveries(monkeypatch)

    outcome = backlog.forward()

    assert outcome.moved == {path: 6}
    assert [delivery.message_format for delivery in deliveries.new(namespace, path)] == [
        *(BATCH_FORMAT, 0, 0, BATCH_FORMAT)
    ]
    assert ids(namespace, path) == [str(n) for n in range(6)]


@pytest.mark.rule("S8", "Y5")
def test_no_batch_exceeds_the_limit_with_its_envelope(
    namespace: LocalNamespace, options: ClientOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message id, the session id and the partition key of the first message are repeated in the
    envelope."""
    path = create_queue(namespace, max_message_size_in_kilobytes=4096)
    backlog = BacklogQueue(namespace, options, path)
    key = "k" * 128
    properties = Properties(message_id="i" * 128, group_id=key)
    annotations = {Symbol(PARTITION_KEY): key}
    fixed = len(encode(properties, annotations, 0))
    envelope = len(batch_envelope(encode(properties, annotations, 0)))
    assert envelope > 3 * 128
    # Two messages and the envelope have exactly the size of a batch, then they have one byte more.
    size = (MAX_BATCH_SIZE_PREMIUM - envelope) // 2 - size_in_batch(10**6) + 10**6 - fixed - 3
    rest = MAX_BATCH_SIZE_PREMIUM - envelope - 2 * size_in_batch(fixed + size + 3)
    sizes = [size, size + rest, size, size + rest + 1]
    backlog.put(*(encode(properties, annotations, each) for each in sizes))
    deliveries = Deliveries(monkeypatch)

    outcome = backlog.forward()

    assert (outcome.moved, outcome.errors) == ({path: 4}, {})
    arrived = deliveries.new(namespace, path)
    assert [delivery.message_format for delivery in arrived] == [BATCH_FORMAT, 0, 0]
    assert len(arrived[0].payload) == MAX_BATCH_SIZE_PREMIUM


@pytest.mark.rule("Y5")
def test_batch_that_becomes_too_large_is_split(
    namespace: LocalNamespace, options: ClientOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The premium tier detaches the link, and all deliveries in flight are lost with it."""
    path = create_queue(namespace, max_message_size_in_kilobytes=4096)
    backlog = BacklogQueue(namespace, options, path)
    backlog.put(*(payload(str(n), 400 * KB) for n in range(9)), payload("9", 3 * MB))
    deliveries = Deliveries(monkeypatch)
    # As if the link did not say its limit for batches.
    monkeypatch.setattr(Sender, "max_batch_size", Sender.max_message_size)
    monkeypatch.setattr(sender, "_max_batch_size", lambda link: link.remote_max_message_size)

    outcome = backlog.forward()

    sizes = [len(delivery.payload) for delivery in deliveries.new(namespace, path)]
    assert max(sizes) > MAX_BATCH_SIZE_PREMIUM
    assert (outcome.moved, outcome.dead_lettered, outcome.left) == ({path: 10}, {}, {})
    # The parts of the batch may arrive after a message that was sent behind it. Without sessions,
    # the order is not promised.
    assert sorted(ids(namespace, path)) == [str(n) for n in range(10)]


@pytest.mark.rule("S12", "Y5")
@pytest.mark.parametrize("detects_duplicates", [False, True])
def test_partitioned_destination_gets_messages_individually_after_one_refused_batch(
    namespace: LocalNamespace,
    options: ClientOptions,
    monkeypatch: pytest.MonkeyPatch,
    detects_duplicates: bool,
) -> None:
    path = create_queue(
        namespace, enable_partitioning=True, requires_duplicate_detection=detects_duplicates
    )
    backlog = BacklogQueue(namespace, options, path)
    deliveries = Deliveries(monkeypatch)

    def forward(first: int) -> list[int]:
        """Forward 40 messages of four sessions, or none with duplicate detection. Return the number
        of messages in each delivery."""
        for n in range(first, first + 40):
            session = None if detects_duplicates else f"s{n % 4}"
            properties = Properties(message_id=str(n), group_id=session)
            backlog.put(Message.build(properties=properties, data=b"x").encode())
        outcome = backlog.forward()
        assert (outcome.moved, outcome.dead_lettered) == ({path: 40}, {})
        return [
            len(split_batch(each.payload)) if each.message_format == BATCH_FORMAT else 1
            for each in deliveries.new(namespace, path)
        ]

    assert sum(count > 1 for count in forward(0)) <= 7
    assert forward(40) == [1] * 40
    arrived = ids(namespace, path)
    assert sorted(arrived, key=int) == [str(n) for n in range(80)]
    if not detects_duplicates:
        for session in range(4):
            of_session = [int(id) for id in arrived if int(id) % 4 == session]
            assert of_session == sorted(of_session)


def encode(properties: Properties, annotations: dict[Symbol, str], size: int) -> bytes:
    return Message.build(
        properties=properties, message_annotations=annotations, data=b"x" * size
    ).encode()


def use_throughput(namespace: LocalNamespace, size: int) -> None:
    namespace.call(lambda core: core.throttle and core.throttle.count("send", size))


@pytest.mark.rule("Y5", "Y8")
def test_messages_for_a_throttled_destination_can_be_received_at_once(
    namespace: LocalNamespace, options: ClientOptions
) -> None:
    path = create_queue(namespace)
    backlog = BacklogQueue(namespace, options, path)
    backlog.put(payload("a"), payload("b"))
    use_throughput(namespace, 10**15)
    try:
        outcome = backlog.forward()
    finally:
        use_throughput(namespace, -(10**15))

    assert outcome.busy
    assert "Error code : 50009" in outcome.errors[path]
    assert outcome.left == {path: 2}
    assert backlog.forward().moved == {path: 2}


@detaches_idle_links
def test_forwarding_survives_that_idle_links_are_detached(
    namespace: LocalNamespace, options: ClientOptions
) -> None:
    path = create_queue(namespace)
    backlog = BacklogQueue(namespace, options, path)
    for id in "ab":
        backlog.put(payload(id))
        assert backlog.forward().moved == {path: 1}
        wait_until(
            lambda: namespace.call(lambda core: not core.incoming_links), "idle links to end"
        )
    assert ids(namespace, path) == ["a", "b"]


@pytest.mark.rule("Y6")
@detaches_idle_links
def test_long_poll_continues_after_its_idle_link_was_detached(
    namespace: LocalNamespace, options: ClientOptions
) -> None:
    queue = create_queue(namespace)
    polls = LongPolls(options, [queue], poll_s=900)

    def empty_receives() -> int:
        reading = namespace.meter().get((queue, "receive"))
        return 0 if reading is None else reading.operations

    polls.resume()
    try:
        wait_until(lambda: empty_receives() >= 2, "the poll to be detached twice")
        connections.sender_for(options, queue).send(payload("late"))
        wait_until(polls.messages, "the message")
    finally:
        polls.stop()
    assert [id_of(message.payload) for message in polls.messages()] == ["late"]
