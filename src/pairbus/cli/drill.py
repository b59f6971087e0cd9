"""`pairbus drill`: cause an outage, and prove that no message was lost."""

import logging
import signal
import sys
import tempfile
import termios
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from pairbus.cli.configuration_options import ConfigFileOfDrill, PairingNameOfDrill
from pairbus.cli.console import consoles, print_error, print_json, print_warning
from pairbus.cli.drill_console import DrillConsole, require_console
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.option_errors import with_option
from pairbus.cli.pairing_options import AsJson, require_credentials
from pairbus.cli.spark_requirements import check_spark
from pairbus.errors import ConfigurationError, PairbusError

if TYPE_CHECKING:
    from pairbus.drill.environments import Environment
    from pairbus.drill.plan import DrillOptions
    from pairbus.drill.result import DrillResult

PASSED, FAILED, USAGE_ERROR, STOPPED = 0, 1, 2, 4
CONSOLE_COST = "The console reads the backlog, which is billed too. "
EXAMPLE = "Example: pairbus drill --senders 12 --rate 300 --outage 30"


def drill(
    senders: Annotated[int, typer.Option(help="Number of sender threads.")] = 6,
    rate: Annotated[float, typer.Option(help="Messages a second, of all senders together.")] = 150,
    size: Annotated[int, typer.Option(help="Size of a message body in bytes.")] = 1024,
    outage: Annotated[float, typer.Option(help="Length of the outage in seconds.")] = 15,
    backlog_queues: Annotated[int, typer.Option(help="Number of backlog queues.")] = 4,
    failback: Annotated[
        str,
        typer.Option(
            help="after-drain: keep the order within sessions. immediate: send to the primary as "
            "soon as it is available."
        ),
    ] = "after-drain",
    primary: Annotated[
        str | None,
        typer.Option(
            envvar="PAIRBUS_DRILL_PRIMARY",
            help="Connection string of an existing primary, or its host for Microsoft Entra ID, "
            "with the Manage right.",
            show_envvar=True,
        ),
    ] = None,
    secondary: Annotated[
        str | None,
        typer.Option(
            envvar="PAIRBUS_DRILL_SECONDARY",
            help="Connection string or host of an existing secondary, with the Manage right.",
            show_envvar=True,
        ),
    ] = None,
    config: ConfigFileOfDrill = None,
    pairing: PairingNameOfDrill = None,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    tier: Annotated[
        str | None,
        typer.Option(
            help="Limits of the namespaces on this machine, as in Azure: standard, premium or "
            "unlimited.",
            show_default="unlimited",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before existing namespaces are used.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Keep the data and the ledger in this folder.",
            show_default="temporary",
            file_okay=False,
        ),
    ] = None,
    console: Annotated[
        bool,
        typer.Option(
            "--console",
            help="Serve the web page of `pairbus console` on this machine, and print a link to "
            "watch the drill. On a terminal, the page stays after the drill until Enter or Ctrl-C.",
        ),
    ] = False,
    console_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the console.", show_default="a free one"),
    ] = None,
    close_console: Annotated[
        bool,
        typer.Option("--close-console", help="Close the console at the end, also on a terminal."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Cause an outage, and prove that no message was lost.

    The drill starts two namespaces on this machine and pairs them. Senders are running when it
    kills the primary, and they continue to send. It restarts the primary, and the syphon moves the
    backlog on Spark. Then it receives all messages and looks for every acknowledged message by its
    id.

    With --primary and --secondary, or with --pairing, the drill uses your own namespaces, and asks
    first. It creates a topic and two queues there and removes them at the end. Its outage disables
    these for sending.

    Exit status: 0 no message was lost; 1 a message was lost, or the drill failed; 2 invalid option;
    4 stopped.
    """
    out, err = consoles()
    for name in ("pairbus", "azure", "uvicorn"):  # the drill reports the same events
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as resources:
        try:
            from pairbus.drill.plan import DrillOptions

            options = DrillOptions(
                senders=senders,
                rate=rate,
                size=size,
                outage=timedelta(seconds=outage),
                backlog_queue_count=backlog_queues,
                failback=cast(Any, failback),
            )
            if console:
                require_console()
            elif console_port is not None or close_console:
                raise ConfigurationError(
                    "--console-port and --close-console are for the console. Add --console."
                )
            if not check_spark(err):
                raise typer.Exit(FAILED)
            data = _data_folder(folder, resources)
            network = NetworkOptions(transport, proxy, ca_file)
            environment = _environment(primary, secondary, data, network, tier)
            web_console = None
            if console:
                web_console = resources.enter_context(
                    DrillConsole(console_port or 0, environment, backlog_queues, data)
                )
            if primary is not None and not yes:
                _confirm(environment, options, with_console=console)
        except ConfigurationError as exc:
            print_error(err, with_option(exc))
            raise typer.Exit(USAGE_ERROR) from exc
        drill_run = _DrillRun(out, err, web_console, as_json=as_json, close_console=close_console)
        status = drill_run.run(environment, options, data)
    raise typer.Exit(status)


def _data_folder(folder: Path | None, resources: ExitStack) -> Path:
    if folder is None:
        return Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="pairbus-drill-")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as exc:
        raise ConfigurationError(
            f"--folder: {folder} cannot be used: {exc.strerror}. Use an empty or new folder."
        ) from exc
    if not is_empty:
        raise ConfigurationError(f"--folder: {folder} is not empty. Use an empty or new folder.")
    return folder


def _environment(
    primary: str | None,
    secondary: str | None,
    folder: Path,
    network: NetworkOptions,
    tier: str | None,
) -> "Environment":
    from pairbus.backlog.target import InspectionTarget
    from pairbus.drill.connections import NetworkSettings
    from pairbus.drill.environments import ExistingEnvironment, LocalEnvironment

    if primary is None and secondary is None:
        return LocalEnvironment(folder, tier)
    if tier is not None:
        raise ConfigurationError(
            "--tier is for namespaces on this machine. Existing ones have the tier that Azure says."
        )
    if primary is None or secondary is None:
        raise ConfigurationError(
            "--primary and --secondary belong together. Add the other one, or use neither."
        )
    require_credentials(primary, secondary)
    InspectionTarget.parse(primary=primary, secondary=secondary)  # checks both
    return ExistingEnvironment(primary, secondary, NetworkSettings(**network.client_fields()))


def _confirm(environment: "Environment", options: "DrillOptions", *, with_console: bool) -> None:
    from pairbus.drill.connections import client_options

    primary, secondary = (
        client_options(text).host for text in (environment.primary, environment.secondary)
    )
    prefix = f"{environment.primary_name}/"
    count = round(options.rate * options.duration.total_seconds())
    typer.echo(
        f"The drill creates two queues and a topic below {prefix} in {primary}, and "
        f"{options.backlog_queue_count} queues below {prefix} in {secondary}. It sends about "
        f"{count:,} messages of {options.size:,} bytes, which are billed. "
        f"{CONSOLE_COST if with_console else ''}At the end it removes "
        "everything that it has created. It does not touch anything else.",
        err=True,
    )
    if not typer.confirm("Continue?", err=True):
        raise typer.Exit(STOPPED)


class _DrillRun:
    """Runs a drill with its output."""

    def __init__(
        self,
        out: Console,
        err: Console,
        console: DrillConsole | None,
        *,
        as_json: bool,
        close_console: bool,
    ) -> None:
        self._out = out
        self._err = err
        self._console = console
        self._as_json = as_json
        is_interactive = out.is_terminal and sys.stdin.isatty() and not as_json
        self._keeps_console = console is not None and is_interactive and not close_console

    def run(self, environment: "Environment", options: "DrillOptions", folder: Path) -> int:
        """Run the drill, and return the exit status."""
        from pairbus.cli.drill_screen import DrillScreen
        from pairbus.drill.run import Drill

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        start_console = None if self._console is None else self._console.run
        try:
            with DrillScreen(self._err if self._as_json else self._out, self._err) as screen:

                def show(result: "DrillResult") -> None:
                    screen.close()
                    self._show(result)

                drill = Drill(environment, options, folder, screen.report, start_console)
                screen.show(drill.snapshot)
                result = drill.run(show)
        except KeyboardInterrupt:
            print_warning(self._err, "Stopped. Everything that the drill had created was removed.")
            return STOPPED
        except (PairbusError, OSError) as exc:
            print_error(self._err, f"The drill failed: {exc}")
            return FAILED
        return PASSED if result.passed else FAILED

    def _show(self, result: "DrillResult") -> None:
        from pairbus.cli.drill_report import print_result

        if self._as_json:
            print_json(result.to_json())
            return
        operations = 0 if self._console is None else self._console.operations
        print_result(self._out, result, console_operations=operations)
        if self._console is not None and self._keeps_console:
            self._wait(self._console)

    def _wait(self, console: DrillConsole) -> None:
        """Keep the console and the namespaces running until Enter or Ctrl-C."""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # keys that were pressed before
        self._out.print(
            "\nThe console stays open. Press Enter or Ctrl-C to close it, and to remove what the "
            "drill has created. To log in now:",
            soft_wrap=False,
        )
        self._out.print(console.login_link(), markup=False)
        with suppress(KeyboardInterrupt):
            sys.stdin.readline()
