"""Options of `format("servicebus")`. The page Service Bus connector for Spark of the
documentation describes them."""

import os
from collections.abc import Mapping

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.client.default_credential import default_tokens, require_azure_identity
from pairbus.errors import ConfigurationError
from pairbus.servicebus.namespace_access import NamespaceAccess
from pairbus.servicebus.proxy import Proxy

_SPARK_OPTIONS = ("checkpointlocation", "queryname")
"""Options of Spark that it passes to every data source."""


class ConnectorOptions:
    """The options of one query. Each method raises ConfigurationError for a missing or invalid
    option."""

    KNOWN = (
        "connectionString",
        "connectionStringEnv",
        "host",
        "caFile",
        "transport",
        "proxy",
        "proxyEnv",
        "queue",
        "maxMessages",
        "maxMessagesPerTrigger",
        "partitions",
        "pollSeconds",
        "path",
        "settleConnectionString",
        "settleConnectionStringEnv",
        "settleHost",
    )

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in self.KNOWN}
        for name in self._options:
            if name not in known and name not in _SPARK_OPTIONS:
                raise ConfigurationError(
                    f"Format servicebus has no option {name!r}. Its options are "
                    f"{', '.join(self.KNOWN)}."
                )

    def text(self, name: str) -> str | None:
        """Return an option, or None if it is not set."""
        return self._options.get(name.lower())

    def number(self, name: str) -> int | None:
        """Return an option that is a positive number, or None if it is not set."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            raise ConfigurationError(f"Option {name} must be a number of at least 1, not {text!r}.")
        return int(text)

    def queues(self) -> tuple[str, ...]:
        """Return the queues to read."""
        names = (name.strip() for name in (self.text("queue") or "").split(","))
        queues = tuple(name for name in names if name)
        if not queues:
            raise ConfigurationError(
                "Format servicebus needs the option queue: one path, or several with commas."
            )
        return queues

    def client(self) -> ClientOptions:
        """Return the namespace to read from or to send to."""
        options = self._client("connectionString", "host")
        if options is None:
            raise ConfigurationError(
                "Format servicebus needs the option connectionString, or connectionStringEnv with "
                "the name of an environment variable that holds it, or host."
            )
        return options

    def settle_client(self) -> ClientOptions | None:
        """Return the namespace that holds the locks of the rows. None: rows are not settled."""
        return self._client("settleConnectionString", "settleHost")

    def _client(self, name: str, host_name: str) -> ClientOptions | None:
        text, host = self._secret(name), self.text(host_name)
        if text is not None and host is not None:
            raise ConfigurationError(f"Use one of the options {name} and {host_name}, not both.")
        if text is not None:
            access = NamespaceAccess.from_connection_string(text)
        elif host is not None:
            require_azure_identity()
            # Each worker creates the credential and renews its tokens.
            access = NamespaceAccess.from_host(host, default_tokens())
        else:
            return None
        proxy = self._secret("proxy")
        return ClientOptions.from_access(
            access,
            ca_file=self.text("caFile"),
            transport=self.text("transport") or "tcp",
            proxy=None if proxy is None else Proxy.from_url(proxy),
        )

    def _secret(self, name: str) -> str | None:
        """Return an option, or the environment variable that another option names."""
        text, variable = self.text(name), self.text(f"{name}Env")
        if text is None and variable is not None:
            text = os.environ.get(variable)
            if text is None:
                raise ConfigurationError(f"The environment variable {variable} is not set.")
        return text
