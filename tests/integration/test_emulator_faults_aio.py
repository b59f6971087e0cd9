"""Injected faults and the async SDK, with cases that the sync tests leave out: a half-open
connection, and a receiver."""

import asyncio
from collections.abc import Awaitable, Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_flavours import (
    SDK_MARKS,
    Flavour,
    eventually,
    take_one,
)

pytestmark = SDK_MARKS

ON_A_SEND: dict[str, type[ServiceBusError]] = {
    "cut": ServiceBusConnectionError,
    "lose-answer": ServiceBusConnectionError,
    "throttle": ServiceBusServerBusyError,
    "internal-error": ServiceBusError,
    "detach": ServiceBusConnectionError,
    "disable": MessagingEntityDisabledError,
}
STORES = {"lose-answer"}
"""Faults after which the message is stored."""


@pytest.fixture(autouse=True)
def _no_faults_are_left(namespace: LocalNamespace) -> Iterator[None]:
    yield
    namespace.clear_faults()


@pytest.mark.parametrize("kind", ON_A_SEND)
async def test_sdk_raises_the_error_of_the_fault_or_recovers_with_a_retry(
    sdk: Flavour, kind: str
) -> None:
    queue, retried = sdk.queue(), sdk.queue()
    async with sdk.connect(sdk.namespace.connection_string, retry_total=1) as patient:
        sender, other = await sdk.open(sdk.sender(queue), sdk.sender(retried, client=patient))
        faults = [sdk.namespace.add_fault(kind, path, count=1) for path in (queue, retried)]
        failed, _ = await asyncio.gather(
            refusal(sender.send_messages(ServiceBusMessage("x"))),
            other.send_messages(ServiceBusMessage("x")),
        )
    assert [fault.fired for fault in faults] == [1, 1]
    assert type(failed) is ON_A_SEND[kind]
    assert sdk.held(queue) == (kind in STORES)
    # A message that was stored without a reply is sent again, and so becomes a duplicate.
    assert sdk.held(retried) == 1 + (kind in STORES)


async def refusal(sending: Awaitable[None]) -> ServiceBusError:
    with pytest.raises(ServiceBusError) as caught:
        await sending
    return caught.value


async def test_batch_is_lost_or_stored_as_a_whole(sdk: Flavour) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    fault = sdk.namespace.add_fault("detach", queue, after=1, count=1)
    batch = [ServiceBusMessage(f"{number}") for number in range(10)]
    await sender.send_messages(batch)
    with pytest.raises(ServiceBusConnectionError):
        await sender.send_messages(batch)
    assert fault.fired == 1
    assert sdk.held(queue) == 10


async def test_late_reply_is_waited_for(sdk: Flavour) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    fault = sdk.namespace.add_fault("answer-late", queue, count=1, seconds=0.2)
    await sender.send_messages(ServiceBusMessage("x"))
    assert fault.fired == 1
    assert sdk.held(queue) == 1


async def test_connection_that_is_no_longer_read_times_out(sdk: Flavour) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    fault = sdk.namespace.add_fault("stop-reading", queue, count=1)
    with pytest.raises(OperationTimeoutError):
        await sender.send_messages(ServiceBusMessage("x"), timeout=0.5)
    await eventually(lambda: fault.fired == 1)
    assert sdk.held(queue) == 0
    await sdk.sender(queue).send_messages(ServiceBusMessage("x"))
    assert sdk.held(queue) == 1


async def test_refused_connections_raise_or_are_retried(sdk: Flavour) -> None:
    queue = sdk.queue()
    fault = sdk.namespace.add_fault("refuse-connections", count=1)
    with pytest.raises(ServiceBusConnectionError):
        await sdk.sender(queue).send_messages(ServiceBusMessage("x"))
    assert fault.fired == 1
    fault = sdk.namespace.add_fault("refuse-connections", count=1)
    async with sdk.connect(sdk.namespace.connection_string, retry_total=1) as patient:
        await sdk.sender(queue, client=patient).send_messages(ServiceBusMessage("x"))
    assert fault.fired == 1


async def test_sdk_reattaches_with_a_new_token_after_expiry(
    sdk: Flavour,
) -> None:
    """A sender reattaches by itself. For a receiver, the error is not one to retry."""
    queue = sdk.queue()
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.face(patient):
        sender, receiver = await sdk.open(
            sdk.sender(queue, client=patient), sdk.receiver(queue, client=patient)
        )
        fault = sdk.namespace.add_fault("expire-tokens", queue, count=2)
        await eventually(lambda: fault.fired == 2)
        await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusAuthorizationError):
            await receiver.receive_messages(1, max_wait_time=10)
        assert str(await take_one(sdk.receiver(queue, client=patient))) == "x"
    assert fault.fired == 2


async def test_receiver_recovers_after_its_entity_was_disabled(sdk: Flavour) -> None:
    queue = sdk.queue()
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.face(patient):
        sender, receiver = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue, client=patient, prefetch_count=0)
        )
        await sender.send_messages(ServiceBusMessage("x"))
        fault = sdk.namespace.add_fault("disable", queue, count=1)
        await receiver.complete_message(await take_one(receiver))
    assert fault.fired == 1
    assert sdk.held(queue) == 0
