"""The public names as an application uses them: type-checked, never run."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_type

import azure.servicebus.aio
from azure.core.async_paging import AsyncItemPaged
from azure.core.paging import ItemPaged
from azure.identity import DefaultAzureCredential
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

import pairbus
import pairbus.aio
from pairbus import (
    FailureKind,
    PairedClient,
    PairedSender,
    PathStatus,
    SendAvailabilityOptions,
    SendUnavailable,
    StateChanged,
    drop_pings,
    pair_namespace,
)
from pairbus.amqp.client import ClientOptions
from pairbus.events import Event
from pairbus.syphon import Syphon, SyphonOptions, SyphonStatus

version: str = pairbus.__version__


def on_event(event: Event) -> None:
    if isinstance(event, StateChanged):
        path: str = event.path
        state: PathStatus = event.to_state
        print(path, state)


def classify(error: BaseException) -> FailureKind:
    return FailureKind.CALLER


options = SendAvailabilityOptions(
    secondary="Endpoint=…",
    failover_interval=timedelta(0),
    failback="after-drain",
    on_event=on_event,
    classify=classify,
    console="https://console.example.com",
    console_token=lambda: "token",
    console_ca_file=Path("ca.pem"),
    console_application="orders",
)


def send(client: ServiceBusClient) -> None:
    bus: PairedClient
    with pair_namespace(client, options) as bus:
        sender: PairedSender
        with bus.get_queue_sender("orders") as sender:
            try:
                sender.send_messages(ServiceBusMessage("x"))
            except SendUnavailable as exc:
                cause: BaseException | None = exc.primary_error
                print(cause)
            numbers: list[int | None] = sender.schedule_messages(
                ServiceBusMessage("y"), datetime.now(UTC)
            )
            sender.cancel_scheduled_messages(numbers)
        since: datetime = bus.status().paths["orders"].since
        print(since)
        with bus.get_queue_receiver("orders") as receiver:
            received = receiver.receive_messages(10)
            messages: list[ServiceBusReceivedMessage] = drop_pings(receiver, received)
            print(messages)


async def send_async(client: azure.servicebus.aio.ServiceBusClient) -> None:
    async with (
        await pairbus.aio.pair_namespace(client, options) as bus,
        bus.get_topic_sender("news") as sender,
    ):
        await sender.send_messages([ServiceBusMessage("x")])


def types_of_the_sdk(bus: PairedClient, sender: PairedSender) -> None:
    assert_type(bus.get_queue_sender("orders", client_identifier="a"), PairedSender)
    assert_type(bus.get_topic_sender("news"), PairedSender)
    assert_type(bus.get_queue_receiver("orders", max_wait_time=5), ServiceBusReceiver)
    assert_type(bus.get_subscription_receiver("news", "all"), ServiceBusReceiver)
    assert_type(bus.list_queue_sessions("orders"), ItemPaged[str])
    assert_type(bus.list_subscription_sessions("news", "all"), ItemPaged[str])
    assert_type(sender.create_message_batch(), ServiceBusMessageBatch)
    assert_type(bus.primary.cause, BaseException | None)
    bus.secondary.close()


async def types_of_the_async_sdk(
    bus: pairbus.aio.PairedClient, sender: pairbus.aio.PairedSender
) -> None:
    receiver = bus.get_queue_receiver("orders")
    assert_type(bus.get_queue_sender("orders"), pairbus.aio.PairedSender)
    assert_type(receiver, azure.servicebus.aio.ServiceBusReceiver)
    assert_type(bus.list_queue_sessions("orders"), AsyncItemPaged[str])
    assert_type(await sender.create_message_batch(), ServiceBusMessageBatch)
    await bus.secondary.close()


def drain(moving: SyphonOptions) -> int:
    with Syphon(moving) as syphon:
        syphon.wait(60)
        status: SyphonStatus = syphon.status()
        return sum(status.moved.values())


def reach_with_entra(credential: DefaultAzureCredential) -> tuple[ClientOptions, ClientOptions]:
    return (
        ClientOptions.from_host("contoso.servicebus.windows.net", credential),
        ClientOptions.from_host("contoso.servicebus.windows.net", DefaultAzureCredential),
    )
