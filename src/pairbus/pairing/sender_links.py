"""The SDK senders of a paired sender: calls of them one at a time, and how they are closed."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

from pairbus.errors import StateError
from pairbus.pairing.effects import (
    CLOSE_TIMEOUT_S,
    AcquireLock,
    CallSdk,
    CallTimedOut,
    CloseAll,
    Discard,
    Operation,
    WaitForChange,
    check_time_left,
)
from pairbus.pairing.health import Route
from pairbus.pairing.link_factory import LinkFactory
from pairbus.pairing.sdk import LinkLimits, limits_of, link_limits
from pairbus.pairing.sdk_transfers import forget_transfers, note_transfers
from pairbus.pairing.state import PairingState, PathState
from pairbus.pairing.usage import ManagementUsage
from pairbus.telemetry.senders import SEND
from pairbus.telemetry.spans import NO_STORE_SPAN, StoreSpan
from pairbus.usage.operations import Purpose

_INTERRUPTIONS = (CallTimedOut, asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""After one of these, the state of an SDK sender is unknown."""


class FailedOver(Exception):
    """Raised when a path has failed over while a call waited for its turn. Internal."""


class SenderLinks:
    """The SDK senders of one paired sender: one for the primary, and one for each backlog queue
    that was used. An SDK sender can be used by one call at a time, the one that holds the lock."""

    def __init__(
        self,
        pairing: PairingState,
        path: PathState,
        entity: str,
        factory: LinkFactory,
        create_primary: Callable[[], Any],
        lock: Any,
    ) -> None:
        self.entity = entity
        """The path as the sender was opened; other senders may spell it differently."""
        self.lock = lock
        self.closed = False
        self.pairing = pairing
        self.path = path
        self.factory = factory
        self.sent = pairing.recorder.add_sender(path, self)
        """The messages that a healthy primary accepted. Changed while the lock is held."""
        self._usage = factory.usage
        self._telemetry = factory.telemetry
        self._send_timer = (
            None if factory.telemetry is None else factory.telemetry.send_timer(path.name)
        )
        self._call_began_at = 0.0
        """The start of the call in progress, if there is telemetry."""
        self._create_primary = create_primary
        self._primary: Any = factory.primary_sender(create_primary)
        self._backlog: dict[str, Any] = {}
        self._probes = 0
        """The number of calls that probe the primary over a link of their own."""
        self.standby: dict[str, Any] = {}
        """SDK senders of backlog queues that were opened in advance and not used yet. They are
        added, and taken for a call or to be closed, without the lock."""

    def primary_sender(self) -> Any:
        """Return the SDK sender of the primary. The lock must be held."""
        if self._primary is None:
            self._primary = self.factory.primary_sender(self._create_primary)
        return self._primary

    def begin_primary_call(self) -> Any:
        """Return the SDK sender of the primary for a call that begins. The lock must be held."""
        if self._telemetry is not None:
            self._call_began_at = perf_counter()
        return self.primary_sender()

    def call_primary(
        self,
        function: Callable[[Any], Any],
        timeout_s: float,
        usage: ManagementUsage | None = None,
        operation: str | None = None,
    ) -> Operation[Any]:
        """Call a function with the SDK sender of the primary. `operation` is its name in
        telemetry, if it sends something. Raises FailedOver."""
        with (yield AcquireLock(self.lock, timeout_s)) as left_s:
            self._check_not_closed()
            if self.path.health.route(self.pairing.now()) is not Route.PRIMARY:
                raise FailedOver
            check_time_left(left_s, timeout_s)
            sender = self.begin_primary_call()
            error: BaseException | None = None
            try:
                return (yield CallSdk(sender, function, left_s))
            except BaseException as exc:
                error = exc
                raise
            finally:
                if self.primary_call_ended(sender, error, usage, operation):
                    yield Discard(sender)

    def primary_call_ended(
        self,
        sender: Any,
        error: BaseException | None,
        usage: ManagementUsage | None = None,
        operation: str | None = SEND,
    ) -> bool:
        """Record the usage of a call, and note on its error whether its messages may have arrived.
        Return whether the SDK sender must be discarded."""
        if self._telemetry is not None:
            if self._send_timer is not None and error is None and operation == SEND:
                self._send_timer.ended(self._call_began_at)
            elif operation is not None:
                self._telemetry.call_ended(operation, self.path.name, self._call_began_at, error)
        interrupted = error is not None and isinstance(error, _INTERRUPTIONS)
        if error is not None:
            note_transfers(error, sender, abandoned=interrupted)
        forget_transfers(sender)
        if self._usage is not None:
            if usage is not None:
                self._usage.add_management(usage, self.entity, answered=error is None)
            self._usage.add_transfers(sender, self.entity, Purpose.TRAFFIC, answered=error is None)
        if interrupted:
            self._primary = None
        return interrupted

    @contextmanager
    def probing(self) -> Iterator[bool]:
        """Let closing wait for a probe by a call. Yield False if the sender was closed."""
        with self.pairing.lock:
            is_open = not self.closed
            self._probes += is_open
        try:
            yield is_open
        finally:
            if is_open:
                with self.pairing.lock:
                    self._probes -= 1
                self.pairing.notify()

    def call_backlog(
        self,
        queue: str,
        function: Callable[[Any], Any],
        timeout_s: float,
        operation: str | None = None,
    ) -> Operation[Any]:
        """Call a function with the SDK sender of a backlog queue. `operation` is its name in
        telemetry, if it sends something."""
        with (yield AcquireLock(self.lock, timeout_s)) as left_s:
            self._check_not_closed()
            if left_s < timeout_s:
                check_time_left(left_s, timeout_s)
            sender = self._backlog.get(queue)
            if sender is None:
                sender = self.standby.pop(queue, None) or self.factory.backlog_sender(queue)
                self._backlog[queue] = sender
            answered = False
            error: BaseException | None = None
            began_at = 0.0 if self._telemetry is None else perf_counter()
            try:
                result = yield CallSdk(sender, function, left_s)
                answered = True
                return result
            except (Exception, *_INTERRUPTIONS) as exc:
                error = exc
                raise
            finally:
                if (
                    self._telemetry is not None
                    and operation is not None
                    and (answered or error is not None)  # not if the generator was closed
                ):
                    self._telemetry.call_ended(
                        operation, self.path.name, began_at, error, secondary=True
                    )
                if self.backlog_call_ended(queue, sender, error, answered=answered):
                    yield Discard(sender)

    def backlog_call_ended(
        self, queue: str, sender: Any, error: BaseException | None, *, answered: bool
    ) -> bool:
        """Record the usage of a call, and note on its error whether its messages may have arrived.
        Return whether the SDK sender must be discarded."""
        if error is not None:
            note_transfers(error, sender, abandoned=isinstance(error, _INTERRUPTIONS))
            del self._backlog[queue]
        forget_transfers(sender)
        if self._usage is not None:
            self._usage.add_transfers(sender, self.entity, Purpose.BACKLOG, answered=answered)
        return error is not None

    def backlog_sender(self, queue: str) -> Any:
        """Return the SDK sender of a backlog queue that was used before, or None. The lock must be
        held."""
        return None if self.closed else self._backlog.get(queue)

    @property
    def stores_directly(self) -> bool:
        """True if a call in failover needs no operation while the backlog is in order: no telemetry
        is recorded, and no failback waits for sends to the backlog."""
        return self._telemetry is None and not self.pairing.after_drain and not self.closed

    def backlog_limits(self, queue: str) -> LinkLimits | None:
        """Return the limits of the link to a backlog queue; None if it is not open."""
        sender = self._backlog.get(queue) or self.standby.get(queue)
        return None if sender is None else limits_of(sender)

    def has_backlog_link(self, queue: str) -> bool:
        """Return whether there is an SDK sender of a backlog queue."""
        return queue in self._backlog or queue in self.standby

    def take_standby(self) -> list[Any]:
        """Return the SDK senders that were opened in advance, for the caller to close."""
        senders = []
        while self.standby:
            with suppress(KeyError):  # a call has taken the last one
                senders.append(self.standby.popitem()[1])
        return senders

    def open_backlog(self, queue: str, timeout_s: float) -> Operation[LinkLimits]:
        """Open the link to a backlog queue, and return its limits."""
        limits: LinkLimits = yield from self.call_backlog(queue, link_limits, timeout_s)
        self.factory.note_message_limit(queue, limits.max_message_size)
        return limits

    def storing(self, messages: int, primary_error: BaseException | None) -> StoreSpan:
        """Return the span of a call that stores messages. `primary_error` is the error of the
        primary in the same call, if it was called."""
        if self._telemetry is None:
            return NO_STORE_SPAN
        cause = self.path.health.cause if primary_error is None else primary_error
        return self._telemetry.storing(self.path.name, messages, cause)

    def _check_not_closed(self) -> None:
        if self.closed:
            self.pairing.check_open()
            raise StateError("The sender was closed while this call waited for its turn.")

    def close(self) -> Operation[None]:
        """Close all SDK senders. Calls that wait for their turn fail."""
        yield from close_links([self])

    def take_senders(self) -> Operation[list[Any]]:
        """Wait for the calls in progress, and return all SDK senders, for the caller to close."""
        if self.pairing.primary.forked:  # the connections and locks are those of the parent
            return []
        yield WaitForChange(lambda: self._probes == 0, CLOSE_TIMEOUT_S)
        with (yield AcquireLock(self.lock)):
            senders = [*self._backlog.values(), *self.take_standby(), self._primary]
            self._backlog.clear()
            self._primary = None
        self.pairing.backlog.forget_sender(self.path, self)
        return [sender for sender in senders if sender is not None]


def close_links(all_links: Sequence[SenderLinks]) -> Operation[None]:
    """Close the SDK senders of several paired senders, side by side."""
    for links in all_links:
        with links.pairing.lock:  # a probe that begins later sees it
            links.closed = True
    senders: list[Any] = []
    try:
        for links in all_links:
            senders += yield from links.take_senders()
    finally:
        yield CloseAll(tuple(senders))
