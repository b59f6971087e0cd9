"""Service Bus connection strings."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pairbus.errors import ConfigurationError

_PARTS = (
    "Endpoint",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "SharedAccessSignature",
    "EntityPath",
    "UseDevelopmentEmulator",
)
_KNOWN = {name.lower() for name in _PARTS}


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """What a connection string says. Secrets are not shown by `repr`."""

    host: str
    port: int | None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    emulator: bool = False
    """`UseDevelopmentEmulator=true`: AMQP without TLS, to the host and port that are given."""

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        """Raises ConfigurationError, without the text: it holds a secret."""
        parts: dict[str, str] = {}
        for place, part in enumerate(text.split(";"), start=1):
            name, equals, value = part.partition("=")
            if not part.strip():
                continue
            if not equals or name.strip().lower() not in _KNOWN:
                raise ConfigurationError(
                    f"part {place} of the connection string is none of {'=, '.join(_PARTS)}=; it "
                    "looks like Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=…;"
                    "SharedAccessKey=…"
                )
            parts[name.strip().lower()] = value.strip()
        endpoint = parts.get("endpoint")
        if not endpoint:
            raise ConfigurationError("the connection string has no Endpoint=sb://…")
        try:
            url = urlsplit(endpoint)
            host, port = url.hostname, url.port
        except ValueError:
            raise _wrong_endpoint() from None  # what it quotes may be a key in the wrong place
        if url.scheme not in ("sb", "amqp", "amqps") or not host:
            raise _wrong_endpoint()
        key_name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
        if bool(key_name) != bool(key):
            raise ConfigurationError("SharedAccessKeyName and SharedAccessKey go together")
        if key and parts.get("sharedaccesssignature"):
            raise ConfigurationError("give a SharedAccessKey or a SharedAccessSignature, not both")
        return cls(
            host,
            port,
            key_name or None,
            key or None,
            parts.get("sharedaccesssignature") or None,
            parts.get("entitypath") or None,
            parts.get("usedevelopmentemulator", "").lower() == "true",
        )


def _wrong_endpoint() -> ConfigurationError:
    return ConfigurationError(
        "the connection string's Endpoint is not of the form sb://host[:port]/"
    )
