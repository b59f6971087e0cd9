"""A socket with or without TLS, on which no operation blocks past its deadline."""

import select
import socket
import ssl

from pairbus.errors import ConfigurationError, ConnectionLost, OperationTimeout
from pairbus.servicebus.proxy import Proxy, open_tunnel
from pairbus.servicebus.sockets import Clock, connect_socket

_CHUNK = 256 * 1024


class Transport:
    """A connected socket. It reads while it writes, to avoid a deadlock with a peer that stops
    reading until we read."""

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._clock = clock
        self._unsent = memoryview(b"")

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        server_name: str,
        proxy: Proxy | None = None,
        deadline: float,
        clock: Clock,
    ) -> "Transport":
        """Connect, through a proxy if one is given, and complete the TLS handshake if `tls` is.

        Raises ConnectionLost, OperationTimeout, or ConfigurationError for an invalid host name.
        """
        server = f"{host}:{port}"
        peer = server if proxy is None else f"proxy {proxy.address}"
        address = (host, port) if proxy is None else (proxy.host, proxy.port)
        if deadline - clock() <= 0:
            raise OperationTimeout(f"the timeout expired before connecting to {peer}")
        try:
            sock = connect_socket(*address, deadline, clock)
        except TimeoutError as exc:
            raise OperationTimeout(f"{peer} did not answer in time") from exc
        except OSError as exc:
            raise ConnectionLost(f"cannot connect to {peer}: {exc}") from exc
        except ValueError as exc:
            raise ConfigurationError(f"{address[0]!r} is not a valid host name: {exc}") from exc
        try:
            if proxy is not None:
                open_tunnel(sock, proxy, host, port, deadline, clock)
            if tls is not None:
                sock = _wrap(sock, tls, server_name, server)
                _do_handshake(sock, deadline, clock, server)
        except BaseException:
            sock.close()
            raise
        return cls(sock, clock)

    def exchange(self, data: bytes, deadline: float) -> bytes:
        """Write `data`, wait for data from the peer, and return it, or b"" at the deadline.

        It returns as soon as data arrives, even if `data` is not written completely. The next call
        writes the rest. Raises ConnectionLost if the connection ended.
        """
        if data:
            self._unsent = memoryview(bytes(self._unsent) + data if self._unsent else data)
        while True:
            try:
                self._write()
                received = self._read()
            except OSError as exc:
                raise ConnectionLost(f"the connection failed: {exc}") from exc
            if received is not None:
                return received
            remaining = deadline - self._clock()
            if remaining <= 0:
                return b""
            self._wait(remaining)

    def flush(self, data: bytes, deadline: float) -> None:
        """Write `data` before closing the socket, as far as possible before the deadline."""
        self._unsent = memoryview(bytes(self._unsent) + data)
        try:
            while self._unsent:
                self._write()
                remaining = deadline - self._clock()
                if not self._unsent or remaining <= 0:
                    return
                _poll(self._sock, select.POLLOUT, remaining)
        except OSError:
            return

    def close(self) -> None:
        self._sock.close()

    def _write(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            self._unsent = self._unsent[sent:]

    def _read(self) -> bytes | None:
        try:
            received = self._sock.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        if not received:
            raise ConnectionLost("the peer closed the connection")
        return received

    def _wait(self, seconds: float) -> None:
        events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
        _poll(self._sock, events, seconds)


def _poll(sock: socket.socket, events: int, seconds: float) -> None:
    poller = select.poll()
    poller.register(sock, events)
    poller.poll(max(1, int(min(seconds, 60) * 1000)))  # Callers poll again until their deadline.


def _wrap(sock: socket.socket, tls: ssl.SSLContext, server_name: str, server: str) -> ssl.SSLSocket:
    # `_do_handshake` bounds each read and write of the handshake by the remaining time.
    sock.setblocking(False)
    try:
        return tls.wrap_socket(sock, server_hostname=server_name, do_handshake_on_connect=False)
    except OSError as exc:  # The peer reset the connection.
        raise ConnectionLost(f"TLS with {server} failed: {exc}") from exc
    except ValueError as exc:
        raise ConfigurationError(f"{server_name!r} is not a valid host name: {exc}") from exc


def _do_handshake(sock: ssl.SSLSocket, deadline: float, clock: Clock, server: str) -> None:
    while True:
        remaining = deadline - clock()
        if remaining <= 0:
            raise OperationTimeout(f"{server} did not finish the TLS handshake in time")
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            _poll(sock, select.POLLIN, remaining)
        except ssl.SSLWantWriteError:
            _poll(sock, select.POLLOUT, remaining)
        except (ssl.SSLError, OSError) as exc:
            raise ConnectionLost(f"TLS with {server} failed: {exc}") from exc
