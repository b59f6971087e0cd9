"""Creates the SDK senders and receivers of a pairing."""

from collections.abc import Callable
from typing import Any

from pairbus.pairing.sdk import check_link, make_handshake_interruptible
from pairbus.pairing.sdk_clients import without_retries
from pairbus.pairing.sdk_opening import make_opening_interruptible
from pairbus.pairing.usage import PairingUsage


class LinkFactory:
    """Creates the SDK senders and receivers of a pairing. The driver of threads needs links whose
    opening it can interrupt."""

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

    def probe_sender(self, queue: str) -> Any:
        """Return a sender of a backlog queue that does not retry, and that sends nothing."""
        sender = without_retries(self._secondary).get_queue_sender(queue)
        return self._prepare(sender, watch=False)

    def backlog_receiver(self, queue: str) -> Any:
        """Return a receiver of a backlog queue that does not retry, for peeks."""
        receiver = without_retries(self._secondary).get_queue_receiver(queue)
        return self._prepare(receiver, watch=False)

    def _prepare(self, link: Any, *, watch: bool = True) -> Any:
        check_link(link)
        if self._interruptible:
            make_handshake_interruptible(link)
            make_opening_interruptible(link)
        if watch and self.usage is not None:
            self.usage.watch(link)
        return link
