"""Shipping, with the async client of the SDK."""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from shop.shipping import PARCELS, pack, ship

from pairbus.emulator import LocalNamespace, NamespaceFactory


@pytest.mark.servicebus_queue(PARCELS, requires_session=True)
async def test_parcels_of_a_customer_leave_in_order(servicebus_namespace: LocalNamespace) -> None:
    connection_string = servicebus_namespace.connection_string
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await pack(client, "ada", "1", "2", "3")
        assert await ship(client, "ada") == ["1", "2", "3"]


@pytest.mark.servicebus_topic(
    "news", subscriptions={"all": {}, "sale": {"sql_filter": "price < 5"}}
)
async def test_news_expire(servicebus_namespace: LocalNamespace) -> None:
    connection_string = servicebus_namespace.connection_string
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_topic_sender("news") as sender:
            hour = timedelta(hours=1)
            await sender.send_messages(
                [
                    ServiceBusMessage(
                        "expired", time_to_live=hour, application_properties={"price": 4}
                    ),
                    ServiceBusMessage("cheap", application_properties={"price": 4}),
                    ServiceBusMessage("dear", application_properties={"price": 9}),
                ]
            )
        servicebus_namespace.advance(hour)
        async with client.get_subscription_receiver("news", "sale") as receiver:
            messages = await receiver.receive_messages(5, max_wait_time=5)
            assert [str(message) for message in messages] == ["cheap"]


def test_two_namespaces_are_separate(servicebus_namespace_factory: NamespaceFactory) -> None:
    with (
        servicebus_namespace_factory("east", queues=[PARCELS]) as east,
        servicebus_namespace_factory("west", queues=[PARCELS]) as west,
    ):
        assert east.connection_string != west.connection_string
