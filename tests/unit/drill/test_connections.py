"""Clients of the namespaces of a drill."""

import pytest
from azure.identity import DefaultAzureCredential
from azure.servicebus import ServiceBusClient, TransportType

from pairbus.amqp.client import HeldCredential, Proxy, SharedAccessKey
from pairbus.drill.connections import (
    NetworkSettings,
    administration,
    client_options,
    sdk_client,
)

HOST = "one.servicebus.windows.net"
TEXT = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"


@pytest.mark.rule("A1")
def test_host_uses_the_default_credential_everywhere() -> None:
    with sdk_client(HOST) as client, administration(HOST) as admin:
        assert isinstance(client, ServiceBusClient)
        assert client.fully_qualified_namespace == HOST
        assert isinstance(client._credential, DefaultAzureCredential)
        assert admin.options.address == (HOST, 443)
        assert (
            admin.options.tokens
            == client_options(HOST).tokens
            == HeldCredential(client._credential)
        )


def test_connection_string_uses_its_key() -> None:
    with sdk_client(TEXT) as client, administration(TEXT) as admin:
        assert client.fully_qualified_namespace == HOST
        assert (
            admin.options.tokens == client_options(TEXT).tokens == SharedAccessKey("n", "c2VjcmV0")
        )


@pytest.mark.rule("A2", "A3", "A4")
def test_network_settings_are_those_of_every_client() -> None:
    proxy = Proxy(host="proxy", port=3128, username="u", password="p")
    network = NetworkSettings(transport="websocket", proxy=proxy, ca_file="ca.pem")
    with sdk_client(f"{HOST}:8443", network) as client:
        assert client._custom_endpoint_address == f"sb://{HOST}:8443"
        assert client._config.transport_type is TransportType.AmqpOverWebsocket
        assert client._config.connection_verify == "ca.pem"
        assert client._config.http_proxy["proxy_hostname"] == "proxy"
    options = client_options(HOST, network)
    assert (options.transport, options.proxy, options.ca_file) == ("websocket", proxy, "ca.pem")


def test_emulator_without_tls_needs_no_custom_endpoint() -> None:
    text = "Endpoint=sb://localhost:1234;SharedAccessKeyName=n;SharedAccessKey=k;"
    with sdk_client(f"{text}UseDevelopmentEmulator=true") as client:
        assert client._custom_endpoint_address is None
    with sdk_client(text) as client:
        assert client._custom_endpoint_address == "sb://localhost:1234"
        assert client._config.transport_type is TransportType.Amqp
