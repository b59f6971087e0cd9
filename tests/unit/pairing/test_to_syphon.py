"""What a syphon is told of the clients of a pairing."""

import pickle
import ssl
import threading
import time
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from pairbus.amqp.client import ClientOptions
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.to_syphon import client_options, syphon_options
from pairbus.servicebus.tokens import SharedAccessKey, SharedAccessSignature
from pairbus.syphon.options import SyphonOptions

HOST = "one.servicebus.windows.net"
KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
SIGNATURE = f"SharedAccessSignature sr=sb%3A%2F%2F{HOST}&sig=abc&se=1999999999&skn=root"


class Plain:
    """A credential that can be sent elsewhere."""

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken("from elsewhere", int(time.time()) + 3600)


class Stuck(Plain):
    """One that cannot."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Async:
    async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken("in a loop", 1)


def of(text: str, **options: Any) -> ClientOptions:
    return client_options(ServiceBusClient.from_connection_string(text, **options), "primary")


@pytest.mark.parametrize("kind", [ServiceBusClient, AsyncServiceBusClient])
def test_a_connection_string_with_a_key(kind: Any) -> None:
    client = kind.from_connection_string(f"Endpoint=sb://{HOST}/;{KEY}")

    made = client_options(client, "primary")

    assert made == ClientOptions(host=HOST, tokens=SharedAccessKey("root", "c2VjcmV0"))
    assert made.address == (HOST, 5671)


def test_a_connection_string_with_a_signature() -> None:
    made = of(f"Endpoint=sb://{HOST}/;SharedAccessSignature={SIGNATURE}")

    assert made.tokens == SharedAccessSignature(SIGNATURE)


def test_a_local_namespace_without_tls() -> None:
    made = of(f"Endpoint=sb://localhost:1234;{KEY};UseDevelopmentEmulator=true")

    assert (made.address, made.tls) == (("localhost", 1234), False)


def test_a_custom_endpoint_and_its_ca() -> None:
    made = of(
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


def test_a_token_credential_is_sent_along() -> None:
    made = client_options(ServiceBusClient(HOST, Plain()), "primary")

    there = pickle.loads(pickle.dumps(made))

    assert there.tokens.token("sb://x", 0).text == "from elsewhere"


@pytest.mark.parametrize("credential", [Stuck, Async])
def test_a_credential_that_cannot_be_sent_is_a_wrong_option(credential: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"of the secondary.*syphon_options"):
        client_options(ServiceBusClient(HOST, credential()), "secondary")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ssl_context": ssl.create_default_context()}, "SSL context"),
        ({"transport_type": TransportType.AmqpOverWebsocket}, "over TCP"),
        ({"http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128}}, "proxy"),
    ],
    ids=["ssl context", "websocket", "proxy"],
)
def test_what_the_syphon_cannot_do_is_a_wrong_option(options: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        of(f"Endpoint=sb://{HOST}/;{KEY}", **options)


def test_options_of_the_users_own_are_taken_as_they_are() -> None:
    given = SyphonOptions(primary="Endpoint=sb://a/", secondary="Endpoint=sb://b/")  # type: ignore[arg-type]
    client = ServiceBusClient(HOST, Stuck())

    made = syphon_options(client, client, SendAvailabilityOptions(syphon_options=given), ["q"])

    assert made is given
    with pytest.raises(ConfigurationError, match="syphon_options is a"):
        syphon_options(client, client, SendAvailabilityOptions(syphon_options="x"), ["q"])


def test_without_any_they_are_made_from_the_clients() -> None:
    one = ServiceBusClient.from_connection_string(f"Endpoint=sb://{HOST}/;{KEY}")
    two = ServiceBusClient.from_connection_string(f"Endpoint=sb://two.example/;{KEY}")

    made = syphon_options(one, two, SendAvailabilityOptions(), ["a/0", "a/1"])

    assert (made.primary.host, made.secondary.host) == (HOST, "two.example")
    assert made.backlog_queues == ("a/0", "a/1")
