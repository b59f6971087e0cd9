"""Clients of the namespaces of a drill, which are given as connection strings or as hosts."""

from functools import cache
from typing import Any

from azure.servicebus import ServiceBusClient

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.client.default_credential import default_credential
from pairbus.servicebus.administration import DEFAULT_TIMEOUT_S, AdministrationClient
from pairbus.servicebus.namespace_access import NamespaceAccess, is_connection_string


@cache
def _credential() -> Any:
    """Return the default credential of azure-identity, which caches its tokens."""
    return default_credential()


def sdk_client(namespace: str, **options: Any) -> ServiceBusClient:
    """Return a client of the SDK."""
    if is_connection_string(namespace):
        return ServiceBusClient.from_connection_string(namespace, **options)
    return ServiceBusClient(namespace, _credential(), **options)


def client_options(namespace: str) -> ClientOptions:
    """Return the options of our own client."""
    credential = None if is_connection_string(namespace) else _credential()
    return ClientOptions.from_access(NamespaceAccess.parse(namespace, credential))


def administration(namespace: str) -> AdministrationClient:
    """Return an administration client."""
    options = client_options(namespace).administration(timeout_s=DEFAULT_TIMEOUT_S)
    return AdministrationClient(options)
