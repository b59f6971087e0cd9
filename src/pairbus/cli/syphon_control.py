"""`pairbus syphon control`: pause a running syphon, and change its rates."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.cli.configuration_options import ConfigFile, PairingName
from pairbus.cli.console import consoles, print_error, print_json, print_warning
from pairbus.cli.default_paths import control_file as default_control_file
from pairbus.cli.option_groups import with_option_groups
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledSyphon:
    """The options that name a syphon on this machine."""

    primary: OptionalPrimary = field(default=None, repr=False)
    primary_name: PrimaryName = None
    config: ConfigFile = None
    pairing: PairingName = None
    control_file: ControlPath = None

    def path(self) -> Path:
        """Return the path of its control file. Raises ConfigurationError."""
        return self.control_file or default_control_file(self._name())

    def _name(self) -> str:
        name = self.primary_name
        if name is None and self.primary is not None:
            host = self.primary
            if is_connection_string(host):
                host = NamespaceAccess.from_connection_string(host).host
            name = namespace_name(host)
        if name is None:
            raise ConfigurationError(
                "The name of the primary is missing. Add --primary-name NAME, --pairing NAME or "
                "--control-file FILE."
            )
        return name


@app.command(epilog=EXAMPLE.format("pause"))
@with_option_groups
def pause(
    *,
    destination: Destination = None,
    syphon: ControlledSyphon,
) -> None:
    """Pause the syphon on this machine, or one destination.

    It takes effect within a second; the current micro-batch is finished. A pause survives a restart
    of the syphon.

    Exit status: 0 done; 2 invalid option.
    """
    _update(syphon, lambda control: control.pause(destination))


@app.command(epilog=EXAMPLE.format("resume"))
@with_option_groups
def resume(
    *,
    destination: Destination = None,
    syphon: ControlledSyphon,
) -> None:
    """Resume a paused syphon and all its destinations, or one destination.

    Exit status: 0 done; 2 invalid option.
    """
    _update(syphon, lambda control: control.resume(destination))


@app.command(epilog=EXAMPLE.format("rate 200"))
@with_option_groups
def rate(
    *,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="Messages a second, or none for no limit here.")
    ],
    destination: Destination = None,
    syphon: ControlledSyphon,
) -> None:
    """Limit the rate of the syphon, or of one destination, until it is changed again.

    The rate replaces --max-rate of the syphon. With none, --max-rate applies again.

    Exit status: 0 done; 2 invalid option.
    """
    _update(syphon, lambda control: control.set_max_rate(_parse_rate(rate), destination))


@app.command(epilog=EXAMPLE.format("status"))
@with_option_groups
def status(
    *,
    syphon: ControlledSyphon,
    as_json: AsJson = False,
) -> None:
    """Show what was set, and if a syphon that uses it is running.

    Exit status: 0 done; 2 invalid option.
    """
    _update(syphon, None, as_json=as_json)


def _parse_rate(text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"The rate must be a number or none, not {text!r}.") from None


def _update(
    syphon: ControlledSyphon,
    change: Callable[[Control], Control] | None,
    *,
    as_json: bool = False,
) -> None:
    """Change the control file, if there is a change, and show its content."""
    err = consoles()[1]
    try:
        file = ControlFile(syphon.path())
        control = file.read() if change is None else file.update(change)
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc
    except OSError as exc:
        print_error(
            err,
            f"The control file cannot be used: {exc.filename}: {exc.strerror}. Choose another one "
            "with --control-file, here and for the syphon.",
        )
        raise typer.Exit(USAGE_ERROR) from exc
    _show(file, control, as_json=as_json)


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
