"""The asynchronous administration client for the namespace of an SDK client: see
`pairbus.pairing.administration`."""

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.servicebus.aio import ServiceBusClient

from pairbus.errors import ConfigurationError
from pairbus.pairing.administration import (
    OPERATION_TIMEOUT_S,
    HttpRoute,
    audience_of,
    fresh,
    is_signed,
    proxies_of,
    signature_of,
    telling,
    transport_options,
)

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient


def administration_of(
    client: ServiceBusClient,
    *,
    operation_timeout_s: float = OPERATION_TIMEOUT_S,
    tell: Callable[[str, bool], None] | None = None,
) -> "ServiceBusAdministrationClient":
    """The same as `pairbus.pairing.administration.administration_of`, for the asynchronous SDK.
    Raises ConfigurationError where aiohttp is not installed: the SDK needs it for this alone."""
    try:
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.servicebus.aio.management import ServiceBusAdministrationClient
    except ImportError as exc:
        raise ConfigurationError(
            "the asynchronous administration client of the SDK needs aiohttp: install it, or make "
            "the backlog queues yourself and pair with create_backlog=False"
        ) from exc
    options = transport_options(client, operation_timeout_s)
    transport = _AsyncTransport(
        AioHttpTransport(**options), HttpRoute.of(client), client._ssl_context, tell
    )
    credential: Any = _AsyncSigning(client) if is_signed(client) else client._credential
    return ServiceBusAdministrationClient(
        client.fully_qualified_namespace,
        credential,
        transport=transport,
        proxies=proxies_of(client),
        retry_total=0,
    )


class _AsyncSigning:
    """Signatures in the guise of a bearer's tokens."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._credential: Any = client._credential
        self._audience = audience_of(client)

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        signature = signature_of(self._credential, self._audience)
        if signature is None:
            signature = (await self._credential.get_token(self._audience)).token
        return fresh(signature)


class _AsyncTransport(AsyncHttpTransport[Any, Any]):
    """Around azure-core's, which cannot be a base class here: it needs aiohttp when it is named."""

    def __init__(
        self,
        inner: Any,
        route: HttpRoute,
        context: ssl.SSLContext | None,
        tell: Callable[[str, bool], None] | None,
    ) -> None:
        self._tell = tell
        self._inner = inner
        self._route = route
        self._context = context

    async def send(self, request: Any, **options: Any) -> Any:
        self._route.apply(request)
        if self._context is not None:
            options["ssl"] = self._context
        with telling(self._tell, request):
            return await self._inner.send(request, **options)

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def __aenter__(self) -> "_AsyncTransport":
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
