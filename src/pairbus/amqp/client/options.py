"""Options of the AMQP client."""

import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args

from pairbus.amqp.sasl import SaslClient
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import AMQP_PORT, AMQPS_PORT, HTTPS_PORT, format_address
from pairbus.servicebus.administration import AdministrationOptions
from pairbus.servicebus.namespace_access import AnyCredential, NamespaceAccess
from pairbus.servicebus.proxy import Proxy
from pairbus.servicebus.tokens import TokenSource

MAX_TIMEOUT_S = 4_000_000
"""46 days. AMQP encodes timeouts as milliseconds in 32 bits."""
WEBSOCKET_HINT = "AMQP over WebSockets needs websockets. Run: pip install 'pairbus[websocket]'"

TransportKind = Literal["tcp", "websocket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Address, security and timeouts of a client. The options can be pickled, unless a credential
    object provides the tokens."""

    host: str
    port: int | None = None
    """The port. None means 5671 with TLS, or 443 with TLS over a WebSocket, and 5672 without."""
    tls: bool = True
    transport: TransportKind = "tcp"
    """AMQP over TCP, or over a WebSocket, which needs the extra `pairbus[websocket]`."""
    proxy: Proxy | None = None
    """Connect through this HTTP proxy (CONNECT). None means no proxy, but a WebSocket with TLS uses
    that of the environment (`HTTPS_PROXY`), if there is one."""
    ca_file: str | None = None
    """A file with trusted CA certificates. None means those of the system."""
    certificate_file: str | None = None
    """A file with a client certificate and its key, for SASL EXTERNAL."""
    endpoint_host: str | None = None
    """Connect to this host instead of `host`, which remains the name for TLS and AMQP."""
    tokens: TokenSource | None = None
    """The source of tokens for CBS. None means that no tokens are sent."""
    sasl: SaslClient | None = None
    """The SASL mechanisms. None means anonymous, which CBS requires."""
    connect_timeout_s: float = 30
    operation_timeout_s: float = 60
    """The timeout of a call without an explicit timeout."""
    idle_timeout_s: float = 120
    """The connection is lost if the peer sends nothing for this time."""
    max_frame_size: int = 65536

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigurationError("host must not be empty")
        if self.port is not None and not 0 < self.port < 65536:
            raise ConfigurationError(f"port must be 1 to 65535, not {self.port}")
        if self.transport not in get_args(TransportKind):
            raise ConfigurationError(
                f"transport must be one of {', '.join(get_args(TransportKind))}, not "
                f"{self.transport!r}"
            )
        if self.transport == "websocket" and find_spec("websockets") is None:
            raise ConfigurationError(WEBSOCKET_HINT)
        for name in ("connect_timeout_s", "operation_timeout_s", "idle_timeout_s"):
            if not 0 < getattr(self, name) <= MAX_TIMEOUT_S:
                raise ConfigurationError(
                    f"{name} must be above 0 and at most {MAX_TIMEOUT_S}, not {getattr(self, name)}"
                )
        if not 512 <= self.max_frame_size <= 0xFFFFFFFF:
            raise ConfigurationError(
                f"max_frame_size must be 512 to 4294967295, not {self.max_frame_size}"
            )

    @classmethod
    def from_connection_string(cls, text: str, **options: object) -> "ClientOptions":
        """Return options for a connection string. Raises ConfigurationError if it is invalid.

        `options` are further fields by name. They override those of the connection string.
        """
        return cls.from_access(NamespaceAccess.from_connection_string(text), **options)

    @classmethod
    def from_host(cls, host: str, credential: AnyCredential, **options: object) -> "ClientOptions":
        """Return options for a host, such as `contoso.servicebus.windows.net`, and a credential of
        azure-identity or a function that creates one. Raises ConfigurationError."""
        return cls.from_access(NamespaceAccess.from_host(host, credential), **options)

    @classmethod
    def from_access(cls, access: NamespaceAccess, **options: object) -> "ClientOptions":
        """Return options for a namespace. `options` are further fields by name."""
        fields = {"host": access.host, "port": access.port, "tls": access.tls}
        return cls(**{**fields, "tokens": access.tokens, **options})  # type: ignore[arg-type]

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to connect to."""
        default, port = AMQPS_PORT if self.tls else AMQP_PORT, self.port
        if self.transport == "websocket" and self.tls:
            default = HTTPS_PORT
            port = None if port in (AMQP_PORT, AMQPS_PORT) else port  # not for WebSockets
        return self.endpoint_host or self.host, default if port is None else port

    def audience(self, path: str) -> str:
        """Return the audience of a token for an entity path."""
        port = "" if self.port in (None, AMQPS_PORT, HTTPS_PORT) else f":{self.port}"
        return f"sb://{self.host}{port}/{path}"

    def administration(self, *, timeout_s: float | None = None) -> AdministrationOptions:
        """Return the options of an administration client for the same namespace.

        The service has another port for it than for AMQP; an emulator has one port for both.
        """
        port = None if self.tls and self.port in (AMQP_PORT, AMQPS_PORT) else self.port
        endpoint_host = self.endpoint_host
        return AdministrationOptions(
            host=self.host,
            port=port,
            tls=self.tls,
            ca_file=self.ca_file,
            endpoint=None if endpoint_host is None else format_address(endpoint_host, port),
            proxy=self.proxy,
            tokens=self.tokens,
            timeout_s=self.operation_timeout_s if timeout_s is None else timeout_s,
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file)
        except (OSError, ssl.SSLError) as exc:
            files = {"ca_file": self.ca_file, "certificate_file": self.certificate_file}
            names = [f"{name} {path!r}" for name, path in files.items() if path is not None]
            raise ConfigurationError(f"{' or '.join(names)} cannot be used: {exc}") from exc
        return context
