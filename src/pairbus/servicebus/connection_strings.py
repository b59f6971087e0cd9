"""Connection strings of Service Bus."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pairbus.errors import ConfigurationError

_FIELDS = (
    "Endpoint",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "SharedAccessSignature",
    "EntityPath",
    "UseDevelopmentEmulator",
)
_FIELD_NAMES = {name.lower() for name in _FIELDS}
_SCHEMES = ("sb", "amqp", "amqps")


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The fields of a connection string. `repr` does not show secrets."""

    host: str
    port: int | None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    emulator: bool = False
    """`UseDevelopmentEmulator=true`: connect without TLS, to exactly this host and port."""

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        """Parse a connection string. Raises ConfigurationError; its message never quotes the text,
        which holds a secret."""
        fields: dict[str, str] = {}
        for position, part in enumerate(text.split(";"), start=1):
            name, equals, value = part.partition("=")
            if not part.strip():
                continue
            if not equals or name.strip().lower() not in _FIELD_NAMES:
                raise ConfigurationError(
                    f"part {position} of the connection string is none of {'=, '.join(_FIELDS)}=; "
                    "a connection string looks like Endpoint=sb://NAME.servicebus.windows.net/;"
                    "SharedAccessKeyName=…;SharedAccessKey=…"
                )
            fields[name.strip().lower()] = value.strip()
        endpoint = fields.get("endpoint")
        if not endpoint:
            raise ConfigurationError("the connection string has no Endpoint=sb://…")
        try:
            url = urlsplit(endpoint)
            host, port = url.hostname, url.port
        except ValueError:
            # Not chained: the exception quotes the endpoint, which may be a misplaced key.
            raise _invalid_endpoint() from None
        if url.scheme not in _SCHEMES or not host:
            raise _invalid_endpoint()
        key_name, key = fields.get("sharedaccesskeyname"), fields.get("sharedaccesskey")
        if bool(key_name) != bool(key):
            raise ConfigurationError(
                "the connection string must have SharedAccessKeyName and SharedAccessKey together"
            )
        if key and fields.get("sharedaccesssignature"):
            raise ConfigurationError(
                "the connection string must have a SharedAccessKey or a SharedAccessSignature, not "
                "both"
            )
        return cls(
            host,
            port,
            key_name or None,
            key or None,
            fields.get("sharedaccesssignature") or None,
            fields.get("entitypath") or None,
            fields.get("usedevelopmentemulator", "").lower() == "true",
        )


def _invalid_endpoint() -> ConfigurationError:
    return ConfigurationError(
        "the connection string has an Endpoint that is not of the form sb://host[:port]/"
    )
