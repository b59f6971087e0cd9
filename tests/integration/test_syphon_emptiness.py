"""The check whether queues are empty, against a real namespace, with locks of the SDK."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.amqp.client import ClientOptions
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConnectionLost
from pairbus.syphon.emptiness import COUNTED, EmptinessCheck, Remaining

pytestmark = pytest.mark.rule("Y8")
numbers = count(1)


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("secondary") as namespace:
        yield namespace


class World:
    """Two queues, and a check that records its peeks."""

    def __init__(self, namespace: LocalNamespace, client: ServiceBusClient) -> None:
        self.namespace = namespace
        self.client = client
        self.queues = [f"q{next(numbers)}" for _ in range(2)]
        for queue in self.queues:
            namespace.create_queue(queue)
        self.peeked: Counter[str] = Counter()
        """Operations by queue, as the caller is told of them."""
        self.failed: list[str] = []

    def check(self, *, missing: str | None = None, wanted: bytes = b"") -> EmptinessCheck:
        options = ClientOptions.from_connection_string(
            self.namespace.connection_string, operation_timeout_s=20
        )
        queues = [*self.queues, *([] if missing is None else [missing])]
        return EmptinessCheck(
            options, queues, is_wanted=lambda payload: wanted in payload, on_peek=self._note
        )

    def _note(self, queue: str, messages: list[bytes] | None) -> None:
        if messages is None:
            self.failed.append(queue)
        else:
            self.peeked[queue] += max(1, len(messages))

    def send(self, *bodies: str, queue: int = 0) -> None:
        with self.client.get_queue_sender(self.queues[queue]) as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])

    def metered(self) -> Counter[str]:
        """Peeks by queue, as the namespace counts them."""
        meter = self.namespace.meter()
        return Counter(
            {
                queue: meter[queue, "peek"].operations
                for queue in self.queues
                if (queue, "peek") in meter
            }
        )


@pytest.fixture
def world(namespace: LocalNamespace) -> Iterator[World]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        yield World(namespace, client)


def test_queues_without_messages_are_empty_and_so_is_a_queue_that_does_not_exist(
    world: World,
) -> None:
    check = world.check(missing="no-such-queue")

    assert check.are_empty()
    assert world.peeked == world.metered() == Counter(dict.fromkeys(world.queues, 1))
    assert world.failed == []
    check.close()


def test_a_message_that_the_sdk_has_locked_counts_until_it_is_completed(world: World) -> None:
    check = world.check()
    world.send("locked", queue=1)
    with world.client.get_queue_receiver(world.queues[1]) as receiver:
        [locked] = receiver.receive_messages(1, max_wait_time=20)
        assert receiver.receive_messages(1, max_wait_time=1) == []

        assert not check.are_empty()
        assert check.remaining() == Remaining(active=1)
        receiver.complete_message(locked)

    assert check.are_empty()
    assert world.peeked == world.metered()
    check.close()


def test_dead_letters_do_not_count(world: World) -> None:
    check = world.check()
    world.send("dead")
    with world.client.get_queue_receiver(world.queues[0]) as receiver:
        [dead] = receiver.receive_messages(1, max_wait_time=20)
        receiver.dead_letter_message(dead)

    assert check.are_empty()
    check.close()


def test_deferred_and_scheduled_messages_count_and_are_named(world: World) -> None:
    check = world.check()
    world.send("deferred")
    with world.client.get_queue_receiver(world.queues[0]) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=20)
        receiver.defer_message(message)
    with world.client.get_queue_sender(world.queues[1]) as sender:
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))

    assert not check.are_empty()
    remaining = check.remaining()
    assert remaining == Remaining(deferred=1, scheduled=1)
    assert str(remaining) == "2 messages are left in the backlog (1 deferred, 1 scheduled)"
    check.close()


def test_a_check_that_finds_a_message_costs_one_peek_when_it_is_repeated(world: World) -> None:
    check = world.check()
    world.send("one", "two", "three", queue=1)

    assert [check.are_empty() for _ in range(3)] == [False] * 3
    first, second = world.queues
    assert world.peeked == world.metered() == Counter({first: 1, second: 3})
    check.close()


def test_messages_that_do_not_count_are_peeked_once(world: World) -> None:
    check = world.check(wanted=b"wanted")
    world.send(*(f"other {n}" for n in range(250)))

    assert check.are_empty()
    first, second = world.queues
    assert world.peeked == Counter({first: 251, second: 1})
    assert check.are_empty()
    assert world.peeked == world.metered() == Counter({first: 252, second: 2})

    world.send("other", "wanted")
    assert not check.are_empty()
    assert check.remaining() == Remaining(active=1)
    check.close()


def test_of_many_messages_a_part_is_counted(world: World) -> None:
    check = world.check()
    world.send(*(f"{n}" for n in range(COUNTED + 20)))

    remaining = check.remaining()

    assert remaining.more
    assert str(remaining).startswith("at least 100 messages are left")
    assert world.peeked == world.metered()
    check.close()


def test_a_namespace_that_is_down_is_not_taken_for_empty(world: World) -> None:
    check = world.check()
    assert check.are_empty()
    world.namespace.stop()
    try:
        with pytest.raises(ConnectionLost):
            check.are_empty()
        assert world.failed == [world.queues[0]]
    finally:
        world.namespace.start()

    assert check.are_empty()
    check.close()
