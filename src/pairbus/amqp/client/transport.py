"""Bytes to and from a socket, with or without TLS, never waiting past a deadline."""

import select
import socket
import ssl
from collections.abc import Callable

from pairbus.errors import ConfigurationError, ConnectionLost, OperationTimeout

_CHUNK = 256 * 1024

Clock = Callable[[], float]


class Transport:
    """A connected socket. Writing never blocks reading: a peer that stops reading until it has been
    read from is no dead end."""

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
        deadline: float,
        clock: Clock,
    ) -> "Transport":
        """Connect, and shake hands where there is TLS. Raises ConnectionLost, OperationTimeout, or
        ConfigurationError for a host that cannot be one."""
        where = f"{host}:{port}"
        left = deadline - clock()
        if left <= 0:
            raise OperationTimeout(f"no time is left to connect to {where}")
        try:
            sock = _dial(host, port, deadline, clock)
        except TimeoutError as exc:
            raise OperationTimeout(f"{where} did not answer in time") from exc
        except OSError as exc:
            raise ConnectionLost(f"cannot connect to {where}: {exc}") from exc
        except ValueError as exc:
            raise ConfigurationError(f"{host!r} is not the name of a host: {exc}") from exc
        try:
            if tls is not None:
                sock = _wrap(sock, tls, server_name, where)
                _shake_hands(sock, deadline, clock, where)
        except BaseException:
            sock.close()
            raise
        return cls(sock, clock)

    def exchange(self, data: bytes, deadline: float) -> bytes:
        """Write `data`, and wait for bytes from the peer; b"" if none came before the deadline.

        Returns with the first bytes that arrive, even if not all of `data` could be written: the
        rest goes out with the next call. Raises ConnectionLost when the connection has ended.
        """
        if data:
            self._unsent = memoryview(bytes(self._unsent) + data if self._unsent else data)
        while True:
            try:
                self._write()
                received = self._read()
            except OSError as exc:
                raise ConnectionLost(f"the connection broke: {exc}") from exc
            if received is not None:
                return received
            left = deadline - self._clock()
            if left <= 0:
                return b""
            self._wait(left)

    def flush(self, data: bytes, deadline: float) -> None:
        """Write `data` before hanging up, as far as the peer takes it in time."""
        self._unsent = memoryview(bytes(self._unsent) + data)
        try:
            while self._unsent:
                self._write()
                left = deadline - self._clock()
                if not self._unsent or left <= 0:
                    return
                _poll(self._sock, select.POLLOUT, left)
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
            raise ConnectionLost("the other side hung up")
        return received

    def _wait(self, seconds: float) -> None:
        events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
        _poll(self._sock, events, seconds)


def _poll(sock: socket.socket, events: int, seconds: float) -> None:
    poller = select.poll()
    poller.register(sock, events)
    poller.poll(max(1, int(min(seconds, 60) * 1000)))  # who has more time will ask again


def _dial(host: str, port: int, deadline: float, clock: Clock) -> socket.socket:
    """Connect to the first address that answers; each gets its share of the time that is left."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    error: OSError = TimeoutError("no time is left")
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        left = (deadline - clock()) / (len(addresses) - tried)
        if left <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as exc:
            sock.close()
            error = exc
    raise error


def _wrap(sock: socket.socket, tls: ssl.SSLContext, server_name: str, where: str) -> ssl.SSLSocket:
    # Each read and write of the handshake gets what is left of the time, so that none is unbounded.
    sock.setblocking(False)
    try:
        return tls.wrap_socket(sock, server_hostname=server_name, do_handshake_on_connect=False)
    except OSError as exc:  # reset by then
        raise ConnectionLost(f"TLS with {where} failed: {exc}") from exc
    except ValueError as exc:
        raise ConfigurationError(f"{server_name!r} is not the name of a host: {exc}") from exc


def _shake_hands(sock: ssl.SSLSocket, deadline: float, clock: Clock, where: str) -> None:
    while True:
        left = deadline - clock()
        if left <= 0:
            raise OperationTimeout(f"{where} did not finish the TLS handshake in time")
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            _poll(sock, select.POLLIN, left)
        except ssl.SSLWantWriteError:
            _poll(sock, select.POLLOUT, left)
        except (ssl.SSLError, OSError) as exc:
            raise ConnectionLost(f"TLS with {where} failed: {exc}") from exc
