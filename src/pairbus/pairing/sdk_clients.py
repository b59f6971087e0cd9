"""All access to private names of clients of the Azure SDK, which hold their settings.

The SDK has no public way to read the settings of a client, or to create a sender that does not
retry. Our administration client needs the settings, to connect as the SDK does.
"""

import asyncio
import inspect
import ssl
from collections.abc import Iterable
from copy import copy
from typing import Any, TypeAlias

import azure.servicebus.aio
import certifi
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, TransportType

from pairbus.pairing.sdk import require
from pairbus.servicebus.addresses import split_host
from pairbus.servicebus.administration import AdministrationOptions
from pairbus.servicebus.http_transport import Proxy
from pairbus.servicebus.tokens import (
    JWT_TYPE,
    SAS_TYPE,
    SCOPE,
    SharedAccessKey,
    SharedAccessSignature,
    Token,
)

SdkClient: TypeAlias = ServiceBusClient | azure.servicebus.aio.ServiceBusClient

REQUEST_TIMEOUT_S = 10.0
"""The longest time of one request to the administration API."""


def check_client(client: SdkClient) -> None:
    """Raise ConfigurationError if a client lacks a private name that pairbus uses."""
    require(client, "_config", "_credential", "_ssl_context", "_connection_verify")
    require(client, "_custom_endpoint_address", "_entity_name", "_handlers")
    require(client._config, "use_tls", "transport_type", "ssl_context", "connection_verify")
    require(client._config, "retry_total", "http_proxy")


def credential_of(client: SdkClient) -> Any:
    """Return the credential of a client."""
    return client._credential


def connection_string_credential_of(client: SdkClient) -> tuple[str, str] | str | None:
    """Return the key name and key, or the shared access signature, of a client that was created
    from a connection string; None for other clients."""
    credential: Any = client._credential
    if not _is_from_connection_string(credential):
        return None
    if hasattr(credential, "policy"):
        return credential.policy, credential.key
    return str(credential.token)


def _is_from_connection_string(credential: Any) -> bool:
    # The SDK itself recognizes its credentials of connection strings by this attribute.
    return bool(getattr(credential, "token_type", b"") == SAS_TYPE.encode())


def ssl_context_of(client: SdkClient) -> ssl.SSLContext | None:
    """Return the SSL context of a client."""
    return client._ssl_context


def ca_file_of(client: SdkClient) -> str | None:
    """Return the CA file of a client."""
    return client._connection_verify


def custom_endpoint_of(client: SdkClient) -> str | None:
    """Return the custom endpoint address of a client."""
    return client._custom_endpoint_address


def entity_path_of(client: SdkClient) -> str | None:
    """Return the EntityPath of the connection string of a client."""
    return client._entity_name


def uses_tls(client: SdkClient) -> bool:
    """Return whether a client connects with TLS."""
    return bool(client._config.use_tls)


def uses_websockets(client: SdkClient) -> bool:
    """Return whether a client speaks AMQP over WebSockets, as it always does through a proxy."""
    config = client._config
    return config.transport_type is not TransportType.Amqp or bool(config.http_proxy)


def proxy_of(client: SdkClient) -> Proxy | None:
    """Return the HTTP proxy of a client."""
    proxy = client._config.http_proxy
    if not proxy:
        return None
    return Proxy(
        host=proxy["proxy_hostname"],
        port=int(proxy["proxy_port"]),
        username=proxy.get("username"),
        password=proxy.get("password"),
    )


def without_retries(client: Any) -> Any:
    """Return a copy of a client whose senders and receivers do not retry."""
    twin = copy(client)
    twin._config = copy(client._config)
    twin._config.retry_total = 0
    return twin


def forget_links(client: SdkClient, links: Iterable[Any]) -> None:
    """Let `close` of a client leave these senders and receivers alone."""
    client._handlers.difference_update(links)


# Administration.


def administration_options(
    client: SdkClient,
    *,
    timeout_s: float = REQUEST_TIMEOUT_S,
    loop: asyncio.AbstractEventLoop | None = None,
) -> AdministrationOptions:
    """Return the options with which our administration client connects to the namespace of an SDK
    client: with its credential, TLS settings, proxy and custom endpoint. An asynchronous credential
    runs in `loop`, and the administration client in another thread."""
    host, port = split_host(client.fully_qualified_namespace)
    return AdministrationOptions(
        host=host,
        port=port,
        tls=uses_tls(client),
        ca_file=ca_file_of(client) or certifi.where(),
        ssl_context=ssl_context_of(client),
        endpoint=custom_endpoint_of(client),
        proxy=proxy_of(client),
        tokens=_CredentialTokens(client._credential, timeout_s, loop),
        timeout_s=timeout_s,
    )


class _CredentialTokens:
    """The tokens of the credential of an SDK client. The credential is read for each token, so that
    a key or signature that the application replaced is used at once."""

    def __init__(
        self, credential: Any, timeout_s: float, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._credential = credential
        self._blocking = BlockingCredential(credential, timeout_s, loop)

    def token(self, audience: str, now: float) -> Token:
        credential = self._credential
        if isinstance(credential, AzureNamedKeyCredential):
            return SharedAccessKey(*credential.named_key).token(audience, now)
        if isinstance(credential, AzureSasCredential):
            return SharedAccessSignature(credential.signature).token(audience, now)
        if _is_from_connection_string(credential):
            return self._get_token(audience, SAS_TYPE)
        return self._get_token(SCOPE, JWT_TYPE)

    def _get_token(self, scope: str, kind: str) -> Token:
        access = self._blocking.get_token(scope)
        return Token(access.token, kind, float(access.expires_on))


class BlockingCredential:
    """The credential of an SDK client, for calls in another thread. An asynchronous credential runs
    in the event loop of its client."""

    def __init__(
        self, credential: Any, timeout_s: float, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._credential = credential
        self._timeout_s = timeout_s
        self._loop = loop

    def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return an access token."""
        access = self._credential.get_token(*scopes, **options)
        if not inspect.iscoroutine(access):
            return access
        assert self._loop is not None, "an asynchronous credential needs an event loop"
        try:
            future = asyncio.run_coroutine_threadsafe(access, self._loop)
        except RuntimeError:  # the loop is closed
            access.close()
            raise
        try:
            return future.result(self._timeout_s)
        finally:
            future.cancel()  # after a timeout; no effect on a result
