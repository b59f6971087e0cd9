"""The check for messages that other receivers have locked, against an emulator."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.amqp.client import ClientOptions
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark.locked_messages import LockedMessages
from tests.tiers import TEST_TIER

pytestmark = pytest.mark.rule("Y8")


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("secondary", tier=TEST_TIER) as namespace:
        for queue in ("a", "b"):
            namespace.create_queue(queue)
        yield namespace


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        yield client


@pytest.fixture
def locked(namespace: LocalNamespace) -> Iterator[LockedMessages]:
    options = ClientOptions.from_connection_string(namespace.connection_string)
    locked = LockedMessages(options, ("a", "b", "missing"))
    yield locked
    locked.close()


def test_message_that_another_receiver_has_locked_is_found_until_it_is_completed(
    client: ServiceBusClient, locked: LockedMessages
) -> None:
    assert not locked.exist({})
    with client.get_queue_sender("b") as sender, client.get_queue_receiver("b") as receiver:
        sender.send_messages(ServiceBusMessage("message"))
        [message] = receiver.receive_messages(1, max_wait_time=20)
        number = message.sequence_number
        assert number is not None

        assert locked.exist({})
        assert locked.exist({"a": {number}})
        # The stream has read the message, and its sink did not settle it.
        assert not locked.exist({"b": {number}})
        receiver.complete_message(message)

    assert not locked.exist({})


def test_deferred_and_scheduled_messages_are_not_waited_for(
    client: ServiceBusClient, locked: LockedMessages, namespace: LocalNamespace
) -> None:
    with client.get_queue_sender("a") as sender, client.get_queue_receiver("a") as receiver:
        sender.send_messages(ServiceBusMessage("deferred"))
        [message] = receiver.receive_messages(1, max_wait_time=20)
        receiver.defer_message(message)
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))

        assert not locked.exist({})
        sender.send_messages(ServiceBusMessage("active"))
        assert locked.exist({})
