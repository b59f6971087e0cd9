"""HTTP proxies: their addresses, and tunnels through them (CONNECT)."""

import base64
import http
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from pairbus.errors import ConfigurationError, ConnectionLost, OperationTimeout
from pairbus.servicebus.addresses import ascii_host, format_address
from pairbus.servicebus.sockets import Clock

HTTP_PORT = 80
MAX_HEAD = 16 * 1024
"""A response of a proxy with a longer head is an error."""
CREDENTIAL_STATUSES = (401, 407)
"""407 is the standard; tinyproxy answers wrong credentials with 401."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy. `repr` does not show the password."""

    host: str
    """The host. A scheme is removed: the async SDK requires `http://host` in its `http_proxy`."""
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", self.host.removeprefix("http://").rstrip("/"))
        if not self.host or not 0 < self.port < 65536:
            raise ConfigurationError("the proxy needs a host, and a port from 1 to 65535")

    @classmethod
    def from_url(cls, url: str) -> "Proxy":
        """Return the proxy of a URL, `http://[user:password@]host[:port]`. The scheme may be left
        out. Raises ConfigurationError; its message does not quote the URL, which may hold a
        password."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError:
            raise _invalid_url() from None  # the exception quotes the URL
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise _invalid_url()
        return cls(
            host=parts.hostname,
            port=HTTP_PORT if port is None else port,
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )

    @classmethod
    def from_environment(cls, host: str) -> "Proxy | None":
        """Return the proxy that the environment names for HTTPS to a host (`HTTPS_PROXY`,
        `NO_PROXY`), or None. Raises ConfigurationError for a proxy that is not an HTTP proxy."""
        url = getproxies().get("https")
        if not url or proxy_bypass(host):
            return None
        try:
            return cls.from_url(url)
        except ConfigurationError:
            raise ConfigurationError(
                "the proxy in HTTPS_PROXY is not of the form http://host:port: change it, or add "
                f"{host} to NO_PROXY"
            ) from None

    @property
    def address(self) -> str:
        """The host and port, for messages."""
        return format_address(self.host, self.port)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authorize the client at the proxy."""
        if not self.username:
            return {}
        credentials = f"{self.username}:{self.password or ''}".encode()
        return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode()}"}


def _invalid_url() -> ConfigurationError:
    return ConfigurationError(
        "the URL of the proxy is not of the form http://[user:password@]host[:port]; special "
        "characters of the password are percent-encoded"
    )


def open_tunnel(
    sock: socket.socket, proxy: Proxy, host: str, port: int, deadline: float, clock: Clock
) -> None:
    """Let a proxy, to which the socket is connected, connect it to a host. Raises ConnectionLost,
    OperationTimeout at the deadline, and ConfigurationError for an invalid host name."""
    target = f"{format_address(ascii_host(host), None)}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
    try:
        sock.settimeout(_remaining_s(deadline, clock))
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        head = _read_head(sock, deadline, clock)
    except TimeoutError as exc:
        raise OperationTimeout(
            f"proxy {proxy.address} did not connect to {target} in time"
        ) from exc
    except OSError as exc:
        raise ConnectionLost(f"proxy {proxy.address} failed to connect to {target}: {exc}") from exc
    match = _STATUS_LINE.match(head)
    if match is None:
        raise ConnectionLost(
            f"{proxy.address} does not answer like an HTTP proxy. Check the address of the proxy."
        )
    status = int(match[1])
    if not 200 <= status < 300:
        raise ConnectionLost(_refusal(proxy, target, status))


def _read_head(sock: socket.socket, deadline: float, clock: Clock) -> bytes:
    """Return the head of the response, without reading further: what follows is in the tunnel."""
    head = bytearray()
    while not head.endswith((b"\r\n\r\n", b"\n\n")) and len(head) < MAX_HEAD:
        sock.settimeout(_remaining_s(deadline, clock))
        data = sock.recv(1)
        if not data:
            break
        head += data
    return bytes(head)


def _refusal(proxy: Proxy, target: str, status: int) -> str:
    answer = f"{status} {status_phrase(status)}".strip()
    if status in CREDENTIAL_STATUSES:
        if proxy.username:
            return (
                f"proxy {proxy.address} rejected the user name or the password ({answer}). "
                "Correct them in the URL of the proxy."
            )
        return (
            f"proxy {proxy.address} requires a user name and a password ({answer}). Add them to "
            "the URL of the proxy: http://user:password@host:port"
        )
    return (
        f"proxy {proxy.address} refused to connect to {target}: {answer}. Check that the proxy "
        "allows this host and port."
    )


def status_phrase(status: int) -> str:
    """Return the standard phrase of an HTTP status, or "" for an unknown one."""
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def _remaining_s(deadline: float, clock: Clock) -> float:
    remaining = deadline - clock()
    if remaining <= 0:
        raise TimeoutError("the deadline has passed")
    return remaining
