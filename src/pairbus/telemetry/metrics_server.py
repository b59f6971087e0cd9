"""An HTTP server for the metrics of a process, in a thread of its own.

A scrape reads the samples that were published last, so it never waits for the process, and the
process never waits for a scrape. Connections, their size and their time are limited.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from pairbus.telemetry.metrics_request import MAX_HEAD_BYTES, rejection, respond, too_large
from pairbus.telemetry.prometheus import ExpositionFormat, render_metrics
from pairbus.telemetry.samples import Sample

logger = logging.getLogger("pairbus.telemetry")

MAX_CONNECTIONS: Final = 16
"""Connections at a time. More of them wait."""
CONNECTION_S: Final = 10.0
"""The time for a whole connection, with its TLS handshake."""
MAX_AGE_S: Final = 120.0
"""The age of samples that are still served. A process that publishes nothing for longer does not
work, and a scrape that fails tells that."""
RETRY_S: Final = 1.0
STOP_S: Final = 5.0


class PublishedMetrics:
    """The samples that were published last. Can be used from any thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: tuple[float, list[Sample], dict[ExpositionFormat, bytes]] | None = None

    def publish(self, samples: Iterable[Sample]) -> None:
        """Replace the samples."""
        self._last = self._now(), list(samples), {}

    def render(self, exposition: ExpositionFormat) -> bytes | None:
        """Return the samples as text, or None if they are too old. The text is made only once."""
        last = self._last
        if last is None or self._now() - last[0] > MAX_AGE_S:
            return None
        _, samples, texts = last
        if exposition not in texts:
            texts[exposition] = render_metrics(samples, exposition)
        return texts[exposition]


class MetricsServer:
    """Serves published metrics on a socket, from the start of a `with` block to its end."""

    def __init__(
        self,
        metrics: PublishedMetrics,
        listener: socket.socket,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`token`: the bearer token that requests need. None: they need none."""
        self._metrics = metrics
        self._listener = listener
        self._token = token
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="pairbus metrics", daemon=True)

    def __enter__(self) -> "MetricsServer":
        self._listener.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._get_loop) as runner:
                runner.run(self._serve())
        except Exception:  # the process goes on without metrics
            logger.exception("The server for metrics ended")
        finally:
            self._listener.close()

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((accepting, stopping), return_when=asyncio.FIRST_COMPLETED)
        tasks = (accepting, stopping, *self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        slots = asyncio.Semaphore(MAX_CONNECTIONS)
        while True:
            await slots.acquire()
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # such as too many open files
                slots.release()
                await asyncio.sleep(RETRY_S)
                continue
            task = asyncio.create_task(self._handle(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            task.add_done_callback(lambda _: slots.release())
            # A task that is cancelled before it starts closes nothing.
            task.add_done_callback(partial(_close, connection))

    async def _handle(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(CONNECTION_S):
                await self._answer(connection)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            logger.debug("A request for metrics failed: %r", exc)
        except Exception:  # the next scrape may succeed
            logger.exception("Metrics could not be served")

    async def _answer(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=self._tls
        )
        try:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                answer = respond(head, self._token, self._metrics.render)
            except asyncio.LimitOverrunError:
                answer = rejection(too_large())
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            writer.write(answer)
            writer.close()
            await writer.wait_closed()
        finally:
            transport.abort()


def _close(connection: socket.socket, _: object) -> None:
    connection.close()
