"""What a syphon needs to know of the two clients of a pairing."""

import inspect
import pickle
from functools import partial
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType

from pairbus.amqp.client import ClientOptions
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.administration import is_signed
from pairbus.pairing.namespaces import SdkClient
from pairbus.servicebus.addresses import split_host
from pairbus.servicebus.tokens import (
    Credential,
    SharedAccessKey,
    SharedAccessSignature,
    TokenSource,
)

INSTEAD = "set syphon_options to a pairbus.syphon.SyphonOptions, or run a syphon elsewhere"


def syphon_options(
    primary: SdkClient, secondary: SdkClient, options: SendAvailabilityOptions, queues: Any
) -> Any:
    """A `SyphonOptions` for two clients of the SDK. Raises ConfigurationError where Spark is not
    installed, or where something of a client cannot be sent to Spark's workers."""
    try:
        from pairbus.syphon.options import SyphonOptions
        from pairbus.syphon.query import Syphon  # noqa: F401  to learn now that Spark is missing
    except ImportError as exc:
        raise ConfigurationError(
            f"enable_syphon needs Spark: pip install 'pairbus[spark]', and Java 17 ({exc})"
        ) from exc
    given = options.syphon_options
    if given is not None:
        if not isinstance(given, SyphonOptions):
            raise ConfigurationError(
                f"syphon_options is a pairbus.syphon.SyphonOptions, not {type(given).__name__}"
            )
        return given
    return SyphonOptions(
        primary=client_options(primary, "primary"),
        secondary=client_options(secondary, "secondary"),
        queues=tuple(queues),
    )


def client_options(client: SdkClient, which: str) -> ClientOptions:
    """How our AMQP client reaches the namespace of an SDK client. Raises ConfigurationError."""
    if client._ssl_context is not None:
        raise _cannot(which, "its SSL context cannot be sent to Spark's workers")
    if client._config.transport_type is not TransportType.Amqp or client._config.http_proxy:
        raise _cannot(which, "the syphon speaks AMQP over TCP, without a proxy")
    host, port = split_host(client.fully_qualified_namespace)
    dial = None
    if client._custom_endpoint_address:
        dial, port = split_host(client._custom_endpoint_address)
    return ClientOptions(
        host=host,
        port=port,
        endpoint_host=dial,
        tls=bool(client._config.use_tls),
        ca_file=client._connection_verify,
        tokens=_tokens(client, which),
    )


def _tokens(client: SdkClient, which: str) -> TokenSource:
    credential: Any = client._credential
    if isinstance(credential, AzureNamedKeyCredential):
        return SharedAccessKey(*credential.named_key)
    if isinstance(credential, AzureSasCredential):
        return SharedAccessSignature(credential.signature)
    if is_signed(client):  # of a connection string
        if hasattr(credential, "policy"):
            return SharedAccessKey(credential.policy, credential.key)
        return SharedAccessSignature(credential.token)
    if inspect.iscoroutinefunction(getattr(credential, "get_token", None)):
        raise _cannot(which, "its credential is for an event loop, and Spark's workers have none")
    try:
        pickle.dumps(credential)
    except Exception as exc:  # pickle raises whatever the object does
        raise _cannot(which, f"its credential cannot be sent to Spark's workers ({exc})") from exc
    return Credential(partial(_same, credential))


def _same(credential: Any) -> Any:
    return credential


def _cannot(which: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"enable_syphon: the client of the {which}: {why}; {INSTEAD}")
