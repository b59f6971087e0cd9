"""The open connections of a namespace."""

import asyncio
import contextlib

CLOSE_TIMEOUT_S = 5.0
"""Time to write the output of a connection that is closed."""


def close_transport(transport: asyncio.Transport) -> None:
    """Close a connection when its output is written, or abort it if the client does not read."""
    if not transport.is_closing():
        transport.close()
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, transport.abort)


class OpenTransports:
    """The transports of all connections, to abort them at once."""

    def __init__(self) -> None:
        self._transports: set[asyncio.Transport] = set()
        self._all_closed = asyncio.Event()

    def add(self, transport: asyncio.Transport) -> None:
        self._transports.add(transport)
        self._all_closed.clear()

    def remove(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)
        if not self._transports:
            self._all_closed.set()

    def abort(self) -> None:
        """Abort all connections. Output that was not sent is lost."""
        for transport in tuple(self._transports):
            transport.abort()

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until all connections are closed, or the time is over."""
        if self._transports:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), timeout_s)
