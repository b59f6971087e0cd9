"""The options that an embedded syphon derives from the clients of a pairing."""

import asyncio
import ssl
import threading
import time
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from pairbus.amqp.client import ClientOptions, HeldCredential, Proxy
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.embedded_syphon import client_options, syphon_options
from pairbus.servicebus.tokens import SharedAccessKey, SharedAccessSignature
from pairbus.syphon.options import SyphonOptions

HOST = "one.servicebus.windows.net"
KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
SIGNATURE = f"SharedAccessSignature sr=sb%3A%2F%2F{HOST}&sig=abc&se=1999999999&skn=root"


class TokenCredential:
    """A credential that cannot be pickled, like those of azure-identity."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken("a token", int(time.time()) + 3600)


class AsyncCredential:
    async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken("in a loop", 1)


def options_from(text: str, **options: Any) -> ClientOptions:
    return client_options(ServiceBusClient.from_connection_string(text, **options), "primary")


@pytest.mark.parametrize("kind", [ServiceBusClient, AsyncServiceBusClient])
def test_connection_string_with_a_key(kind: Any) -> None:
    client = kind.from_connection_string(f"Endpoint=sb://{HOST}/;{KEY}")

    made = client_options(client, "primary")

    assert made == ClientOptions(host=HOST, tokens=SharedAccessKey("root", "c2VjcmV0"))
    assert made.address == (HOST, 5671)


def test_connection_string_with_a_signature() -> None:
    made = options_from(f"Endpoint=sb://{HOST}/;SharedAccessSignature={SIGNATURE}")

    assert made.tokens == SharedAccessSignature(SIGNATURE)


def test_local_namespace_without_tls() -> None:
    made = options_from(f"Endpoint=sb://localhost:1234;{KEY};UseDevelopmentEmulator=true")

    assert (made.address, made.tls) == (("localhost", 1234), False)


def test_custom_endpoint_with_a_ca_file() -> None:
    made = options_from(
        f"Endpoint=sb://{HOST}/;{KEY}",
        custom_endpoint_address="sb://gateway.example:8443",
        transport_type=TransportType.Amqp,
        connection_verify="ca.pem",
    )

    assert (made.host, made.address) == (HOST, ("gateway.example", 8443))
    assert (made.tls, made.ca_file) == (True, "ca.pem")


@pytest.mark.parametrize(
    ("credential", "tokens"),
    [
        (AzureNamedKeyCredential("root", "key"), SharedAccessKey("root", "key")),
        (AzureSasCredential(SIGNATURE), SharedAccessSignature(SIGNATURE)),
    ],
    ids=["named key", "signature"],
)
def test_credentials_of_azure_core(credential: Any, tokens: Any) -> None:
    assert client_options(ServiceBusClient(HOST, credential), "primary").tokens == tokens


@pytest.mark.rule("A1")
def test_token_credential_stays_in_the_process() -> None:
    made = client_options(ServiceBusClient(HOST, TokenCredential()), "primary")

    assert isinstance(made.tokens, HeldCredential)
    assert made.tokens.token("sb://x", 0).text == "a token"


@pytest.mark.rule("A1")
async def test_asynchronous_credential_runs_in_the_event_loop_of_its_client() -> None:
    loop = asyncio.get_running_loop()
    made = client_options(AsyncServiceBusClient(HOST, AsyncCredential()), "primary", loop)
    assert made.tokens is not None

    token = await asyncio.to_thread(made.tokens.token, "sb://x", 0)

    assert token.text == "in a loop"


def test_ssl_context_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"of the primary: its SSL context"):
        options_from(f"Endpoint=sb://{HOST}/;{KEY}", ssl_context=ssl.create_default_context())


@pytest.mark.rule("A2", "A3")
def test_websockets_and_proxy_of_the_client_are_used() -> None:
    proxy = {"proxy_hostname": "http://proxy", "proxy_port": 3128, "username": "u", "password": "p"}
    text = f"Endpoint=sb://{HOST}/;{KEY}"

    over_websockets = options_from(text, transport_type=TransportType.AmqpOverWebsocket)
    through_proxy = options_from(text, http_proxy=proxy)

    assert (over_websockets.transport, over_websockets.proxy) == ("websocket", None)
    assert over_websockets.address == (HOST, 443)
    assert through_proxy.transport == "websocket"
    assert through_proxy.proxy == Proxy(host="proxy", port=3128, username="u", password="p")


def test_syphon_options_of_the_user_are_used_unchanged() -> None:
    user_options = SyphonOptions(primary="Endpoint=sb://a/", secondary="Endpoint=sb://b/")  # type: ignore[arg-type]
    client = ServiceBusClient(HOST, TokenCredential())

    used = syphon_options(
        client, client, SendAvailabilityOptions(syphon_options=user_options), ("q",)
    )

    assert used is user_options
    with pytest.raises(ConfigurationError, match="syphon_options must be a"):
        syphon_options(client, client, SendAvailabilityOptions(syphon_options="x"), ("q",))


def test_options_are_derived_from_the_clients_by_default() -> None:
    primary = ServiceBusClient.from_connection_string(f"Endpoint=sb://{HOST}/;{KEY}")
    secondary = ServiceBusClient.from_connection_string(f"Endpoint=sb://two.example/;{KEY}")

    options = SendAvailabilityOptions(primary_name="one", telemetry=False)
    derived = syphon_options(primary, secondary, options, ("a/0", "a/1"))

    assert (derived.primary.host, derived.secondary.host) == (HOST, "two.example")
    assert derived.backlog_queues == ("a/0", "a/1")
    assert (derived.name, derived.telemetry) == ("one", False)
