"""A sender of the SDK, protected."""

import threading
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing import operations
from pairbus.pairing.base import PairedSenderBase, paired_batch
from pairbus.pairing.deadlines import CallTimedOut
from pairbus.pairing.operations import ManagementUsage, OnBacklog, OnPrimary, Operation, Ping
from pairbus.usage.operations import Purpose

if TYPE_CHECKING:
    from pairbus.pairing.client import PairedClient

T = TypeVar("T")


class PairedSender(PairedSenderBase):
    """Sends to a queue or topic of the primary, or to the backlog while that is down.

    It has the methods of `ServiceBusSender`. When a call returns, the primary or the backlog has
    the messages; when it raises, the error says what was sent: nothing, unless it is PartlyStored,
    or the answer was lost on the way. A sender can be used from several threads, one at a time.
    """

    def __init__(
        self, bus: "PairedClient", path: str, connect: Callable[[], Any], identifier: str | None
    ) -> None:
        super().__init__(bus.pairing, path, connect, identifier)
        self._bus = bus
        self._lock = threading.Lock()

    def __enter__(self) -> "PairedSender":
        self._drive(operations.enter(self._call(), lambda sender: sender.__enter__()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Send a message, several, or a batch. Raises what the SDK raises, or SendUnavailable,
        PartlyStored, MessageTooLargeForBacklog, ReservedProperty."""
        began, failure = self._pairing.now(), None
        if timeout is None and self._goes_straight(message) and self._lock.acquire(blocking=False):
            failure = self._straight(message, kwargs)
            if failure is None:
                return
        self._drive(operations.send(self._call(timeout, began), message, timeout, kwargs, failure))

    def schedule_messages(
        self,
        messages: Any,
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[int | None]:
        """Send messages that are to be enqueued later; their sequence numbers. In failover the
        schedule rides along, and there is None in place of a number."""
        call = self._call(timeout)
        return self._drive(operations.schedule(call, messages, schedule_time_utc, timeout, kwargs))

    def cancel_scheduled_messages(
        self, sequence_numbers: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel scheduled messages. Raises CannotCancel for one that went to the backlog."""
        self._drive(operations.cancel(self._call(timeout), sequence_numbers, timeout, kwargs))

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch to add messages to, by the limits of the primary or, in failover, the backlog."""
        made = self._drive(
            operations.make_batch(
                self._call(), lambda sender: sender.create_message_batch(max_size_in_bytes)
            )
        )
        return paired_batch(made, max_size_in_bytes)

    def close(self) -> None:
        """Close the links. Can be called again."""
        with self._lock:
            self._closed = True
            for queue in list(self._backlog):
                self._bus.discard(self._backlog.pop(queue))
            if self._primary is not None:
                self._bus.discard(self._primary)
                self._primary = None
        self._pairing.forget(self._path, self)

    def _straight(self, message: Any, options: dict[str, Any]) -> Exception | None:
        """Send to the primary, as a flow would. What it met, which the flow goes on from."""
        try:
            self._ask_primary(
                lambda sender: sender.send_messages(message, **options),
                self._pairing.primary_budget_s,
            )
        except Exception as exc:  # noqa: BLE001  the flow decides what it means
            return exc
        self._pairing.succeeded(self._path)
        return None

    # How a flow is carried out.

    def _drive(self, steps: Operation[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    result = self._perform(effect)
                except Exception as exc:  # noqa: BLE001  the flow decides what it means
                    effect = steps.throw(exc)
                else:
                    effect = steps.send(result)
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()

    def _perform(self, effect: operations.Effect) -> Any:
        if isinstance(effect, OnPrimary):
            return self._on_primary(effect)
        if isinstance(effect, OnBacklog):
            return self._on_backlog(effect)
        if isinstance(effect, Ping):
            return self._bus.ping(self._path, effect.budget_s)
        return self._bus.wait(effect.seconds)

    def _on_primary(self, effect: OnPrimary) -> Any:
        self._take(effect.budget_s)
        return self._ask_primary(effect.call, effect.budget_s, effect.charge)

    def _ask_primary(
        self, call: Callable[[Any], T], budget_s: float, charge: ManagementUsage | None = None
    ) -> T:
        """Call the primary's sender. The lock is held, and is released when that is over."""
        answered = False
        try:
            if self._primary is None:
                self._primary = self._connect()
            sender = self._primary
            try:
                result = self._bus.watch.run(sender, call, budget_s)
                answered = True
                return result
            finally:
                self._bus.count(
                    sender, self.entity_name, Purpose.TRAFFIC, answered=answered, charge=charge
                )
        except CallTimedOut:
            self._bus.discard(self._primary)
            self._primary = None
            raise
        finally:
            self._lock.release()

    def _on_backlog(self, effect: OnBacklog) -> Any:
        self._take(effect.budget_s)
        try:
            sender = self._backlog.get(effect.queue)
            if sender is None:
                sender = self._backlog[effect.queue] = self._bus.backlog_sender(effect.queue)
            answered = False
            try:
                result = self._bus.watch.run(sender, effect.call, effect.budget_s)
                answered = True
                return result
            finally:
                self._bus.count(sender, self.entity_name, Purpose.BACKLOG, answered=answered)
        except Exception:
            failed = self._backlog.pop(effect.queue, None)
            if failed is not None:
                self._bus.discard(failed)
            raise
        finally:
            self._lock.release()

    def _take(self, seconds: float) -> None:
        """A sender of the SDK is for one thread at a time."""
        if not self._lock.acquire(timeout=max(seconds, 0)):
            raise OperationTimeoutError(
                message=f"another thread has used this sender for {seconds:g} s"
            )
        if self._closed:
            self._lock.release()
            self._check_not_closed()
