"""The configuration file: the pairings that commands work on, as TOML.

    [pairings.orders]
    primary = "contoso-orders.servicebus.windows.net"
    secondary_env = "ORDERS_SECONDARY"

A section holds a namespace, or the name of the environment variable that holds it, so that no
secret has to be in the file. Every error names the file, the section and the key.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from pairbus.amqp.client.options import TransportKind
from pairbus.errors import ConfigurationError

DEFAULT_NAME: Final = "pairbus.toml"
"""The name of the file in the working directory that is read without being asked for."""
OPTIONS: Final = (
    "primary",
    "secondary",
    "primary_name",
    "backlog_queues",
    "transport",
    "proxy",
    "ca_file",
    "max_rate",
)
"""The keys that are options of commands too."""
_FROM_ENVIRONMENT: Final = ("primary", "secondary", "proxy")
_SECTION: Final = "pairings"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingSection:
    """One pairing of the file. None stands for a key that is missing."""

    name: str
    location: str
    """The file and the section, for errors."""
    primary: str | None = field(default=None, repr=False)
    primary_env: str | None = None
    """The environment variable that holds the primary."""
    secondary: str | None = field(default=None, repr=False)
    secondary_env: str | None = None
    primary_name: str | None = None
    backlog_queues: int | None = None
    transport: str | None = None
    proxy: str | None = field(default=None, repr=False)
    proxy_env: str | None = None
    ca_file: Path | None = None
    """An absolute path. In the file it is relative to the folder of the file."""
    max_rate: float | None = None
    max_rates: Mapping[str, float] = field(default_factory=dict)
    """Messages a second, by destination."""

    def value(self, name: str, environment: Mapping[str, str]) -> Any:
        """Return a value by the name of the option of commands, or None if it is not set. Raises
        ConfigurationError if it is in a variable that is not set."""
        if name in _FROM_ENVIRONMENT:
            return self._secret(name, environment)
        return getattr(self, name)

    def values(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the values that are set, by the names of the options of commands. Raises
        ConfigurationError."""
        values = {name: self.value(name, environment) for name in OPTIONS}
        return {name: value for name, value in values.items() if value is not None}

    def _secret(self, key: str, environment: Mapping[str, str]) -> str | None:
        value: str | None = getattr(self, key)
        variable: str | None = getattr(self, f"{key}_env")
        if variable is None:
            return value
        if not environment.get(variable):
            raise ConfigurationError(
                f"{self.location} {key}_env: the environment variable {variable} is not set."
            )
        return environment[variable]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of a configuration file."""

    path: Path
    pairings: Mapping[str, PairingSection]

    def pairing(self, name: str) -> PairingSection:
        """Return a pairing by its name. Raises ConfigurationError if the file does not have it."""
        if name not in self.pairings:
            raise ConfigurationError(
                f"{self.path} has no section [{_SECTION}.{name}]. It has: "
                f"{', '.join(self.pairings)}."
            )
        return self.pairings[name]


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file. Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {reason}.") from exc
    return parse_configuration(text, path)


def parse_configuration(text: str, path: Path) -> Configuration:
    """Return the configuration of a file with this text. Raises ConfigurationError."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"{path} is not valid TOML: {exc}.") from exc
    for key in values:
        if key != _SECTION:
            raise ConfigurationError(
                f"{path}: {key!r} is not known. Use a section [{_SECTION}.NAME] for each pairing."
            )
    sections = values.get(_SECTION)
    if not isinstance(sections, dict) or not sections:
        raise ConfigurationError(f"{path} has no section [{_SECTION}.NAME]. Add one.")
    return Configuration(
        path, {name: _parse_section(path, name, section) for name, section in sections.items()}
    )


def _parse_section(path: Path, name: str, section: Any) -> PairingSection:
    location = f"{path}, [{_SECTION}.{name}]"
    if not isinstance(section, dict):
        raise ConfigurationError(
            f"{path}, [{_SECTION}] {name}: must be a section [{_SECTION}.{name}]."
        )
    values: dict[str, Any] = {}
    for key, value in section.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"{location} {key}: this key is not known. The keys are {', '.join(_KEYS)}."
            )
        is_valid, description = _KEYS[key]
        if not is_valid(value):
            # The value is not part of the error: it may be a secret.
            raise ConfigurationError(f"{location} {key}: must be {description}.")
        values[key] = value
    for key in _FROM_ENVIRONMENT:
        if key in values and f"{key}_env" in values:
            raise ConfigurationError(f"{location} {key}: use {key} or {key}_env, not both.")
    if "ca_file" in values:
        values["ca_file"] = path.absolute().parent / values["ca_file"]
        if not values["ca_file"].is_file():
            raise ConfigurationError(
                f"{location} ca_file: the file {values['ca_file']} does not exist."
            )
    return PairingSection(name=name, location=location, **values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_rates(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_rate, value.values()))


def _is_transport(value: Any) -> bool:
    return value in get_args(TransportKind)


_NAMESPACE = "a connection string or a host"
_VARIABLE = "the name of an environment variable"
_KEYS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "primary": (_is_text, _NAMESPACE),
    "primary_env": (_is_text, _VARIABLE),
    "secondary": (_is_text, _NAMESPACE),
    "secondary_env": (_is_text, _VARIABLE),
    "primary_name": (_is_text, "a name"),
    "backlog_queues": (_is_count, "a whole number of at least 1"),
    "transport": (_is_transport, " or ".join(get_args(TransportKind))),
    "proxy": (_is_text, "a URL"),
    "proxy_env": (_is_text, _VARIABLE),
    "ca_file": (_is_text, "the path of a file"),
    "max_rate": (_is_rate, "a number of messages a second, above 0"),
    "max_rates": (_are_rates, "a table of destinations and messages a second, above 0"),
}
