"""Options that select a pairing of a configuration file. Its values are defaults of the command:
an option of the command line comes first, then its environment variable, then the file."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from pairbus.backlog.configuration import (
    DEFAULT_NAME,
    OPTIONS,
    Configuration,
    PairingSection,
    load_configuration,
)
from pairbus.cli.console import consoles, print_error
from pairbus.errors import ConfigurationError

USAGE_ERROR = 2
_SETTINGS: Final = "pairbus.configuration_options"
"""The key of the values in the context of a command."""
_OF_A_DRILL: Final = ("primary", "secondary", "transport", "proxy", "ca_file")

Apply = Callable[[typer.Context, Configuration | None, str | None], None]


def loaded_configuration(context: typer.Context) -> Configuration | None:
    """Return the configuration file of a command, or None if it has none."""
    found: Configuration | None = context.meta.get(_SETTINGS, {}).get("configuration")
    return found


def _use_one(
    context: typer.Context, configuration: Configuration | None, pairing: str | None
) -> None:
    """Take the defaults from the selected pairing, or from the only one of the file."""
    section = _selected(configuration, pairing)
    if section is not None:
        context.default_map = _defaults(section)
    elif configuration is not None:
        # Missing namespaces are the reason to select a pairing. Some commands need no primary.
        names = [param.name for param in context.command.params if param.required]
        needed = {"secondary", *names} & {"primary", "secondary"}
        context.default_map = dict.fromkeys(needed, partial(_select_one, configuration))


def _use_all(
    context: typer.Context, configuration: Configuration | None, pairing: str | None
) -> None:
    """As `_use_one`, but leave it to the command to use several pairings, or none."""
    section = _selected(configuration, pairing)
    if section is not None:
        context.default_map = _defaults(section)
        context.meta[_SETTINGS]["section"] = section


def _use_named(
    context: typer.Context, configuration: Configuration | None, pairing: str | None
) -> None:
    """Take the defaults of a drill from a pairing only if it is named: a drill sends messages and
    causes an outage."""
    if pairing is not None:
        section = _selected(configuration, pairing)
        assert section is not None
        defaults = _defaults(section)
        context.default_map = {name: defaults[name] for name in _OF_A_DRILL if name in defaults}


def selected_section(context: typer.Context) -> PairingSection | None:
    """Return the section that the values of a command come from, or None."""
    section: PairingSection | None = context.meta.get(_SETTINGS, {}).get("section")
    return section


def _selected(configuration: Configuration | None, pairing: str | None) -> PairingSection | None:
    if pairing is not None:
        if configuration is None:
            raise ConfigurationError(
                f"--pairing needs a configuration file. Add --config FILE, or create {DEFAULT_NAME}"
                " in this folder."
            )
        return configuration.pairing(pairing)
    if configuration is None or len(configuration.pairings) > 1:
        return None
    return next(iter(configuration.pairings.values()))


def _defaults(section: PairingSection) -> dict[str, Any]:
    """Return the defaults by parameter. A value is resolved when the command needs it."""
    return {name: partial(_resolve, section, name) for name in OPTIONS if _is_set(section, name)}


def _is_set(section: PairingSection, name: str) -> bool:
    return getattr(section, name) is not None or getattr(section, f"{name}_env", None) is not None


def _resolve(section: PairingSection, name: str) -> Any:
    try:
        return section.value(name, os.environ)
    except ConfigurationError as exc:
        _exit(exc)


def _select_one(configuration: Configuration) -> NoReturn:
    _exit(
        f"{configuration.path} has several pairings: {', '.join(configuration.pairings)}. Select "
        "one with --pairing NAME."
    )


def _exit(error: object) -> NoReturn:
    print_error(consoles()[1], error)
    raise typer.Exit(USAGE_ERROR)


def _callback(name: str, apply: Apply) -> Callable[[typer.Context, Any], Any]:
    """Return the callback of one of the two options. The last one of them applies both."""

    def callback(context: typer.Context, value: Any) -> Any:
        values: dict[str, Any] = context.meta.setdefault(_SETTINGS, {})
        values[name] = value
        if "config" in values and "pairing" in values and not context.resilient_parsing:
            try:
                values["configuration"] = _load(values["config"])
                apply(context, values["configuration"], values["pairing"])
            except ConfigurationError as exc:
                _exit(exc)
        return value

    return callback


def _load(path: Path | None) -> Configuration | None:
    if path is None:
        path = Path(DEFAULT_NAME)
        if not path.exists():
            return None
    return load_configuration(path)


def _options(apply: Apply, help_of_pairing: str) -> Mapping[str, Any]:
    return {
        "config": typer.Option(
            "--config",
            envvar="PAIRBUS_CONFIG",
            metavar="FILE",
            is_eager=True,
            callback=_callback("config", apply),
            help="Configuration file with the pairings. Options and environment variables come "
            "before its values.",
            show_envvar=True,
            show_default=f"{DEFAULT_NAME}, if it exists",
        ),
        "pairing": typer.Option(
            "--pairing",
            metavar="NAME",
            is_eager=True,
            callback=_callback("pairing", apply),
            help=help_of_pairing,
        ),
    }


_ONE = _options(_use_one, "Name of a pairing in the configuration file.")
_ALL = _options(
    _use_all, "Name of a pairing in the configuration file. By default all are drained."
)
_OPTIONAL = _options(_use_all, "Name of a pairing in the configuration file.")
_NAMED = _options(
    _use_named, "Name of a pairing in the configuration file whose namespaces the drill uses."
)

ConfigFile = Annotated[Path | None, _ONE["config"]]
PairingName = Annotated[str | None, _ONE["pairing"]]
ConfigFileOfAll = Annotated[Path | None, _ALL["config"]]
PairingNameOfAll = Annotated[str | None, _ALL["pairing"]]
OptionalConfigFile = Annotated[Path | None, _OPTIONAL["config"]]
OptionalPairingName = Annotated[str | None, _OPTIONAL["pairing"]]
ConfigFileOfDrill = Annotated[Path | None, _NAMED["config"]]
PairingNameOfDrill = Annotated[str | None, _NAMED["pairing"]]
