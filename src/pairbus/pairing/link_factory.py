"""Creates the SDK senders and receivers of a pairing."""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from pairbus.pairing.forks import notify_after_fork
from pairbus.pairing.sdk import check_link, make_handshake_interruptible
from pairbus.pairing.sdk_clients import forget_links, without_retries
from pairbus.pairing.sdk_opening import make_opening_interruptible
from pairbus.pairing.sdk_transfers import record_transfers
from pairbus.pairing.usage import PairingUsage
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.telemetry.senders import SenderTelemetry


class LinkFactory:
    """Creates the SDK senders and receivers of a pairing. The driver of threads needs links whose
    opening it can interrupt."""

    def __init__(
        self,
        primary: Any,
        secondary: Any,
        usage: PairingUsage | None,
        *,
        interruptible: bool,
        telemetry: SenderTelemetry | None = None,
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._interruptible = interruptible
        self._links: WeakSet[Any] = WeakSet()
        self.usage = usage
        self.telemetry = telemetry
        self._message_limits: dict[str, int] = {}
        """The limits for single messages of the backlog queues, as far as they are known."""
        notify_after_fork(self)

    def after_fork_in_child(self) -> None:
        """Prevent that the application closes the connections of the parent, when it closes its
        clients of the SDK in a child."""
        for client in (self._primary, self._secondary):
            forget_links(client, self._links)

    @property
    def backlog_message_limit(self) -> int:
        """The size of a message that every backlog queue accepts, as far as is known."""
        return min(self._message_limits.values(), default=MAX_MESSAGE_SIZE_STANDARD)

    def note_message_limit(self, queue: str, size: int) -> None:
        """Note the limit for single messages that a backlog queue has."""
        self._message_limits[queue] = size

    def primary_sender(self, create: Callable[[], Any]) -> Any:
        """Return a sender of the primary."""
        return self._prepare(create())

    def backlog_sender(self, queue: str) -> Any:
        """Return a sender of a backlog queue."""
        return self._prepare(self._secondary.get_queue_sender(queue))

    def ping_sender(self, path: str) -> Any:
        """Return a sender of the primary that does not retry."""
        return self._prepare(without_retries(self._primary).get_queue_sender(path))

    def probe_sender(self, queue: str) -> Any:
        """Return a sender of a backlog queue that does not retry, and that sends nothing."""
        sender = without_retries(self._secondary).get_queue_sender(queue)
        return self._prepare(sender, sends=False)

    def backlog_receiver(self, queue: str) -> Any:
        """Return a receiver of a backlog queue that does not retry, for peeks."""
        receiver = without_retries(self._secondary).get_queue_receiver(queue)
        return self._prepare(receiver, sends=False)

    def _prepare(self, link: Any, *, sends: bool = True) -> Any:
        check_link(link)
        self._links.add(link)
        if self._interruptible:
            make_handshake_interruptible(link)
            make_opening_interruptible(link)
        if sends:
            record_transfers(link, sizes=self.usage is not None)
        return link
