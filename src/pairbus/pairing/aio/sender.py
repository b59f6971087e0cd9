"""The paired sender for the asynchronous SDK."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from pairbus.errors import PairbusError
from pairbus.pairing import operations
from pairbus.pairing.aio.driver import LoopDriver
from pairbus.pairing.backlog_send import QueueFailure
from pairbus.pairing.effects import check_time_left, is_too_late
from pairbus.pairing.payloads import MessageTypes, message_count, paired_batch
from pairbus.pairing.sdk import is_open
from pairbus.pairing.sdk_payloads import send_payloads
from pairbus.pairing.sender_base import DirectBatch, PairedSenderBase

__all__ = ["PairedSender"]


class PairedSender(PairedSenderBase[LoopDriver]):
    """Sends to a queue or topic of the primary, or to the backlog while the primary is down.

    It has the methods of `azure.servicebus.aio.ServiceBusSender`, and the guarantees of
    `pairbus.PairedSender`. Many tasks can use a sender; their calls take turns.
    """

    async def __aenter__(self) -> Self:
        call = self._begin_call()
        await self._driver.run(operations.open_link(call, lambda sender: sender.__aenter__()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def send_messages(
        self,
        message: MessageTypes | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
        **kwargs: object,
    ) -> None:
        """Send one message, several, or a batch. Raises the SDK's errors, SendUnavailable,
        PartlyStored, MessageTooLargeForBacklog or ReservedProperty."""
        started_at = self._pairing.now()
        messages = self._prepare(message, timeout)
        failure = queue_failure = None
        if self._is_healthy():
            sent, failure = await self._send_to_primary(messages, timeout, kwargs)
            if sent:
                return
        elif (batch := self._direct_batch(messages)) is not None:
            timeout_s = self._backlog_timeout_s(timeout)
            stored, queue_failure = await self._send_to_backlog(batch, timeout_s)
            if stored:
                return
        call = self._call_since(started_at, timeout)
        operation = operations.send(call, messages, timeout, kwargs, failure, queue_failure)
        await self._driver.run(operation)

    async def _send_to_primary(
        self, messages: Any, timeout: float | None, options: dict[str, Any]
    ) -> tuple[bool, Exception | None]:
        """Send to a healthy primary over an open link. Return whether the primary accepted the
        messages and, if not, the exception for the operation to handle."""
        pairing, links = self._pairing, self._links
        timeout_s = self._primary_timeout_s(timeout)
        sender: Any = None
        error: BaseException | None = None
        try:
            with self._driver.time_limits.limit(timeout_s) as limit:
                waits = links.lock.locked()
                async with links.lock:
                    # The state may have changed while this call waited for its turn.
                    if not self._is_healthy() or not is_open(links.primary_sender()):
                        return False, None
                    if waits:
                        check_time_left(limit.left_s, timeout_s)
                    limit.link = sender = links.begin_primary_call()
                    await sender.send_messages(messages, timeout=timeout, **options)
                    self._sent.messages += (
                        1 if type(messages) is ServiceBusMessage else message_count(messages)
                    )
        except BaseException as exc:
            error = exc
            if isinstance(exc, PairbusError) or not isinstance(exc, Exception):
                raise
            # Without a sender, the time was spent waiting for other calls of this sender.
            return False, None if sender is None else exc
        finally:
            if sender is not None and links.primary_call_ended(sender, error):
                self._driver.discard(sender)
        if not self._is_healthy():  # another send failed in the meantime
            pairing.send_succeeded(self._path)
        return True, None

    async def _send_to_backlog(
        self, batch: DirectBatch, timeout_s: float
    ) -> tuple[bool, QueueFailure | None]:
        """Send to a backlog queue over an open link. Return whether it accepted the messages and,
        if not, the failure for the operation to handle."""
        links, queue = self._links, batch.queue
        sender: Any = None
        error: BaseException | None = None
        try:
            with self._driver.time_limits.limit(timeout_s) as limit:
                waits = links.lock.locked()
                async with links.lock:
                    backlog_sender = links.backlog_sender(queue)
                    if backlog_sender is None or not is_open(backlog_sender):
                        return False, None
                    if waits and is_too_late(limit.left_s, timeout_s):
                        return False, None
                    limit.link = sender = backlog_sender
                    await send_payloads(sender, batch.payloads, traced=False)
        except BaseException as exc:
            error = exc
            if isinstance(exc, PairbusError) or not isinstance(exc, Exception):
                raise
            # Without a sender, the time was spent waiting for other calls of this sender.
            return False, None if sender is None else QueueFailure(queue, exc)
        finally:
            if sender is not None and links.backlog_call_ended(
                queue, sender, error, answered=error is None
            ):
                self._driver.discard(sender)
        self._stored_directly(batch)
        return True, None

    async def schedule_messages(
        self,
        messages: MessageTypes,
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **kwargs: object,
    ) -> list[int | None]:
        """Schedule messages, and return their sequence numbers. In failover the messages go to the
        backlog with their schedule, and the result has None for each."""
        call = self._begin_call(timeout)
        return await self._driver.run(
            operations.schedule(call, messages, schedule_time_utc, timeout, kwargs)
        )

    async def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Iterable[int | None] | None,
        *,
        timeout: float | None = None,
        **kwargs: object,
    ) -> None:
        """Cancel scheduled messages. Raises CannotCancel for a message in the backlog."""
        call = self._begin_call(timeout)
        await self._driver.run(operations.cancel(call, sequence_numbers, timeout, kwargs))

    async def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        """Create a batch with the limits of the primary or, in failover, of the backlog."""
        batch = await self._driver.run(
            operations.create_batch(
                self._begin_call(), lambda sender: sender.create_message_batch(max_size_in_bytes)
            )
        )
        return paired_batch(batch, max_size_in_bytes)

    async def close(self) -> None:
        """Close the links. Can be called repeatedly."""
        await self._driver.run(self._links.close())
