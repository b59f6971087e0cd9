"""Runs the console: uvicorn with TLS, limits of connections and times, and an orderly end."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pairbus.console.app import ConsoleApplication
from pairbus.console.headers import MAX_HEADER_BYTES
from pairbus.errors import ConfigurationError
from pairbus.listeners import is_loopback_host

FIRST_BYTE_TIMEOUT_S: Final = 75.0
"""The time for the first byte of a connection. Browsers connect before they have a request, and
keep such a connection for a minute; on a busy computer they may take long to use one. If it was
closed meanwhile, the request fails: they repeat a request only on a connection that was used."""
HEADER_TIMEOUT_S: Final = 10.0
"""The time for the headers of a request, from its first byte."""
WRITE_TIMEOUT_S: Final = 30.0
"""The time after which a connection is closed whose client does not read."""
KEEP_ALIVE_S: Final = 30
MAX_CONNECTIONS: Final = 4_000
SPARE_FILES: Final = 200
"""Open files that are not connections of the console."""
SHUTDOWN_S: Final = 5


class _Deadline:
    """Calls a function unless it is cancelled in time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Start unless it runs already."""
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, function)

    def cancel(self) -> None:
        """Cancel it. It can be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedHttpProtocol(H11Protocol):
    """A connection that is closed if its client is too slow, or if there are too many."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._first_byte_due = _Deadline(FIRST_BYTE_TIMEOUT_S)
        self._headers_due = _Deadline(HEADER_TIMEOUT_S)
        self._read_due = _Deadline(WRITE_TIMEOUT_S)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) > limit + SPARE_FILES // 2:
            transport.abort()
            return
        self._first_byte_due.start(self.loop, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client. Headers that trickle in do not extend their time."""
        self._first_byte_due.cancel()
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._headers_due.start(self.loop, self.transport.abort)
        else:
            self._headers_due.cancel()

    def pause_writing(self) -> None:
        """Stop writing, because the client does not read."""
        super().pause_writing()
        self._read_due.start(self.loop, self.transport.abort)

    def resume_writing(self) -> None:
        """Write again."""
        super().resume_writing()
        self._read_due.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        super().connection_lost(exc)
        self._first_byte_due.cancel()
        self._headers_due.cancel()
        self._read_due.cancel()


class _UvicornServer(uvicorn.Server):
    """Leaves signals to the command, and ends the live streams before it waits for requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_start: Callable[[], None],
        close_streams: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._close_streams = close_streams

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report it."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything else."""
        await self._close_streams()
        await super().shutdown(sockets)


class ConsoleServer:
    """Serves the console on one socket."""

    def __init__(
        self,
        application: ConsoleApplication,
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        *,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_start` is called when the console accepts requests."""
        self._listener = listener
        config = uvicorn.Config(
            application.app,
            http=BoundedHttpProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,  # a query may name a queue
            proxy_headers=False,
            server_header=False,
            limit_concurrency=connection_limit(),
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = tls
        self._server = _UvicornServer(config, on_start, application.close_streams)

    def stop(self) -> None:
        """Ask the server to end. It can be called from another thread, and again."""
        self._server.should_exit = True

    def run(self) -> None:
        """Serve until `stop` is called. The caller handles signals."""
        try:
            self._server.run([self._listener])
        finally:
            self._listener.close()


def check_exposure(host: str, *, has_tls: bool) -> None:
    """Raise ConfigurationError if other machines could reach the console without TLS."""
    if not is_loopback_host(host) and not has_tls:
        raise ConfigurationError(
            f"Other machines can reach {host}, so the console needs TLS there. Add --tls-cert FILE "
            "and --tls-key FILE, or listen on 127.0.0.1."
        )


def connection_limit() -> int:
    """Return the number of connections, after the limit of open files was raised if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(50, min(MAX_CONNECTIONS, soft - SPARE_FILES))
