"""Bearer tokens of the emulator's issuer, with the sync and the async SDK and azure-identity."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.identity import DefaultAzureCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from pairbus.emulator.auth import GRACE_S
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.token_issuer import Role, TokenIssuer
from tests.integration.sdk_flavours import FLAVOURS, SDK_MARKS, Flavour, take_one

pytestmark = SDK_MARKS


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("secure", local_authentication=False) as namespace:
        yield namespace


class Fixed:
    """A credential with one token."""

    def __init__(self, token: Any) -> None:
        self.token = token

    def get_token(self, *scopes: str, **options: object) -> Any:
        return self.token


class AsyncFixed(Fixed):
    async def get_token(self, *scopes: str, **options: object) -> Any:
        return self.token


def connect(sdk: Flavour, *roles: Role, token: Any = None) -> Any:
    issuer = sdk.namespace.token_issuer
    if token is not None:
        credential: Any = (Fixed if sdk.name == "sync" else AsyncFixed)(token)
    elif sdk.name == "sync":
        credential = sdk.namespace.credential(*roles)
    else:
        credential = issuer.async_credential(*roles)
    return sdk.connect_with(f"localhost:{sdk.namespace.port}", credential, use_tls=False)


@pytest.mark.rule("N3")
async def test_roles_grant_their_rights(sdk: Flavour) -> None:
    queue = sdk.queue()
    sends, receives = connect(sdk, Role.SENDER), connect(sdk, Role.RECEIVER)
    async with sdk.awaitable(sends), sdk.awaitable(receives):
        await sdk.sender(queue, client=sends).send_messages(ServiceBusMessage("x"))
        assert str(await take_one(sdk.receiver(queue, client=receives))) == "x"
        refused = await asyncio.gather(
            sdk.sender(queue, client=receives).send_messages(ServiceBusMessage("y")),
            sdk.receiver(queue, client=sends).receive_messages(1, 5),
            return_exceptions=True,
        )
    assert [type(error) for error in refused] == [ServiceBusAuthorizationError] * 2


@pytest.mark.rule("N3")
async def test_invalid_tokens_and_shared_access_keys_are_refused(
    sdk: Flavour, tmp_path: Any
) -> None:
    queue, issuer = sdk.queue(), sdk.namespace.token_issuer
    clients = [
        sdk.connect(sdk.namespace.connection_string),
        connect(sdk, token=issuer.issue(Role.OWNER, audience="https://vault.azure.net")),
        connect(sdk, token=issuer.issue(Role.OWNER, lifetime_s=-GRACE_S - 5)),
        connect(sdk, token=TokenIssuer(tmp_path / "other.pem").issue(Role.OWNER)),
    ]
    senders = [sdk.sender(queue, client=client) for client in clients]
    errors = await asyncio.gather(
        *(sender.send_messages(ServiceBusMessage("x")) for sender in senders),
        return_exceptions=True,
    )
    await asyncio.gather(*(sdk.awaitable(client).close() for client in clients))

    assert [type(error) for error in errors] == [ServiceBusAuthenticationError] * 4
    assert sdk.stored_count(queue) == 0


@pytest.mark.rule("N3")
async def test_administration_requires_the_role_of_an_owner(sdk: Flavour) -> None:
    queue, host = sdk.queue(), f"localhost:{sdk.namespace.port}"
    for role in (Role.OWNER, Role.SENDER):
        issuer = sdk.namespace.token_issuer
        make = issuer.credential if sdk.name == "sync" else issuer.async_credential
        client = FLAVOURS[sdk.name][1](
            host, make(role), connection_verify=sdk.namespace.ca_file, retry_total=0
        )
        async with sdk.awaitable(client) as administration:
            if role is Role.OWNER:
                assert (await administration.get_queue(queue)).name == queue
            else:
                with pytest.raises((ClientAuthenticationError, HttpResponseError)) as error:
                    await administration.get_queue(queue)
                assert error.value.status_code == 401


@pytest.mark.rule("N3")
async def test_azure_identity_gets_tokens_from_the_emulator(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setenv("IDENTITY_ENDPOINT", namespace.identity_endpoint)
    monkeypatch.setenv("IDENTITY_HEADER", namespace.token_issuer.identity_header)
    sdk = Flavour("sync", namespace)
    queue = sdk.queue()
    with DefaultAzureCredential() as credential:
        host = f"localhost:{namespace.port}"
        client = sdk.connect_with(host, credential, use_tls=False)
        async with sdk.awaitable(client):
            await sdk.sender(queue, client=client).send_messages(ServiceBusMessage("x"))
    assert sdk.stored_count(queue) == 1
    await sdk.close()


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [(None, "?resource=x", 401), ("wrong", "?resource=x", 401), ("right", "", 400)],
)
async def test_identity_endpoint_refuses_other_requests(
    namespace: LocalNamespace, header: str | None, query: str, status: int
) -> None:
    request = urllib.request.Request(f"{namespace.identity_endpoint}{query}")
    if header is not None:
        secret = namespace.token_issuer.identity_header if header == "right" else header
        request.add_header("X-IDENTITY-HEADER", secret)
    with pytest.raises(urllib.error.HTTPError) as refused:
        await asyncio.to_thread(urllib.request.urlopen, request)
    with refused.value:
        assert refused.value.code == status
