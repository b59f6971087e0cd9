"""Sockets of the HTTP servers that commands start, and their certificates."""

import errno
import socket
import ssl
from typing import Final

from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import LOCALHOST, parse_ip_address

SEND_BUFFER_BYTES: Final = 128 * 1024


def open_listener(host: str, port: int, name: str = "The console") -> socket.socket:
    """Return a socket that listens. Port 0: a free one. Raises ConfigurationError, which says that
    `name` cannot listen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit it. Without it, a client that does not read takes megabytes.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            listener.bind(address)
            listener.listen(512)
        except OSError:
            listener.close()
            raise
    except OSError as exc:
        raise ConfigurationError(
            f"{name} cannot listen on {host} port {port}: {exc.strerror}. Use another "
            f"{'port' if exc.errno in (errno.EADDRINUSE, errno.EACCES) else 'address'}."
        ) from exc
    return listener


def tls_context(certificate: str, key: str | None) -> ssl.SSLContext:
    """Return the TLS context of a certificate file. Raises ConfigurationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigurationError(
            f"The certificate {certificate} cannot be used: {exc}. Use a PEM file with the "
            "certificate and its private key, or the key in a file of its own."
        ) from exc
    return context


def is_loopback_host(host: str) -> bool:
    """Return True if only this machine can reach a server on a host."""
    address = parse_ip_address(host)
    return host.lower() == LOCALHOST if address is None else address.is_loopback
