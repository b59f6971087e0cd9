"""Clients of the namespaces of a drill, which are given as connection strings or as hosts."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from azure.servicebus import ServiceBusClient, TransportType

from pairbus.amqp.client import ClientOptions, Proxy
from pairbus.amqp.client.default_credential import default_credential
from pairbus.amqp.client.options import TransportKind
from pairbus.servicebus.addresses import SERVICE_PORTS, format_address
from pairbus.servicebus.administration import DEFAULT_TIMEOUT_S, AdministrationClient
from pairbus.servicebus.namespace_access import NamespaceAccess, is_connection_string


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Transport, proxy and CA file for both namespaces of a drill."""

    transport: TransportKind = "tcp"
    proxy: Proxy | None = None
    ca_file: str | None = None


DIRECT = NetworkSettings()


@cache
def _credential() -> Any:
    """Return the default credential of azure-identity, which caches its tokens."""
    return default_credential()


def client_options(namespace: str, network: NetworkSettings = DIRECT) -> ClientOptions:
    """Return the options of our own client."""
    credential = None if is_connection_string(namespace) else _credential()
    return ClientOptions.from_access(
        NamespaceAccess.parse(namespace, credential),
        transport=network.transport,
        proxy=network.proxy,
        ca_file=network.ca_file,
    )


def sdk_client(
    namespace: str, network: NetworkSettings = DIRECT, **options: Any
) -> ServiceBusClient:
    """Return a client of the SDK."""
    ours = client_options(namespace, network)
    if network.ca_file is not None:
        options["connection_verify"] = network.ca_file
    if network.transport == "websocket":
        options["transport_type"] = TransportType.AmqpOverWebsocket
    if network.proxy is not None:  # the SDK then uses WebSockets
        options["http_proxy"] = {
            "proxy_hostname": network.proxy.host,
            "proxy_port": network.proxy.port,
            "username": network.proxy.username,
            "password": network.proxy.password,
        }
    over_tcp = network.transport == "tcp" and network.proxy is None
    if ours.port not in (None, *SERVICE_PORTS) and (ours.tls or not over_tcp):
        # Without a custom endpoint, the SDK drops the port where it uses TLS or WebSockets.
        options["custom_endpoint_address"] = f"sb://{format_address(ours.host, ours.port)}"
        # With one, it uses WebSockets by default.
        if over_tcp:
            options["transport_type"] = TransportType.Amqp
    if is_connection_string(namespace):
        return ServiceBusClient.from_connection_string(namespace, **options)
    return ServiceBusClient(ours.host, _credential(), **options)


def administration(namespace: str, network: NetworkSettings = DIRECT) -> AdministrationClient:
    """Return an administration client."""
    options = client_options(namespace, network).administration(timeout_s=DEFAULT_TIMEOUT_S)
    return AdministrationClient(options)
