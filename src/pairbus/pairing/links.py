"""The SDK senders and receivers of a pairing, and the operations that call them."""

import asyncio
from collections.abc import Callable
from typing import Any

from pairbus.errors import StateError
from pairbus.pairing.effects import (
    AcquireLock,
    CallSdk,
    CallTimedOut,
    CloseObject,
    Discard,
    Operation,
)
from pairbus.pairing.sdk import check_link, make_handshake_interruptible
from pairbus.pairing.sdk_clients import without_retries
from pairbus.pairing.state import PairingState, PathState
from pairbus.pairing.usage import ManagementUsage, PairingUsage
from pairbus.usage.operations import Purpose

_INTERRUPTIONS = (CallTimedOut, asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""After one of these, the state of an SDK sender is unknown."""


class LinkFactory:
    """Creates the SDK senders and receivers of a pairing. The driver of threads needs handshakes
    that it can interrupt."""

    def __init__(
        self, primary: Any, secondary: Any, usage: PairingUsage | None, *, interruptible: bool
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._interruptible = interruptible
        self.usage = usage

    def primary_sender(self, create: Callable[[], Any]) -> Any:
        """Return a sender of the primary."""
        return self._prepare(create())

    def backlog_sender(self, queue: str) -> Any:
        """Return a sender of a backlog queue."""
        return self._prepare(self._secondary.get_queue_sender(queue))

    def ping_sender(self, path: str) -> Any:
        """Return a sender of the primary that does not retry."""
        return self._prepare(without_retries(self._primary).get_queue_sender(path))

    def backlog_receiver(self, queue: str) -> Any:
        """Return a receiver of a backlog queue that does not retry, for peeks."""
        receiver = without_retries(self._secondary).get_queue_receiver(queue)
        return self._prepare(receiver, watch=False)

    def _prepare(self, link: Any, *, watch: bool = True) -> Any:
        check_link(link)
        if self._interruptible:
            make_handshake_interruptible(link)
        if watch and self.usage is not None:
            self.usage.watch(link)
        return link


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
        self._usage = factory.usage
        self._create_primary = create_primary
        self._primary: Any = factory.primary_sender(create_primary)
        self._backlog: dict[str, Any] = {}

    def primary_sender(self) -> Any:
        """Return the SDK sender of the primary. The lock must be held."""
        if self._primary is None:
            self._primary = self.factory.primary_sender(self._create_primary)
        return self._primary

    def call_primary(
        self, function: Callable[[Any], Any], timeout_s: float, usage: ManagementUsage | None = None
    ) -> Operation[Any]:
        """Call a function with the SDK sender of the primary."""
        with (yield AcquireLock(self.lock, timeout_s)):
            self._check_not_closed()
            sender = self.primary_sender()
            error: BaseException | None = None
            try:
                return (yield CallSdk(sender, function, timeout_s))
            except BaseException as exc:
                error = exc
                raise
            finally:
                if self.primary_call_ended(sender, error, usage):
                    yield Discard(sender)

    def primary_call_ended(
        self, sender: Any, error: BaseException | None, usage: ManagementUsage | None = None
    ) -> bool:
        """Record the usage of a call. Return whether the SDK sender must be discarded."""
        if self._usage is not None:
            if usage is not None:
                self._usage.add_management(usage, self.entity, answered=error is None)
            self._usage.add_transfers(sender, self.entity, Purpose.TRAFFIC, answered=error is None)
        if error is None or not isinstance(error, _INTERRUPTIONS):
            return False
        self._primary = None
        return True

    def call_backlog(
        self, queue: str, function: Callable[[Any], Any], timeout_s: float
    ) -> Operation[Any]:
        """Call a function with the SDK sender of a backlog queue."""
        with (yield AcquireLock(self.lock, timeout_s)):
            self._check_not_closed()
            if queue not in self._backlog:
                self._backlog[queue] = self.factory.backlog_sender(queue)
            sender = self._backlog[queue]
            answered = False
            try:
                result = yield CallSdk(sender, function, timeout_s)
                answered = True
                return result
            except (Exception, *_INTERRUPTIONS):
                del self._backlog[queue]
                yield Discard(sender)
                raise
            finally:
                if self._usage is not None:
                    self._usage.add_transfers(
                        sender, self.entity, Purpose.BACKLOG, answered=answered
                    )

    def _check_not_closed(self) -> None:
        if self.closed:
            self.pairing.check_open()
            raise StateError("The sender was closed while this call waited for its turn.")

    def close(self) -> Operation[None]:
        """Close all SDK senders. Calls that wait for their turn fail."""
        self.closed = True
        with (yield AcquireLock(self.lock)):
            senders = [*self._backlog.values(), self._primary]
            self._backlog.clear()
            self._primary = None
        for sender in senders:
            if sender is not None:
                yield CloseObject(sender)
        self.pairing.forget_sender(self.path, self)
