"""The check that queues are empty, against an emulator, with locks of the SDK."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.amqp.client import ClientOptions
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConnectionLost
from pairbus.spark.emptiness import MAX_COUNTED, EmptinessCheck, Remaining
from tests.tiers import TEST_TIER

pytestmark = pytest.mark.rule("Y8")
numbers = count(1)


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("secondary", tier=TEST_TIER) as namespace:
        yield namespace


class QueuePair:
    """Two queues, and a check that records its peeks."""

    def __init__(self, namespace: LocalNamespace, client: ServiceBusClient) -> None:
        self.namespace = namespace
        self.client = client
        self.queues = [f"q{next(numbers)}" for _ in range(2)]
        for queue in self.queues:
            namespace.create_queue(queue)
        self.peeked: Counter[str] = Counter()
        """Operations by queue, as `on_peek` reports them."""
        self.failed: list[str] = []
        self.checks: list[EmptinessCheck] = []

    def check(self, *, missing: str | None = None, wanted: bytes = b"") -> EmptinessCheck:
        options = ClientOptions.from_connection_string(
            self.namespace.connection_string, operation_timeout_s=20
        )
        queues = [*self.queues, *([] if missing is None else [missing])]
        check = EmptinessCheck(
            options,
            queues,
            select=lambda _, payloads: [wanted in payload for payload in payloads],
            on_peek=self._record,
        )
        self.checks.append(check)
        return check

    def _record(self, queue: str, messages: list[bytes] | None) -> None:
        if messages is None:
            self.failed.append(queue)
        else:
            self.peeked[queue] += max(1, len(messages))

    def send(self, *bodies: str, queue: int = 0) -> None:
        with self.client.get_queue_sender(self.queues[queue]) as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])

    def metered(self) -> Counter[str]:
        """Return peeks by queue, as the meter of the namespace counts them."""
        meter = self.namespace.meter()
        return Counter(
            {
                queue: meter[queue, "peek"].operations
                for queue in self.queues
                if (queue, "peek") in meter
            }
        )


@pytest.fixture
def pair(namespace: LocalNamespace) -> Iterator[QueuePair]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        pair = QueuePair(namespace, client)
        yield pair
        for check in pair.checks:
            check.close()


def test_queues_without_messages_and_missing_queues_are_empty(
    pair: QueuePair,
) -> None:
    check = pair.check(missing="no-such-queue")

    assert check.are_empty()
    assert pair.peeked == pair.metered() == Counter(dict.fromkeys(pair.queues, 1))
    assert pair.failed == []


def test_locked_message_counts_until_it_is_completed(pair: QueuePair) -> None:
    check = pair.check()
    pair.send("locked", queue=1)
    with pair.client.get_queue_receiver(pair.queues[1]) as receiver:
        [locked] = receiver.receive_messages(1, max_wait_time=20)
        assert receiver.receive_messages(1, max_wait_time=1) == []

        assert not check.are_empty()
        assert check.remaining() == Remaining(active=1)
        receiver.complete_message(locked)

    assert check.are_empty()
    assert pair.peeked == pair.metered()


def test_dead_letters_do_not_count(pair: QueuePair) -> None:
    check = pair.check()
    pair.send("dead")
    with pair.client.get_queue_receiver(pair.queues[0]) as receiver:
        [dead] = receiver.receive_messages(1, max_wait_time=20)
        receiver.dead_letter_message(dead)

    assert check.are_empty()


def test_deferred_and_scheduled_messages_count(pair: QueuePair) -> None:
    check = pair.check()
    pair.send("deferred")
    with pair.client.get_queue_receiver(pair.queues[0]) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=20)
        receiver.defer_message(message)
    with pair.client.get_queue_sender(pair.queues[1]) as sender:
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))

    assert not check.are_empty()
    remaining = check.remaining()
    assert remaining == Remaining(deferred=1, scheduled=1)
    assert str(remaining) == "2 messages are left in the backlog: 1 deferred, 1 scheduled"


def test_repeated_check_of_a_queue_with_messages_costs_one_peek(pair: QueuePair) -> None:
    check = pair.check()
    pair.send("one", "two", "three", queue=1)

    assert [check.are_empty() for _ in range(3)] == [False] * 3
    first, second = pair.queues
    assert pair.peeked == pair.metered() == Counter({first: 1, second: 3})


def test_messages_that_are_not_wanted_are_peeked_once(pair: QueuePair) -> None:
    check = pair.check(wanted=b"wanted")
    pair.send(*(f"other {n}" for n in range(250)))

    assert check.are_empty()
    first, second = pair.queues
    assert pair.peeked == Counter({first: 251, second: 1})
    assert check.are_empty()
    assert pair.peeked == pair.metered() == Counter({first: 252, second: 2})

    pair.send("other", "wanted")
    assert not check.are_empty()
    assert check.remaining() == Remaining(active=1)


def test_number_of_counted_messages_is_limited(pair: QueuePair) -> None:
    check = pair.check()
    pair.send(*(f"{n}" for n in range(MAX_COUNTED + 20)))

    remaining = check.remaining()

    assert remaining.more
    assert str(remaining).startswith("at least 100 messages are left")
    assert pair.peeked == pair.metered()


def test_namespace_that_is_down_raises_an_error(pair: QueuePair) -> None:
    check = pair.check()
    assert check.are_empty()
    pair.namespace.stop()
    try:
        with pytest.raises(ConnectionLost):
            check.are_empty()
        assert pair.failed == [pair.queues[0]]
    finally:
        pair.namespace.start()

    assert check.are_empty()
