"""Shipping: the parcels of a customer leave in the order in which they were packed."""

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

PARCELS = "parcels"


async def pack(client: ServiceBusClient, customer: str, *parcels: str) -> None:
    async with client.get_queue_sender(PARCELS) as sender:
        await sender.send_messages(
            [ServiceBusMessage(parcel, session_id=customer) for parcel in parcels]
        )


async def ship(client: ServiceBusClient, customer: str) -> list[str]:
    """Ship the parcels that are ready, and return them."""
    async with client.get_queue_receiver(PARCELS, session_id=customer) as receiver:
        messages = await receiver.receive_messages(10, max_wait_time=5)
        for message in messages:
            await receiver.complete_message(message)
        return [str(message) for message in messages]
