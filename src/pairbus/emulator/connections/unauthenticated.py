"""Connections that have not shown a valid token: they are few, and open for a short time only.

A client can hold a connection at any stage (TLS handshake, protocol header, SASL, open, CBS, HTTP
request) without showing who it is. Beyond the limit the oldest of these connections is aborted, so
that they never keep a client out that has a token.
"""

import resource
from collections.abc import Callable

MAX_UNAUTHENTICATED = 256
AUTHENTICATION_TIMEOUT_S = 60.0


class UnauthenticatedConnection:
    """A connection from its start until its client shows a token, or until it ends."""

    __slots__ = ("_connections", "abort", "close", "opened_at")

    def __init__(
        self,
        connections: "UnauthenticatedConnections",
        opened_at: float,
        abort: Callable[[], object],
    ) -> None:
        self._connections = connections
        self.opened_at = opened_at
        self.abort = abort
        """End the connection at once. Replaced as the connection proceeds."""
        self.close: Callable[[str], object] = lambda reason: self.abort()
        """End the connection, and tell the client the reason if its protocol allows it."""

    def remove(self) -> None:
        """Forget the connection: its client showed a token, or it has ended. Idempotent."""
        self._connections.remove(self)


class UnauthenticatedConnections:
    """The connections of a namespace whose clients have not shown a token."""

    def __init__(self, limit: int | None = None, timeout_s: float | None = None) -> None:
        self._limit = _default_limit() if limit is None else limit
        self._timeout_s = AUTHENTICATION_TIMEOUT_S if timeout_s is None else timeout_s
        self._connections: dict[UnauthenticatedConnection, None] = {}
        """From the oldest to the newest."""

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, now: float, abort: Callable[[], object]) -> UnauthenticatedConnection:
        """Add a new connection, and abort the oldest if there are too many."""
        if len(self._connections) >= self._limit:
            oldest = next(iter(self._connections))
            self.remove(oldest)
            oldest.abort()
        connection = UnauthenticatedConnection(self, now, abort)
        self._connections[connection] = None
        return connection

    def remove(self, connection: UnauthenticatedConnection) -> None:
        self._connections.pop(connection, None)

    def tick(self, now: float) -> None:
        """Close the connections whose time is over."""
        while self._connections:
            oldest = next(iter(self._connections))
            if now - oldest.opened_at < self._timeout_s:
                break
            self.remove(oldest)
            oldest.close(f"The client showed no valid token within {self._timeout_s:g} seconds.")


def _default_limit() -> int:
    """Return a limit that leaves most of the process's file descriptors to other connections."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MAX_UNAUTHENTICATED
    return max(1, min(MAX_UNAUTHENTICATED, descriptors // 8))
