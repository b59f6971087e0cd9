"""Clients of the namespaces of a drill."""

import pytest
from azure.identity import DefaultAzureCredential
from azure.servicebus import ServiceBusClient

from pairbus.amqp.client import HeldCredential, SharedAccessKey
from pairbus.drill.connections import administration, client_options, sdk_client

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
