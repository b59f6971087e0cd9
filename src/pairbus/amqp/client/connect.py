"""Opening the connection of a client: directly or through a proxy, over TCP or a WebSocket."""

import ssl
from typing import TYPE_CHECKING, TypeAlias

from pairbus.amqp.client.options import WEBSOCKET_HINT, ClientOptions
from pairbus.amqp.client.transport import Transport
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import format_address
from pairbus.servicebus.proxy import Proxy
from pairbus.servicebus.sockets import Clock

if TYPE_CHECKING:
    from pairbus.amqp.client.websocket_transport import WebSocketTransport

ClientTransport: TypeAlias = "Transport | WebSocketTransport"


def open_transport(
    options: ClientOptions, tls: ssl.SSLContext | None, deadline: float, clock: Clock
) -> ClientTransport:
    """Connect to the namespace, all stages together before the deadline.

    Raises ConnectionLost, OperationTimeout, or ConfigurationError for an invalid host name, an
    invalid proxy in the environment, or a library that is missing.
    """
    host, port = options.address
    transport = Transport.connect(
        host,
        port,
        tls=tls,
        server_name=options.host,
        proxy=proxy_for(options),
        deadline=deadline,
        clock=clock,
    )
    if options.transport == "tcp":
        return transport
    try:
        return _upgrade(transport, options, deadline, clock)
    except BaseException:
        transport.close()
        raise


def proxy_for(options: ClientOptions) -> Proxy | None:
    """Return the proxy of the options. A WebSocket with TLS is web traffic: without a proxy in the
    options it uses that of the environment (`HTTPS_PROXY`), as the SDK and browsers do. AMQP over
    TCP does not, because proxies for web traffic rarely allow its port."""
    if options.proxy is None and options.transport == "websocket" and options.tls:
        return Proxy.from_environment(options.address[0])
    return options.proxy


def _upgrade(
    transport: Transport, options: ClientOptions, deadline: float, clock: Clock
) -> "WebSocketTransport":
    try:
        from pairbus.amqp.client.websocket_transport import WebSocketTransport
    except ImportError as exc:  # The options were checked in another process.
        raise ConfigurationError(WEBSOCKET_HINT) from exc
    host, port = options.address
    return WebSocketTransport.upgrade(
        transport,
        options.host,
        port,
        tls=options.tls,
        server=format_address(host, port),
        deadline=deadline,
        clock=clock,
    )
