"""Service Bus connection strings."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pairbus.errors import ConfigurationError

_KNOWN = {
    "endpoint",
    "sharedaccesskeyname",
    "sharedaccesskey",
    "sharedaccesssignature",
    "entitypath",
    "usedevelopmentemulator",
}


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
        for part in filter(None, (piece.strip() for piece in text.strip().split(";"))):
            name, equals, value = part.partition("=")
            if not equals or name.strip().lower() not in _KNOWN:
                raise ConfigurationError(
                    f"a connection string has no part {name.strip()[:24]!r}; it looks like "
                    "Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=…;SharedAccessKey=…"
                )
            parts[name.strip().lower()] = value.strip()
        endpoint = parts.get("endpoint")
        if not endpoint:
            raise ConfigurationError("the connection string has no Endpoint=sb://…")
        try:
            url = urlsplit(endpoint)
            host, port = url.hostname, url.port
        except ValueError as exc:
            raise ConfigurationError(f"the connection string's endpoint is wrong: {exc}") from exc
        if url.scheme not in ("sb", "amqp", "amqps") or not host:
            raise ConfigurationError(f"the endpoint {endpoint!r} is not of the form sb://host[:port]/")
        key_name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
        if bool(key_name) != bool(key):
            raise ConfigurationError("SharedAccessKeyName and SharedAccessKey go together")
        return cls(
            host,
            port,
            key_name or None,
            key or None,
            parts.get("sharedaccesssignature") or None,
            parts.get("entitypath") or None,
            parts.get("usedevelopmentemulator", "").lower() == "true",
        )
