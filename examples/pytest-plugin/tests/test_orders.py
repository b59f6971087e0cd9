"""Orders, with the sync client of the SDK."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError
from shop.orders import ORDERS, PAYMENT_DUE, REMINDERS, confirm_order, place_order, remind

from pairbus.emulator import LocalNamespace


@pytest.fixture
def client(servicebus_namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    connection_string = servicebus_namespace.connection_string
    with ServiceBusClient.from_connection_string(connection_string) as client:
        yield client


@pytest.mark.servicebus_queue(
    ORDERS, requires_duplicate_detection=True, lock_duration=timedelta(minutes=5)
)
def test_order_is_confirmed_once(
    servicebus_namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    with client.get_queue_sender(ORDERS) as sender, client.get_queue_receiver(ORDERS) as receiver:
        for order in ("books", "bread", "books"):
            place_order(sender, order)
        [held] = receiver.receive_messages(max_wait_time=5)
        servicebus_namespace.advance(timedelta(minutes=5))
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(held)
        assert [confirm_order(receiver, stock={"books"}) for _ in range(2)] == ["books", None]
        assert receiver.receive_messages(max_wait_time=0.2) == []


@pytest.mark.servicebus_queue(REMINDERS)
def test_reminder_is_sent_after_a_day(
    servicebus_namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    with (
        client.get_queue_sender(REMINDERS) as sender,
        client.get_queue_receiver(REMINDERS) as receiver,
    ):
        remind(sender, "books", servicebus_namespace.now())
        servicebus_namespace.advance(PAYMENT_DUE - timedelta(minutes=5))
        assert receiver.receive_messages(max_wait_time=0.2) == []
        servicebus_namespace.advance(timedelta(minutes=5))
        assert [str(message) for message in receiver.receive_messages(max_wait_time=5)] == ["books"]
