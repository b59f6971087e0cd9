"""HTTP/1.1 requests over one connection, each bounded by a deadline.

The timeouts of `http.client` bound one read each, so a server that sends a byte now and then could
keep a caller waiting without end. Here every read and write gets the time that is left. Resolving
the name of a host is not bounded: the operating system has no timeout for it.
"""

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Mapping

from pairbus.errors import ConnectionLost, OperationTimeout, Unavailable
from pairbus.servicebus.addresses import HTTPS_PORT, format_address
from pairbus.servicebus.proxy import HTTP_PORT, Proxy, open_tunnel
from pairbus.servicebus.sockets import Clock, connect_socket

__all__ = ["HttpTransport", "Proxy"]

MAX_BODY = 16 * 1024 * 1024
"""A longer response is an error: a page of a hundred entities has less than one megabyte."""


class HttpTransport:
    """Sends requests to one server, directly or through a proxy. Not safe for use by several
    threads at a time."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        host_header: str | None = None,
        proxy: Proxy | None = None,
        max_body: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._proxy = proxy
        self._max_body = MAX_BODY if max_body is None else max_body
        self._clock = clock
        default_port = HTTP_PORT if tls is None else HTTPS_PORT
        address = format_address(host, None if port == default_port else port)
        self._host_header = address if host_header is None else host_header
        # A proxy for plain HTTP takes the whole URL; with TLS it tunnels (CONNECT).
        self._target_prefix = f"http://{address}" if proxy is not None and tls is None else ""
        self._socket: _DeadlineSocket | None = None

    def close(self) -> None:
        """Close the connection. It can be called again; the next request opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def request(
        self,
        method: str,
        target: str,
        *,
        deadline: float,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Send a request and return the status and body of the response. Raises ConnectionLost,
        OperationTimeout, or Unavailable for a response that is not HTTP."""
        try:
            return self._exchange(method, target, deadline, headers, body)
        except Unavailable:  # it says already what failed
            self.close()
            raise
        except TimeoutError as exc:
            self.close()
            where = format_address(self._host, self._port)
            raise OperationTimeout(f"no response from {where} in time") from exc
        except (OSError, ValueError, http.client.HTTPException) as exc:
            # A ValueError is a host that is no valid name.
            self.close()
            where = format_address(self._host, self._port)
            raise ConnectionLost(
                f"request to {where} failed: {str(exc) or type(exc).__name__}"
            ) from exc
        except BaseException:
            self.close()
            raise

    def _exchange(
        self,
        method: str,
        target: str,
        deadline: float,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> tuple[int, bytes]:
        sock = self._connected(deadline)
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.sock = sock  # it uses sendall, makefile and close only
        proxy_headers = self._proxy.headers if self._proxy is not None and self._tls is None else {}
        connection.request(
            method,
            self._target_prefix + target,
            body=body,
            headers={"Host": self._host_header, **proxy_headers, **headers},
        )
        response = connection.getresponse()
        content = response.read(self._max_body + 1)
        if len(content) > self._max_body:
            raise Unavailable(f"the response has more than {self._max_body} bytes")
        if response.length:  # a bounded read does not check the Content-Length
            raise http.client.IncompleteRead(content, response.length)
        if response.will_close:
            self.close()
        return response.status, content

    def _connected(self, deadline: float) -> "_DeadlineSocket":
        if self._socket is not None and self._socket.has_input():
            self.close()  # the server has closed it, or sent bytes without a request
        if self._socket is None:
            self._socket = self._connect(deadline)
        self._socket.deadline = deadline
        return self._socket

    def _connect(self, deadline: float) -> "_DeadlineSocket":
        proxy = self._proxy
        address = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
        raw = connect_socket(*address, deadline, self._clock)
        try:
            if self._tls is not None:
                if proxy is not None:
                    open_tunnel(raw, proxy, self._host, self._port, deadline, self._clock)
                raw.settimeout(_remaining_s(deadline, self._clock))
                raw = self._tls.wrap_socket(raw, server_hostname=self._host)
        except BaseException:
            raw.close()
            raise
        return _DeadlineSocket(raw, deadline, self._clock)


class _DeadlineSocket:
    """The part of a socket that `http.client` uses, with a deadline for all operations."""

    def __init__(self, sock: socket.socket, deadline: float, clock: Clock) -> None:
        self._sock = sock
        self.deadline = deadline
        self._clock = clock

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_remaining_s(self.deadline, self._clock))
        self._sock.sendall(data)

    def recv_into(self, buffer: memoryview) -> int:
        self._sock.settimeout(_remaining_s(self.deadline, self._clock))
        return self._sock.recv_into(buffer)

    def has_input(self) -> bool:
        """Return True if a read would not wait: there are bytes, or the peer has closed."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_SocketReader(self))

    def close(self) -> None:
        self._sock.close()


class _SocketReader(io.RawIOBase):
    def __init__(self, sock: _DeadlineSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._sock.recv_into(buffer)


def _remaining_s(deadline: float, clock: Clock) -> float:
    remaining = deadline - clock()
    if remaining <= 0:
        raise TimeoutError("the deadline has passed")
    return remaining
