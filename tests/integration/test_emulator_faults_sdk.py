"""Injected faults and the SDK, sync and async: its errors, its retries, and what is stored."""

import asyncio
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp import client as sdk_amqp
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_data import stored
from tests.integration.sdk_flavours import SDK_MARKS, Flavour, eventually, take_one

pytestmark = SDK_MARKS

LATER = datetime(2999, 1, 1, tzinfo=UTC)

ON_A_SEND: dict[str, type[ServiceBusError]] = {
    "cut": ServiceBusConnectionError,
    "lose-answer": ServiceBusConnectionError,
    "throttle": ServiceBusServerBusyError,
    "internal-error": ServiceBusError,
    "detach": ServiceBusConnectionError,
    "disable": MessagingEntityDisabledError,
}
ERRORS = {
    "send": ON_A_SEND,
    # The SDK reports the loss of its management link as an internal error, and does not retry.
    "schedule": ON_A_SEND | {"detach": ServiceBusError},
}
NO_RETRY = {("schedule", "detach")}
STORES = {"lose-answer"}
"""Faults after which the message is stored."""


@pytest.fixture(autouse=True)
def _no_faults_are_left(namespace: LocalNamespace) -> Iterator[None]:
    yield
    namespace.clear_faults()


def submit(operation: str, sender: Any, *bodies: str, timeout: float | None = None) -> Any:
    """Send or schedule messages."""
    several = [ServiceBusMessage(body) for body in bodies]
    messages = several if len(several) > 1 else several[0]
    if operation == "send":
        return sender.send_messages(messages, timeout=timeout)
    return sender.schedule_messages(messages, LATER, timeout=timeout)


async def refusal(call: Awaitable[Any]) -> ServiceBusError:
    with pytest.raises(ServiceBusError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("kind", ON_A_SEND)
@pytest.mark.parametrize("operation", ERRORS)
async def test_sdk_raises_the_error_of_the_fault_or_recovers_with_a_retry(
    sdk: Flavour, operation: str, kind: str
) -> None:
    queue, retried = sdk.queue(), sdk.queue()
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.awaitable(patient):
        sender, other = await sdk.open(sdk.sender(queue), sdk.sender(retried, client=patient))
        faults = [sdk.namespace.add_fault(kind, path, count=1) for path in (queue, retried)]
        retrying = submit(operation, other, "x")
        if (operation, kind) in NO_RETRY:
            retrying = refusal(retrying)
        error, result = await asyncio.gather(refusal(submit(operation, sender, "a", "b")), retrying)
    assert [fault.fired for fault in faults] == [1, 1]
    assert type(error) is ERRORS[operation][kind]
    assert stored(sdk.namespace, queue) == (["a", "b"] if kind in STORES else [])
    if (operation, kind) in NO_RETRY:
        assert stored(sdk.namespace, retried) == []
        return
    assert operation == "send" or len(result) == 1
    # A message that was stored without a reply is sent again, and so becomes a duplicate.
    assert stored(sdk.namespace, retried) == (["x", "x"] if kind in STORES else ["x"])


async def test_message_with_a_lost_reply_is_received_although_its_sender_failed(
    sdk: Flavour,
) -> None:
    queue = sdk.queue()
    sender, receiver = await sdk.pair(queue)
    fault = sdk.namespace.add_fault("lose-answer", queue, count=1)
    with pytest.raises(ServiceBusConnectionError):
        await sender.send_messages(ServiceBusMessage("kept"))
    assert fault.fired == 1
    assert str(await take_one(receiver)) == "kept"


async def test_batch_is_lost_or_stored_as_a_whole(sdk: Flavour) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    fault = sdk.namespace.add_fault("detach", queue, after=1, count=1)
    batch = [ServiceBusMessage(f"{number}") for number in range(10)]
    await sender.send_messages(batch)
    with pytest.raises(ServiceBusConnectionError):
        await sender.send_messages(batch)
    assert fault.fired == 1
    assert sdk.stored_count(queue) == 10


@pytest.mark.parametrize("operation", ERRORS)
async def test_late_reply_is_waited_for(sdk: Flavour, operation: str) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    fault = sdk.namespace.add_fault("answer-late", queue, count=1, seconds=0.3)
    numbers = await submit(operation, sender, "x")
    assert operation == "send" or len(numbers) == 1
    assert fault.fired == 1
    assert stored(sdk.namespace, queue) == ["x"]


@pytest.mark.parametrize("operation", ERRORS)
async def test_connection_that_is_no_longer_read_times_out(sdk: Flavour, operation: str) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    await submit(operation, sender, "before")  # attach all links first, which takes time
    fault = sdk.namespace.add_fault("stop-reading", queue, count=1)
    with pytest.raises(OperationTimeoutError):
        await submit(operation, sender, "x", timeout=1)
    await eventually(lambda: fault.fired == 1)
    assert stored(sdk.namespace, queue) == ["before"]
    await submit(operation, sdk.sender(queue), "after")
    assert stored(sdk.namespace, queue) == ["before", "after"]


async def test_refused_connections_raise_or_are_retried(sdk: Flavour) -> None:
    queue = sdk.queue()
    fault = sdk.namespace.add_fault("refuse-connections", count=1)
    with pytest.raises(ServiceBusConnectionError):
        await sdk.sender(queue).send_messages(ServiceBusMessage("x"))
    assert fault.fired == 1
    fault = sdk.namespace.add_fault("refuse-connections", count=1)
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.awaitable(patient):
        await sdk.sender(queue, client=patient).send_messages(ServiceBusMessage("x"))
    assert fault.fired == 1


async def test_sdk_reattaches_with_a_new_token_after_expiry(sdk: Flavour) -> None:
    """A sender reattaches automatically. A receiver does not retry this error."""
    queue = sdk.queue()
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.awaitable(patient):
        sender, receiver = await sdk.open(
            sdk.sender(queue, client=patient), sdk.receiver(queue, client=patient, prefetch_count=1)
        )
        fault = sdk.namespace.add_fault("expire-tokens", queue, count=2)
        await eventually(lambda: fault.fired == 2)
        await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusAuthorizationError):
            await receiver.receive_messages(1, max_wait_time=10)
        assert str(await take_one(sdk.receiver(queue, client=patient))) == "x"
    assert fault.fired == 2


async def test_sdk_without_retries_reports_an_expired_token_as_a_lost_link(sdk: Flavour) -> None:
    queue = sdk.queue()
    (sender,) = await sdk.open(sdk.sender(queue))
    fault = sdk.namespace.add_fault("expire-tokens", queue, count=1)
    await eventually(lambda: fault.fired == 1)
    with pytest.raises(ServiceBusConnectionError):
        await sender.send_messages(ServiceBusMessage("x"))
    assert sdk.stored_count(queue) == 0


async def test_disabled_entity_is_reported_when_sending_and_receiving(sdk: Flavour) -> None:
    queue = sdk.queue()
    fault = sdk.namespace.add_fault("disable", queue, count=2)
    for fired, handler in ((1, sdk.sender(queue)), (2, sdk.receiver(queue))):
        with pytest.raises(MessagingEntityDisabledError):
            await sdk.open(handler)
        assert fault.fired == fired


async def test_receiver_recovers_after_its_entity_was_disabled(sdk: Flavour) -> None:
    queue = sdk.queue()
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.awaitable(patient):
        sender, receiver = await sdk.open(sdk.sender(queue), sdk.receiver(queue, client=patient))
        await sender.send_messages(ServiceBusMessage("x"))
        fault = sdk.namespace.add_fault("disable", queue, count=1)
        await receiver.complete_message(await take_one(receiver))
    assert fault.fired == 1
    assert sdk.stored_count(queue) == 0


async def test_default_retries_recover_from_throttling(sdk: Flavour) -> None:
    queue = sdk.queue()
    default = sdk.connect_with_defaults()
    async with sdk.awaitable(default):
        (sender,) = await sdk.open(sdk.sender(queue, client=default))
        fault = sdk.namespace.add_fault("throttle", queue, count=1)
        await sender.send_messages(ServiceBusMessage("x"))
    assert fault.fired == 1
    assert stored(sdk.namespace, queue) == ["x"]


# Tokens.


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_refused_token_is_an_authentication_error_or_retried(
    sdk: Flavour, status: int
) -> None:
    queue = sdk.queue()
    fault = sdk.namespace.add_fault("refuse-tokens", queue, count=2, status=status)
    with pytest.raises(ServiceBusAuthenticationError):
        await sdk.open(sdk.sender(queue))
    assert fault.fired == 1
    patient = sdk.connect(sdk.namespace.connection_string, retry_total=1)
    async with sdk.awaitable(patient):
        await sdk.sender(queue, client=patient).send_messages(ServiceBusMessage("x"))
    assert fault.fired == 2
    assert stored(sdk.namespace, queue) == ["x"]


async def test_token_without_a_response_times_out(
    sdk: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_amqp, "DEFAULT_AUTH_TIMEOUT", 1)
    queue = sdk.queue()
    fault = sdk.namespace.add_fault("ignore-tokens", queue, count=1)
    with pytest.raises(ServiceBusError, match="timed-out"):
        await sdk.open(sdk.sender(queue))
    # The SDK counts whole seconds: the first one may be short.
    await eventually(lambda: fault.fired == 1)
