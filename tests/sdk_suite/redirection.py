"""Lets the unchanged SDK reach the emulator by the host names of Azure.

The host names of the namespaces resolve to the emulator's port on this machine, whichever port the
SDK asks for; other host names do not exist. The CA of the emulator is added to the CA file that the
SDK uses by default. The transport is the default of every client that does not choose one; a client
that sets certificates uses TLS.
"""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import certifi

from tests.sdk_suite.namespaces import Namespace

TRANSPORTS = ("tcp", "tls", "websocket")


def resolve_to(namespaces: Iterable[Namespace]) -> None:
    """Resolve the hosts of the namespaces to this machine, and no other host but loopback."""
    ports = {namespace.host: namespace.port for namespace in namespaces}
    getaddrinfo = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in ports:
            return getaddrinfo("127.0.0.1", ports[name], *args, **options)
        if name in (None, "localhost", "127.0.0.1", "::1"):
            return getaddrinfo(host, port, *args, **options)
        raise socket.gaierror(socket.EAI_NONAME, f"{name} does not exist in the tests")

    socket.getaddrinfo = resolve


def trust(ca_files: Iterable[str], bundle: Path) -> None:
    """Write a CA file with the default authorities and these ones, and make it the default.

    Must be called before `requests` and `aiohttp` are imported.
    """
    texts = [Path(file).read_text(encoding="utf-8") for file in (certifi.where(), *ca_files)]
    bundle.write_text("\n".join(texts), encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = os.environ["REQUESTS_CA_BUNDLE"] = str(bundle)
    certifi.where = lambda: str(bundle)


def use_transport(transport: str) -> None:
    """Set the default transport of the SDK's clients. `tls` is that of the SDK."""
    from azure.servicebus import TransportType
    from azure.servicebus._common._configuration import Configuration

    create = Configuration.__init__

    def create_with_transport(self: Configuration, **options: Any) -> None:
        if transport == "websocket":
            options.setdefault("transport_type", TransportType.AmqpOverWebsocket)
        elif not (options.get("ssl_context") or options.get("connection_verify")):
            options["use_tls"] = False
        create(self, **options)

    if transport != "tls":
        Configuration.__init__ = create_with_transport
