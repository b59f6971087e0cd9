"""A blocking client of the administration API: queues, topics and subscriptions of a namespace.

    options = AdministrationOptions.from_connection_string(text)
    with AdministrationClient(options) as administration:
        administration.create_queue("orders", max_delivery_count=5)

It needs the Manage right. Nothing is retried. A call sends one request, or several to read a list
in pages or to change a status; each request ends within the timeout.
"""

import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Unpack
from urllib.parse import quote

from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    EntityExists,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus import atom
from pairbus.servicebus.addresses import AMQP_PORT, HTTPS_PORT, format_address, split_host
from pairbus.servicebus.atom import (
    NewQueueSettings,
    NewSubscriptionSettings,
    NewTopicSettings,
    QueueProperties,
    TopicProperties,
)
from pairbus.servicebus.entity_paths import subscription_path
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.http_transport import HttpTransport, Proxy
from pairbus.servicebus.limits import MAX_PAGE_SIZE, THROTTLED
from pairbus.servicebus.namespace_access import AnyCredential, NamespaceAccess
from pairbus.servicebus.sockets import Clock
from pairbus.servicebus.tokens import TokenSource, acquire_token, authorization_header

DEFAULT_TIMEOUT_S = 30.0
_ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"

OnRequest = Callable[[str, bool], None]
"""Called after each request, with its path and True if it was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrationOptions:
    """The address of a namespace, the credential and the timeout."""

    host: str
    """The host of the namespace."""
    port: int | None = None
    """None: 443 with TLS, 5672 without, where an emulator listens."""
    tls: bool = True
    ca_file: str | None = None
    """Certificates to trust; None: those of the system."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """Replaces `ca_file`. It is not changed."""
    endpoint: str | None = None
    """`host` or `host:port` to connect to instead. Requests still name `host` (Host header)."""
    proxy: Proxy | None = None
    """None: with TLS the proxy of the environment, if there is one; otherwise no proxy."""
    tokens: TokenSource | None = None
    """The source of tokens; None: requests carry no token."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """The longest time for one request, from connecting to the end of the response."""

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigurationError("host must not be empty")
        if self.timeout_s <= 0:
            raise ConfigurationError(f"timeout_s must be above 0, not {self.timeout_s}")

    @classmethod
    def from_connection_string(
        cls, text: str, *, ca_file: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> "AdministrationOptions":
        """Return the options for a connection string. Raises ConfigurationError."""
        return cls._from_access(NamespaceAccess.from_connection_string(text), ca_file, timeout_s)

    @classmethod
    def from_host(
        cls,
        host: str,
        credential: AnyCredential,
        *,
        ca_file: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> "AdministrationOptions":
        """Return the options for a host and a credential of azure-identity, or a function that
        creates one. Raises ConfigurationError."""
        return cls._from_access(NamespaceAccess.from_host(host, credential), ca_file, timeout_s)

    @classmethod
    def _from_access(
        cls, access: NamespaceAccess, ca_file: str | None, timeout_s: float
    ) -> "AdministrationOptions":
        return cls(
            host=access.host,
            port=access.port,
            tls=access.tls,
            ca_file=ca_file,
            tokens=access.tokens,
            timeout_s=timeout_s,
        )

    @property
    def namespace(self) -> str:
        """The host and port that requests and tokens name."""
        return format_address(self.host, self.port)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to connect to."""
        host, port = (self.host, self.port) if self.endpoint is None else split_host(self.endpoint)
        default = HTTPS_PORT if self.tls else AMQP_PORT
        return host, default if port is None else port

    def transport(self, clock: Clock) -> HttpTransport:
        """Return a transport that is not connected yet. Raises ConfigurationError."""
        host, port = self.address
        proxy = self.proxy
        if proxy is None and self.tls:
            proxy = Proxy.from_environment(host)
        return HttpTransport(
            host,
            port,
            tls=self._tls_context(),
            host_header=None if self.endpoint is None else self.namespace,
            proxy=proxy,
            clock=clock,
        )

    def _tls_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        if self.ssl_context is not None:
            return self.ssl_context
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as exc:  # ssl.SSLError is one
            raise ConfigurationError(f"cannot use ca_file {self.ca_file!r}: {exc}") from exc


class AdministrationClient:
    """Sends requests over one connection. Use it from one thread at a time.

    Every method raises NotAuthorized without the Manage right, Busy when the service throttles,
    Unavailable (ConnectionLost, OperationTimeout) when it does not respond properly, and Refused
    when it rejects the request. `timeout_s` of a method replaces that of the options.
    """

    def __init__(
        self,
        options: AdministrationOptions,
        *,
        on_request: OnRequest | None = None,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        self.options = options
        self._on_request = on_request
        self._clock = clock
        self._wall_clock = wall_clock
        self._transport = options.transport(clock)

    def __enter__(self) -> "AdministrationClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. It can be called again."""
        self._transport.close()

    def get_sku(self, *, timeout_s: float | None = None) -> str:
        """Return the tier of the namespace: Basic, Standard or Premium."""
        body = self._send("GET", atom.NAMESPACE, "reading the namespace", timeout_s, audience="")
        return atom.read_sku(body)

    def get_queue(self, path: str, *, timeout_s: float | None = None) -> QueueProperties:
        """Return the settings and message counts of a queue. Raises EntityNotFound, and Refused if
        the path is that of a topic."""
        body = self._send("GET", path, f"reading queue {path!r}", timeout_s)
        return atom.read_queue(path, body)

    def list_queues(
        self, prefix: str = "", *, timeout_s: float | None = None
    ) -> list[QueueProperties]:
        """Return the queues whose paths start with a prefix, in upper or lower case. The service
        lists the whole namespace, at most 100 queues with each request."""
        prefix = prefix.lower()
        return [queue for queue in self._queues(timeout_s) if queue.path.lower().startswith(prefix)]

    def create_queue(
        self, path: str, *, timeout_s: float | None = None, **settings: Unpack[NewQueueSettings]
    ) -> None:
        """Create a queue. Raises EntityExists, and QuotaExceeded if the namespace is full."""
        self._send(
            "PUT", path, f"creating queue {path!r}", timeout_s, body=atom.write_queue(settings)
        )

    def delete_queue(self, path: str, *, timeout_s: float | None = None) -> None:
        """Delete a queue and its messages. Raises EntityNotFound."""
        self._send("DELETE", path, f"deleting queue {path!r}", timeout_s)

    def get_topic(self, path: str, *, timeout_s: float | None = None) -> TopicProperties:
        """Return the settings of a topic. Raises EntityNotFound, and Refused if the path is that
        of a queue."""
        body = self._send("GET", path, f"reading topic {path!r}", timeout_s)
        return atom.read_topic(path, body)

    def create_topic(
        self, path: str, *, timeout_s: float | None = None, **settings: Unpack[NewTopicSettings]
    ) -> None:
        """Create a topic. Raises EntityExists, and QuotaExceeded if the namespace is full."""
        self._send(
            "PUT", path, f"creating topic {path!r}", timeout_s, body=atom.write_topic(settings)
        )

    def delete_topic(self, path: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic with its subscriptions. Raises EntityNotFound."""
        self._send("DELETE", path, f"deleting topic {path!r}", timeout_s)

    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        timeout_s: float | None = None,
        **settings: Unpack[NewSubscriptionSettings],
    ) -> None:
        """Create a subscription that gets every message of a topic. Raises EntityExists, and
        EntityNotFound if there is no such topic."""
        path = subscription_path(topic, name)
        body = atom.write_subscription(settings)
        self._send("PUT", path, f"creating subscription {path!r}", timeout_s, body=body)

    def set_status(
        self, path: str, status: EntityStatus, *, timeout_s: float | None = None
    ) -> None:
        """Change the status of a queue or topic: read its description, and write it back. Raises
        EntityNotFound."""
        action = f"setting the status of {path!r}"
        description = self._send("GET", path, action, timeout_s)
        update = atom.replace_status(path, description, status)
        # To keep forwarding, a client shows that it may send to the target.
        headers = {"If-Match": "*"}
        if update.forwards:
            headers[atom.FORWARD_TO_TOKEN] = self._token("")
        if update.dead_letters_forward:
            headers[atom.FORWARD_DEAD_LETTERS_TOKEN] = self._token("")
        self._send("PUT", path, action, timeout_s, body=update.body, headers=headers)

    def _queues(self, timeout_s: float | None) -> Iterator[QueueProperties]:
        skip = 0
        while True:
            body = self._send(
                "GET",
                atom.QUEUES,
                "listing queues",
                timeout_s,
                query=f"&$skip={skip}&$top={MAX_PAGE_SIZE}",
                audience="",
            )
            queues, more = atom.read_queues(body)
            yield from queues
            # The service may return fewer entries than requested and still have more.
            if not queues or not (more or len(queues) >= MAX_PAGE_SIZE):
                return
            skip += len(queues)

    def _send(
        self,
        method: str,
        path: str,
        action: str,
        timeout_s: float | None,
        *,
        query: str = "",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        audience: str | None = None,
    ) -> bytes:
        """Send a request, and return the body of a successful response. `audience` is the path
        that the token is for, if it is not the path of the request."""
        headers = {} if headers is None else dict(headers)
        token = self._token(path if audience is None else audience)
        if token:
            headers["Authorization"] = token
        if body is not None:
            headers["Content-Type"] = _ENTRY_TYPE
        target = f"/{quote(path, safe='/$')}?api-version={atom.API_VERSION}{query}"
        wait_s = self.options.timeout_s if timeout_s is None else timeout_s
        answered = False
        try:
            status, content = self._transport.request(
                method, target, deadline=self._clock() + wait_s, headers=headers, body=body
            )
            answered = True
        finally:
            if self._on_request is not None:
                self._on_request(path, answered)
        if status in (200, 201):
            return content
        creates = method == "PUT" and "If-Match" not in headers
        raise error_of(status, atom.read_error(content), action, creates=creates)

    def _token(self, path: str) -> str:
        """Return a token for a path; each request gets a new one."""
        tokens = self.options.tokens
        if tokens is None:
            return ""
        audience = f"https://{self.options.namespace}/{path}"
        return authorization_header(acquire_token(tokens, audience, self._wall_clock()))


def error_of(status: int, detail: str, action: str, *, creates: bool = False) -> AmqpError:
    """Return the error for a response that is not a success."""
    info = {"status": status, "detail": detail}
    if status == 401 or (status == 403 and not creates):
        return NotAuthorized(f"{action} needs the Manage right", info=info)
    kind: type[AmqpError]
    if status == 403:
        kind = QuotaExceeded  # with the right to create, only a full namespace forbids it
    elif status == 404:
        kind = EntityNotFound
    elif status == 408:
        kind = OperationTimeout
    elif status == 409:
        kind = EntityExists if creates else Busy
    elif status == 429 or (status == 503 and f"SubCode={THROTTLED}" in detail):
        kind = Busy
    else:
        kind = Unavailable if status >= 500 else Refused
    return kind(f"{action} failed with status {status}: {detail or 'no detail'}", info=info)
