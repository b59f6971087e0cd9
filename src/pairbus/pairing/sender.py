"""The paired sender for the synchronous SDK."""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Self

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from pairbus.errors import PairbusError
from pairbus.pairing import operations
from pairbus.pairing.backlog_send import QueueFailure
from pairbus.pairing.driver import ThreadDriver, acquire
from pairbus.pairing.effects import check_time_left, is_too_late
from pairbus.pairing.payloads import MessageTypes, message_count, paired_batch
from pairbus.pairing.sdk_payloads import send_payloads
from pairbus.pairing.sender_base import DirectBatch, PairedSenderBase

__all__ = ["PairedSender"]


class PairedSender(PairedSenderBase[ThreadDriver]):
    """Sends to a queue or topic of the primary, or to the backlog while the primary is down.

    It has the methods of `ServiceBusSender`. When a call returns, the primary or the backlog has
    accepted the messages. SendUnavailable and PartlyStored have the outcome of each message; after
    an error of the SDK a message may have been sent, as without pairing. Several threads can use a
    sender; their calls take turns.
    """

    def __enter__(self) -> Self:
        self._driver.run(
            operations.open_link(self._begin_call(), lambda sender: sender.__enter__())
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send_messages(
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
            sent, failure = self._send_to_primary(messages, timeout, kwargs)
            if sent:
                return
        elif (batch := self._direct_batch(messages)) is not None:
            timeout_s = self._backlog_timeout_s(timeout)
            stored, queue_failure = self._send_to_backlog(batch, timeout_s)
            if stored:
                return
        call = self._call_since(started_at, timeout)
        self._driver.run(operations.send(call, messages, timeout, kwargs, failure, queue_failure))

    def _send_to_primary(
        self, messages: Any, timeout: float | None, options: dict[str, Any]
    ) -> tuple[bool, Exception | None]:
        """Send to a healthy primary. Return whether the primary accepted the messages and, if not,
        the exception for the operation to handle."""
        pairing, links = self._pairing, self._links
        timeout_s = self._primary_timeout_s(timeout)
        left_s = acquire(links.lock, timeout_s)
        if left_s is None:
            return False, None
        try:
            if not self._is_healthy():  # it changed while this call waited for its turn
                return False, None
            check_time_left(left_s, timeout_s)
            sender = links.begin_primary_call()
            try:
                self._driver.deadlines.run(
                    sender,
                    lambda sender: sender.send_messages(messages, timeout=timeout, **options),
                    left_s,
                )
            except BaseException as exc:
                if links.primary_call_ended(sender, exc):
                    self._driver.discard(sender)
                if isinstance(exc, PairbusError) or not isinstance(exc, Exception):
                    raise
                return False, exc
            links.primary_call_ended(sender, None)
            self._sent.messages += (
                1 if type(messages) is ServiceBusMessage else message_count(messages)
            )
        finally:
            links.lock.release()
        if not self._is_healthy():  # another send failed in the meantime
            pairing.send_succeeded(self._path)
        return True, None

    def _send_to_backlog(
        self, batch: DirectBatch, timeout_s: float
    ) -> tuple[bool, QueueFailure | None]:
        """Send to a backlog queue over an open link. Return whether it accepted the messages and,
        if not, the failure for the operation to handle."""
        links, queue = self._links, batch.queue
        left_s = acquire(links.lock, timeout_s)
        if left_s is None:
            return False, None
        try:
            sender = links.backlog_sender(queue)
            if sender is None or is_too_late(left_s, timeout_s):
                return False, None
            send = partial(send_payloads, payloads=batch.payloads, traced=False)
            try:
                self._driver.deadlines.run(sender, send, left_s)
            except BaseException as exc:
                links.backlog_call_ended(queue, sender, exc, answered=False)
                self._driver.discard(sender)
                if isinstance(exc, PairbusError) or not isinstance(exc, Exception):
                    raise
                return False, QueueFailure(queue, exc)
            links.backlog_call_ended(queue, sender, None, answered=True)
        finally:
            links.lock.release()
        self._stored_directly(batch)
        return True, None

    def schedule_messages(
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
        return self._driver.run(
            operations.schedule(call, messages, schedule_time_utc, timeout, kwargs)
        )

    def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Iterable[int | None] | None,
        *,
        timeout: float | None = None,
        **kwargs: object,
    ) -> None:
        """Cancel scheduled messages. Raises CannotCancel for a message in the backlog."""
        call = self._begin_call(timeout)
        self._driver.run(operations.cancel(call, sequence_numbers, timeout, kwargs))

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Create a batch with the limits of the primary or, in failover, of the backlog."""
        batch = self._driver.run(
            operations.create_batch(
                self._begin_call(), lambda sender: sender.create_message_batch(max_size_in_bytes)
            )
        )
        return paired_batch(batch, max_size_in_bytes)

    def close(self) -> None:
        """Close the links. Can be called repeatedly."""
        self._driver.run(self._links.close())
