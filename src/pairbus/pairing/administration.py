"""The administration client for the namespace of an SDK client, whatever its credential.

The SDK's administration client signs with the key of a connection string, and takes any other
credential for one that gives bearer tokens: it cannot use a named key, and sends a shared access
signature as `Bearer SharedAccessSignature …`, which the service refuses. It knows no custom
endpoint, and always speaks TLS. All that is mended below it, in a transport of ours, because
`transport` is a public option; its policies can only be replaced as a whole.
"""

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import requests
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline.transport import HttpTransport, RequestsTransport
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient
from requests.adapters import HTTPAdapter

from pairbus.pairing.sdk import SdkClient
from pairbus.servicebus.addresses import AMQP_PORT, HTTPS_PORT, split_host
from pairbus.servicebus.tokens import SAS_TYPE, sign_token

OPERATION_TIMEOUT_S = 10.0
_TOKEN_LIFETIME_S = 3600


def administration_of(
    client: ServiceBusClient,
    *,
    operation_timeout_s: float = OPERATION_TIMEOUT_S,
    tell: Callable[[str, bool], None] | None = None,
) -> ServiceBusAdministrationClient:
    """An administration client with the credential, the CA or SSL context, the proxy and the custom
    endpoint of a client. Close it; the client and its credential stay open.

    Connecting and each wait for an answer take at most `operation_timeout_s`; nothing is retried. A
    client without TLS (`UseDevelopmentEmulator=true`) is administered in plain HTTP, on the port
    where it speaks AMQP. `tell` is called after each request, with the path that it was about, and
    whether it was answered.
    """
    options = transport_options(client, operation_timeout_s)
    if client._ssl_context is not None:
        options["session"] = _session(client._ssl_context, use_env=options["use_env_settings"])
    transport = _Transport(RequestsTransport(**options), HttpRoute.of(client), tell)
    credential: Any = _Signing(client) if is_signed(client) else client._credential
    return ServiceBusAdministrationClient(
        client.fully_qualified_namespace,
        credential,
        transport=transport,
        proxies=proxies_of(client),
        retry_total=0,
    )


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """The address and the authorization scheme of requests."""

    scheme: str
    netloc: str
    host: str | None
    """The Host header, where it is not `netloc`: through a custom endpoint it is the namespace, as
    it is in AMQP."""
    signed: bool

    @classmethod
    def of(cls, client: SdkClient) -> "HttpRoute":
        plain = not client._config.use_tls
        namespace, endpoint = client.fully_qualified_namespace, client._custom_endpoint_address
        host, port = split_host(endpoint or namespace)
        default = AMQP_PORT if plain and not endpoint else HTTPS_PORT
        netloc = f"[{host}]" if ":" in host else host
        return cls(
            "http" if plain else "https",
            f"{netloc}:{default if port is None else port}",
            namespace if endpoint else None,
            is_signed(client),
        )

    def apply(self, request: Any) -> None:
        """Change a request of azure-core. A second time changes nothing."""
        parts = urlsplit(request.url)
        request.url = urlunsplit((self.scheme, self.netloc, parts.path, parts.query, ""))
        if self.host is not None:
            request.headers["Host"] = self.host
        if self.signed:
            token = request.headers["Authorization"]
            request.headers["Authorization"] = token.removeprefix("Bearer ")


def is_signed(client: SdkClient) -> bool:
    """Return whether the credential provides shared access signatures, not Entra ID tokens."""
    credential: Any = client._credential
    if isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
        return True
    # Connection strings, with a key or a signature: the SDK tells them apart by this, too.
    return bool(getattr(credential, "token_type", b"") == SAS_TYPE.encode())


def audience_of(client: SdkClient) -> str:
    return f"https://{client.fully_qualified_namespace}"


def signature_of(credential: Any, audience: str) -> str | None:
    """The signature that azure-core's credentials give; None for other credentials. Keys and
    signatures can be replaced in them while they are in use."""
    if isinstance(credential, AzureSasCredential):
        return credential.signature
    if isinstance(credential, AzureNamedKeyCredential):
        name, key = credential.named_key
        return sign_token(audience, name, key, int(time.time()) + _TOKEN_LIFETIME_S)
    return None


def fresh(signature: str) -> AccessToken:
    """A token that is asked for anew with every request: making one costs nothing, and a key that
    was replaced counts at once."""
    return AccessToken(signature, 0)


def transport_options(client: SdkClient, operation_timeout_s: float) -> dict[str, Any]:
    verify = client._connection_verify
    return {
        "connection_timeout": operation_timeout_s,
        "read_timeout": operation_timeout_s,
        "connection_verify": True if verify is None else verify,
        # AMQP without TLS is for this machine or the next: it is not sent through a proxy either.
        "use_env_settings": bool(client._config.use_tls),
    }


def proxies_of(client: SdkClient) -> dict[str, str] | None:
    """The client's proxy as azure-core takes it."""
    proxy = client._config.http_proxy
    if not proxy:
        return None
    who = ""
    if proxy.get("username"):
        who = f"{quote(proxy['username'], '')}:{quote(proxy.get('password') or '', '')}@"
    address = f"http://{who}{proxy['proxy_hostname']}:{proxy['proxy_port']}"
    return {"http": address, "https": address}


class _Signing:
    """Signatures in the guise of a bearer's tokens."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._credential: Any = client._credential
        self._audience = audience_of(client)

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        signature = signature_of(self._credential, self._audience)
        if signature is None:
            signature = self._credential.get_token(self._audience).token
        return fresh(signature)


@contextmanager
def telling(tell: Callable[[str, bool], None] | None, request: Any) -> Iterator[None]:
    """Say which path a request was about, and whether it was answered."""
    answered = False
    try:
        yield
        answered = True
    finally:
        if tell is not None:
            tell(unquote(urlsplit(request.url).path.strip("/")), answered)


class _Transport(HttpTransport[Any, Any]):
    """Around azure-core's, on another route."""

    def __init__(
        self, inner: Any, route: HttpRoute, tell: Callable[[str, bool], None] | None
    ) -> None:
        self._inner = inner
        self._route = route
        self._tell = tell

    def send(self, request: Any, **options: Any) -> Any:
        self._route.apply(request)
        with telling(self._tell, request):
            return self._inner.send(request, **options)

    def open(self) -> None:
        self._inner.open()

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> "_Transport":
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _session(context: ssl.SSLContext, *, use_env: bool) -> requests.Session:
    session = requests.Session()
    session.trust_env = use_env
    session.mount("https://", _ContextAdapter(context))
    return session


class _ContextAdapter(HTTPAdapter):
    """An adapter that uses an SSL context unchanged: requests would load its own CAs into it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **options)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **options)

    def build_connection_pool_key_attributes(self, *args: Any, **options: Any) -> Any:
        host, _ = super().build_connection_pool_key_attributes(*args, **options)
        return host, {}

    def cert_verify(self, *args: Any, **options: Any) -> None:
        """The context does."""
