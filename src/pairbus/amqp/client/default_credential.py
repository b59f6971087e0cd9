"""The default credential of azure-identity, which is an optional dependency."""

from importlib.util import find_spec

from pairbus.errors import ConfigurationError
from pairbus.servicebus.tokens import Credential, TokenCredential

ENTRA_HINT = (
    "A host instead of a connection string needs azure-identity. Run: pip install 'pairbus[entra]'"
)


def default_credential() -> TokenCredential:
    """Return `DefaultAzureCredential()`, which contacts nothing before the first token is needed.
    Raises ConfigurationError if azure-identity is not installed."""
    require_azure_identity()
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


def default_tokens() -> Credential:
    """Return the tokens of the default credential, which each process creates for itself. All of
    them are equal, so that a Spark worker reuses its connections."""
    return Credential(default_credential, _key="default")


def require_azure_identity() -> None:
    """Raise ConfigurationError if azure-identity is not installed."""
    try:
        missing = find_spec("azure.identity") is None
    except ModuleNotFoundError:  # nothing of azure is installed
        missing = True
    if missing:
        raise ConfigurationError(ENTRA_HINT)
