"""Forwarding and long polls in namespaces of the tier premium, without Spark."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from pairbus.amqp.batch import BATCH_FORMAT
from pairbus.amqp.client import Client, ClientOptions, Receiver
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator import PREMIUM, LocalNamespace
from pairbus.servicebus.limits import KB, MB
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import ReceivedMessage, lock_expiry_ms
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


def create_queue(namespace: LocalNamespace, **settings: int) -> str:
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
                restore(ReceivedMessage(self.path, item.payload, item.tag, lock_expiry_ms()), None)
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
