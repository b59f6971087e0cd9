"""Idle links and connections, which a namespace ends. The time is that of the namespace's clock."""

from collections.abc import Iterable
from datetime import timedelta

from pairbus.emulator.connections.handlers import LinkHandler
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.emulator.connections.outgoing_links import OutgoingLink
from pairbus.emulator.connections.request_links import CbsNode, RequestLink, ResponseLink
from pairbus.emulator.tiers import NamespaceTier
from pairbus.errors import ConnectionLost, LinkLost
from pairbus.servicebus.time_spans import to_milliseconds


class IdleTimeouts:
    """The idle timeouts of one connection."""

    def __init__(self, tier: NamespaceTier, now_ms: int) -> None:
        self._link_timeout = tier.link_idle_timeout
        self._connection_timeout = tier.connection_idle_timeout
        self._detach_idle_receivers = tier.detach_idle_receivers
        self._linked_ms = now_ms
        """Time at which the connection had a link last."""
        self.is_enabled = self._link_timeout is not None or self._connection_timeout is not None

    def check(self, handlers: Iterable[LinkHandler], now_ms: int) -> ConnectionLost | None:
        """Detach idle links. Return the error to close the connection with if it is idle, too.

        Links to `$cbs` do not keep a connection open. Links to `$management` do.
        """
        links = [handler for handler in handlers if not _is_token_link(handler)]
        if self._link_timeout is not None:
            for handler in links:
                if isinstance(handler, IncomingLink | OutgoingLink) and handler.link.alive:
                    self._detach_idle(handler, self._link_timeout, now_ms)
        if links:
            self._linked_ms = now_ms
        if self._connection_timeout is None:
            return None
        timeout_ms = to_milliseconds(self._connection_timeout)
        if now_ms - self._linked_ms < timeout_ms:
            return None
        return ConnectionLost(
            f"The connection was inactive for more than the allowed {timeout_ms} milliseconds and "
            "is closed by container 'LinkTracker'."
        )

    def _detach_idle(
        self, handler: IncomingLink | OutgoingLink, timeout: timedelta, now_ms: int
    ) -> None:
        if now_ms - handler.active_ms < to_milliseconds(timeout):
            return
        role, cause = "publisher", "AmqpMessagePublisher"
        if isinstance(handler, OutgoingLink):
            if handler.link.credit > 0 and not self._detach_idle_receivers:
                return
            role, cause = "consumer", "AmqpMessageConsumer"
        minutes, seconds = divmod(int(timeout.total_seconds()), 60)
        text = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        handler.detach(
            LinkLost(
                f"The link '{handler.link.name}' is force detached. Code: {role}. Details: {cause}."
                f"IdleTimerExpired: Idle timeout: {text}."
            )
        )


def _is_token_link(handler: LinkHandler) -> bool:
    return isinstance(handler, RequestLink | ResponseLink) and isinstance(handler.node, CbsNode)
