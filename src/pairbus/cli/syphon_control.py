"""`pairbus syphon control`: pause a running syphon, and change its rates."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.cli.configuration_options import ConfigFile, PairingName
from pairbus.cli.console import consoles, print_error, print_json, print_warning
from pairbus.cli.default_paths import control_file as default_control_file
from pairbus.cli.pairing_options import AsJson, OptionalPrimary, PrimaryName
from pairbus.errors import ConfigurationError, PairbusError
from pairbus.servicebus.addresses import namespace_name
from pairbus.servicebus.namespace_access import NamespaceAccess, is_connection_string

DONE, USAGE_ERROR = 0, 2
EXAMPLE = "Example: pairbus syphon control {} --primary-name orders"

app = typer.Typer(
    help="Pause a running syphon, or change its rates.",
    epilog=EXAMPLE.format("pause"),
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Destination = Annotated[
    str | None,
    typer.Option("--destination", help="Apply to this queue or topic only.", show_default="all"),
]
ControlPath = Annotated[
    Path | None,
    typer.Option(
        "--control-file",
        dir_okay=False,
        help="Control file of the syphon, as in its option --control-file.",
        show_default="$XDG_STATE_HOME/pairbus/control/PRIMARY-NAME.json",
    ),
]


@app.command(epilog=EXAMPLE.format("pause"))
def pause(
    destination: Destination = None,
    primary: OptionalPrimary = None,
    primary_name: PrimaryName = None,
    config: ConfigFile = None,
    pairing: PairingName = None,
    control_file: ControlPath = None,
) -> None:
    """Pause the syphon on this machine, or one destination.

    It takes effect within a second; the current micro-batch is finished. A pause survives a restart
    of the syphon.

    Exit status: 0 done; 2 invalid option.
    """
    _update(primary, primary_name, control_file, lambda control: control.pause(destination))


@app.command(epilog=EXAMPLE.format("resume"))
def resume(
    destination: Destination = None,
    primary: OptionalPrimary = None,
    primary_name: PrimaryName = None,
    config: ConfigFile = None,
    pairing: PairingName = None,
    control_file: ControlPath = None,
) -> None:
    """Resume a paused syphon and all its destinations, or one destination.

    Exit status: 0 done; 2 invalid option.
    """
    _update(primary, primary_name, control_file, lambda control: control.resume(destination))


@app.command(epilog=EXAMPLE.format("rate 200"))
def rate(
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="Messages a second, or none for no limit here.")
    ],
    destination: Destination = None,
    primary: OptionalPrimary = None,
    primary_name: PrimaryName = None,
    config: ConfigFile = None,
    pairing: PairingName = None,
    control_file: ControlPath = None,
) -> None:
    """Limit the rate of the syphon, or of one destination, until it is changed again.

    The rate replaces --max-rate of the syphon. With none, --max-rate applies again.

    Exit status: 0 done; 2 invalid option.
    """
    _update(
        primary,
        primary_name,
        control_file,
        lambda control: control.set_max_rate(_parse_rate(rate), destination),
    )


@app.command(epilog=EXAMPLE.format("status"))
def status(
    primary: OptionalPrimary = None,
    primary_name: PrimaryName = None,
    config: ConfigFile = None,
    pairing: PairingName = None,
    control_file: ControlPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what was set, and if a syphon that uses it is running.

    Exit status: 0 done; 2 invalid option.
    """
    _update(primary, primary_name, control_file, None, as_json=as_json)


def _parse_rate(text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"The rate must be a number or none, not {text!r}.") from None


def _update(
    primary: str | None,
    primary_name: str | None,
    path: Path | None,
    change: Callable[[Control], Control] | None,
    *,
    as_json: bool = False,
) -> None:
    """Change the control file, if there is a change, and show its content."""
    err = consoles()[1]
    try:
        file = ControlFile(path or default_control_file(_name(primary, primary_name)))
        control = file.read() if change is None else file.update(change)
    except (PairbusError, OSError) as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc
    _show(file, control, as_json=as_json)


def _name(primary: str | None, primary_name: str | None) -> str:
    if primary_name is None and primary is not None:
        if is_connection_string(primary):
            primary = NamespaceAccess.from_connection_string(primary).host
        primary_name = namespace_name(primary)
    if primary_name is None:
        raise ConfigurationError(
            "The name of the primary is missing. Add --primary-name NAME, --pairing NAME or "
            "--control-file FILE."
        )
    return primary_name


def _show(file: ControlFile, control: Control, *, as_json: bool) -> None:
    out, err = consoles()
    running = file.is_in_use()
    if as_json:
        print_json({**asdict(control), "running": running, "control_file": str(file.path)})
        return
    for line in control.describe() or ["Not paused, and no rate is set here."]:
        out.print(line, markup=False)
    if not running:
        print_warning(
            err, f"No running syphon uses {file.path}. This applies when one is started with it."
        )
