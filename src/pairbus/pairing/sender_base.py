"""The parts of a paired sender that do not depend on threads or an event loop."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from pairbus.errors import StateError
from pairbus.events import PathStatus
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
from pairbus.pairing.payloads import Payloads, check_backlog_size, fits_directly, prepare
from pairbus.pairing.sdk import LinkLimits, is_tracing_enabled, limits_of, link_limits
from pairbus.pairing.sdk_transfers import forget_transfers, note_transfers
from pairbus.pairing.state import PairingState, PathState
from pairbus.pairing.usage import ManagementUsage
from pairbus.telemetry.senders import SEND
from pairbus.telemetry.spans import NO_STORE_SPAN, StoreSpan
from pairbus.usage.operations import Purpose

DriverT = TypeVar("DriverT")

# Module constants for the hot path: Python 3.11 is slow to look up members of an enum.
_HEALTHY, _FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER
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


class SenderCall(NamedTuple):
    """One call of a paired sender: the state that it depends on, and its deadline."""

    pairing: PairingState
    path: PathState
    links: SenderLinks
    deadline: float
    messages: int = 0
    """The number of messages to send."""

    @property
    def left_s(self) -> float:
        """The time that is left for the call."""
        return max(0.0, self.deadline - self.pairing.now())

    def of(self, messages: int) -> "SenderCall":
        """Return this call with a number of messages."""
        return SenderCall(self.pairing, self.path, self.links, self.deadline, messages)

    def until(self, deadline: float) -> "SenderCall":
        """Return this call with a deadline that is not later than this one."""
        return self if deadline >= self.deadline else self._replace(deadline=deadline)


class DirectBatch(NamedTuple):
    """Encoded messages that one delivery stores in a backlog queue."""

    queue: str
    payloads: list[bytes]


class PairedSenderBase(Generic[DriverT]):
    """A paired sender without its I/O."""

    def __init__(self, links: SenderLinks, driver: DriverT, identifier: str | None) -> None:
        self._links = links
        self._sent = links.sent
        self._driver = driver
        self._pairing = links.pairing
        self._path = links.path
        self._health = links.path.health
        sender = links.primary_sender()
        self._identifier = str(identifier or sender.client_identifier)
        self.entity_name = links.entity
        self.fully_qualified_namespace: str = sender.fully_qualified_namespace

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    @property
    def client_identifier(self) -> str:
        """The identifier of the sender, as in the SDK."""
        return self._identifier

    def _is_healthy(self) -> bool:
        """Return whether the SDK sender of the primary can be called directly."""
        return self._health.status is _HEALTHY and not self._links.closed

    def _prepare(self, messages: Any, timeout: float | None) -> Any:
        """Check the arguments of `send_messages`, and return the prepared messages."""
        self._check_usable(timeout)
        prepared = prepare(messages)
        if self._pairing.options.check_backlog_size:
            check_backlog_size(
                prepared, self.entity_name, self._links.factory.backlog_message_limit
            )
        return prepared

    def _check_usable(self, timeout: float | None) -> None:
        if self._links.closed or self._pairing.primary.down:
            primary = self._pairing.primary
            if primary.fault is not None or primary.closed_by_application or not self._links.closed:
                self._pairing.check_open()
            # The error of the SDK.
            raise ValueError(
                "The handler has already been shutdown. Please use ServiceBusClient to create a "
                "new instance."
            )
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")

    def _direct_batch(self, messages: Any) -> DirectBatch | None:
        """Return prepared messages for the backlog, if one delivery over an open link can store
        them and nothing has to be decided. None: the operation decides."""
        links = self._links
        if self._health.status is not _FAILOVER or not links.stores_directly:
            return None
        queue = self._pairing.backlog.undisturbed_queue(self._path, links)
        limits = None if queue is None else links.backlog_limits(queue)
        if queue is None or limits is None or is_tracing_enabled():
            return None
        try:
            payloads = Payloads(messages).for_backlog(links.entity)
        except Exception:  # noqa: BLE001  the operation reports it
            return None
        return DirectBatch(queue, payloads) if fits_directly(payloads, limits) else None

    def _backlog_timeout_s(self, timeout: float | None) -> float:
        """Return the time that a call may spend on one backlog queue. Half of it is kept for other
        queues to try."""
        timeout_s = self._pairing.operation_timeout_s if timeout is None else timeout
        return timeout_s if len(self._pairing.rotation.queues) == 1 else timeout_s / 2

    def _stored_directly(self, batch: DirectBatch) -> None:
        self._pairing.backlog.restore(batch.queue)
        self._pairing.recorder.stored(self._path, len(batch.payloads))

    def _begin_call(self, timeout: float | None = None) -> SenderCall:
        self._check_usable(timeout)
        return self._call_since(self._pairing.now(), timeout)

    def _primary_timeout_s(self, timeout: float | None) -> float:
        """Return the time that a call may spend on the primary."""
        timeout_s = self._pairing.operation_timeout_s if timeout is None else timeout
        return timeout_s * self._pairing.primary_share

    def _call_since(self, started_at: float, timeout: float | None) -> SenderCall:
        timeout_s = self._pairing.operation_timeout_s if timeout is None else timeout
        return SenderCall(self._pairing, self._path, self._links, started_at + timeout_s)
