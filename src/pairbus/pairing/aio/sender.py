"""A sender of the async SDK, protected. The decisions are those of `pairbus.pairing.operations`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing import operations
from pairbus.pairing.base import PairedSenderBase, paired_batch
from pairbus.pairing.deadlines import CallTimedOut
from pairbus.pairing.operations import OnBacklog, OnPrimary, Operation, Ping
from pairbus.pairing.sdk import cut_off
from pairbus.usage.operations import Purpose

if TYPE_CHECKING:
    from pairbus.pairing.aio.client import PairedClient

T = TypeVar("T")


async def bounded(of: Any, work: Awaitable[T], seconds: float) -> T:
    """The result of some work of something of the SDK. Raises what it raises, or Overrun; then the
    work may still be under way, and whose it is must not be used again: its connection is cut."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        _abandon(of, task)
        raise
    if done:
        return task.result()
    _abandon(of, task)
    raise CallTimedOut(message=f"no answer within {seconds:g} s: the call was given up")


def _abandon(of: Any, task: "asyncio.Future[Any]") -> None:
    # First: the SDK forgets the connection when it hears of the other.
    cut_off(of)
    task.cancel()
    # Whatever comes of it: somebody has to have looked.
    task.add_done_callback(lambda one: one.cancelled() or one.exception())


class PairedSender(PairedSenderBase):
    """Sends to a queue or topic of the primary, or to the backlog while that is down.

    It has the methods of `azure.servicebus.aio.ServiceBusSender`, and the promises of
    `pairbus.PairedSender`. Many tasks can use it, one at a time.
    """

    def __init__(
        self, bus: "PairedClient", path: str, connect: Callable[[], Any], identifier: str | None
    ) -> None:
        super().__init__(bus.pairing, path, connect, identifier)
        self._bus = bus
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> "PairedSender":
        await self._drive(operations.enter(self._call(), lambda sender: sender.__aenter__()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def send_messages(
        self, message: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Send a message, several, or a batch. Raises what the SDK raises, or SendUnavailable,
        PartlyStored, MessageTooLargeForBacklog, ReservedProperty."""
        await self._drive(operations.send(self._call(timeout), message, timeout, kwargs))

    async def schedule_messages(
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
        return await self._drive(
            operations.schedule(call, messages, schedule_time_utc, timeout, kwargs)
        )

    async def cancel_scheduled_messages(
        self, sequence_numbers: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel scheduled messages. Raises CannotCancel for one that went to the backlog."""
        await self._drive(operations.cancel(self._call(timeout), sequence_numbers, timeout, kwargs))

    async def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        """A batch to add messages to, by the limits of the primary or, in failover, the backlog."""
        made = await self._drive(
            operations.make_batch(
                self._call(), lambda sender: sender.create_message_batch(max_size_in_bytes)
            )
        )
        return paired_batch(made, max_size_in_bytes)

    async def close(self) -> None:
        """Close the links. Can be called again."""
        self._closed = True
        async with self._lock:
            senders = [*self._backlog.values(), self._primary]
            self._backlog.clear()
            self._primary = None
        for sender in senders:
            if sender is not None:
                await self._bus.discard(sender)
        self._pairing.forget(self._path, self)

    # How a flow is carried out.

    async def _drive(self, steps: Operation[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    result = await self._perform(effect)
                except Exception as exc:  # noqa: BLE001  the flow decides what it means
                    effect = steps.throw(exc)
                else:
                    effect = steps.send(result)
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()

    async def _perform(self, effect: operations.Effect) -> Any:
        if isinstance(effect, OnPrimary):
            return await self._on_primary(effect)
        if isinstance(effect, OnBacklog):
            return await self._on_backlog(effect)
        if isinstance(effect, Ping):
            return await self._bus.ping(self._path, effect.budget_s)
        return await self._bus.wait(effect.seconds)

    async def _on_primary(self, effect: OnPrimary) -> Any:
        async with self._mine(effect.budget_s):
            if self._primary is None:
                self._primary = self._connect()
            answered, primary = False, self._primary
            try:
                result = await bounded(primary, effect.call(primary), effect.budget_s)
                answered = True
                return result
            except (CallTimedOut, asyncio.CancelledError):
                sender, self._primary = self._primary, None
                self._bus.discard_later(sender)
                raise
            finally:
                self._bus.count(
                    primary,
                    self.entity_name,
                    Purpose.TRAFFIC,
                    answered=answered,
                    charge=effect.charge,
                )

    async def _on_backlog(self, effect: OnBacklog) -> Any:
        async with self._mine(effect.budget_s):
            sender = self._backlog.get(effect.queue)
            if sender is None:
                sender = self._backlog[effect.queue] = self._bus.backlog_sender(effect.queue)
            answered = False
            try:
                result = await bounded(sender, effect.call(sender), effect.budget_s)
                answered = True
                return result
            except BaseException:
                self._bus.discard_later(self._backlog.pop(effect.queue))
                raise
            finally:
                self._bus.count(sender, self.entity_name, Purpose.BACKLOG, answered=answered)

    @contextlib.asynccontextmanager
    async def _mine(self, seconds: float) -> AsyncIterator[None]:
        """A sender of the SDK is for one task at a time."""
        try:
            async with asyncio.timeout(seconds):
                await self._lock.acquire()
        except TimeoutError as exc:
            raise OperationTimeoutError(
                message=f"another task has used this sender for {seconds:g} s"
            ) from exc
        try:
            self._check_not_closed()
            yield
        finally:
            self._lock.release()
