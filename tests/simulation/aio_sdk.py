"""The asynchronous Azure SDK: the senders and receivers of `sdk.py`, whose calls are awaited.

A call runs in a simulated thread. A call that is cancelled ends there as well, at its next step.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessageBatch

from pairbus.pairing.sdk import CallInterrupted
from tests.simulation.sdk import (
    Attempt,
    PeekedMessage,
    SdkClient,
    SdkReceiver,
    SdkSender,
    TransferRecord,
    _Link,
)

T = TypeVar("T")


class AsyncSdkClient(SdkClient):
    """In the place of `azure.servicebus.aio.ServiceBusClient`."""

    def get_queue_sender(self, path: str, **options: Any) -> "AsyncSdkSender":
        return AsyncSdkSender(self, path)

    def get_queue_receiver(self, path: str, **options: Any) -> "AsyncSdkReceiver":
        return AsyncSdkReceiver(self, path)

    async def close(self) -> None:  # type: ignore[override]
        pass


async def _in_thread(link: _Link, function: Callable[[], T]) -> T:
    """Run a function of a link in a thread, and interrupt it if the caller is cancelled."""
    process = link.process
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        error: Exception | None = None
        value: Any = None
        try:
            value = function()
        except Exception as exc:  # noqa: BLE001  for the caller
            error = exc
        loop.call_soon_threadsafe(end, value, error)

    def end(value: T, error: Exception | None) -> None:
        if result.done():  # the caller was cancelled
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def interrupt() -> None:
        if not thread.ended:
            thread.interrupt(CallInterrupted("the call was cancelled"))

    thread = process.spawn(run, "SDK")
    try:
        return await result
    except asyncio.CancelledError:
        process.scheduler.call_soon(interrupt, process)
        raise


def _handler_of(link: _Link) -> Any:
    """Return what `abort_connection` looks for."""
    transport = SimpleNamespace(abort=link.abort)
    writer = SimpleNamespace(transport=transport)
    return SimpleNamespace(_connection=SimpleNamespace(_transport=SimpleNamespace(writer=writer)))


class AsyncSdkSender(SdkSender):
    """In the place of `azure.servicebus.aio.ServiceBusSender`."""

    def __init__(self, client: SdkClient, path: str) -> None:
        super().__init__(client, path)
        self._handler = _handler_of(self)
        self._answers: list[tuple[TransferRecord, list[bytes], str]] = []

    async def __aenter__(self) -> "AsyncSdkSender":
        await _in_thread(self, super().__enter__)
        return self

    async def create_message_batch(  # type: ignore[override]
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        create = super().create_message_batch
        return await _in_thread(self, lambda: create(max_size_in_bytes))

    # A call is reported when it is made. The thread that carries it out runs later.

    def send_messages(  # type: ignore[override]
        self, message: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> Awaitable[None]:
        return self._carry_out(self._sending(message, self._send, timeout))

    def _do_retryable_operation(  # type: ignore[override]
        self, operation: Attempt, *, message: Any, timeout: float | None, **_: Any
    ) -> Awaitable[None]:
        return self._carry_out(self._sending(message, operation, timeout))

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None, **_: Any
    ) -> Any:
        return self._carry_out(self._scheduling(messages, schedule_time_utc, timeout))

    def cancel_scheduled_messages(
        self, numbers: list[int], *, timeout: float | None, **_: Any
    ) -> Any:
        return self._carry_out(
            self._requesting([], lambda requests: requests.cancel(numbers, timeout_s=timeout))
        )

    async def _carry_out(self, call: Callable[[], T]) -> T:
        """Make a call. The SDK reads answers in the task of its caller, so one that is cancelled
        sees none."""
        try:
            return await _in_thread(self, call)
        except asyncio.CancelledError:
            self._answers.clear()
            raise
        finally:
            for answer in self._answers:
                super()._answered(*answer)
            self._answers.clear()

    def _answered(self, record: TransferRecord, payloads: list[bytes], event: str) -> None:
        self._answers.append((record, payloads, event))

    async def close(self) -> None:  # type: ignore[override]
        await _in_thread(self, super().close)


class AsyncSdkReceiver(SdkReceiver):
    """In the place of `azure.servicebus.aio.ServiceBusReceiver`."""

    def __init__(self, client: SdkClient, path: str) -> None:
        super().__init__(client, path)
        self._handler = _handler_of(self)

    async def peek_messages(  # type: ignore[override]
        self, max_message_count: int = 1, *, sequence_number: int = 0, timeout: float | None = None
    ) -> list[PeekedMessage]:
        peek = super().peek_messages
        return await _in_thread(
            self,
            lambda: peek(max_message_count, sequence_number=sequence_number, timeout=timeout),
        )

    async def close(self) -> None:  # type: ignore[override]
        await _in_thread(self, super().close)
